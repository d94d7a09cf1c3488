"""The six promises, each with tests of its name; `make mutants` shows that each test can fail.

`effects="transaction"` gives up the second, and keeps of the third that no later run's effects commit. What nothing
has claimed needs no recovery, so that the sixth has nothing to do.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

import pytest

from idempotent_receiver import Message, PermanentError, Transaction, current_claim
from tests.simulation.faults import crash, delivered_later, denied, lost_answer
from tests.simulation.scenario import Scenario
from tests.simulation.world import DEAD_LETTERS, sqs_record

DAY = 24 * 60 * 60


def running(scenario: Scenario, seconds: float = 0.0, error: Exception | None = None) -> Callable[..., str]:
    def handle(body: dict) -> str:
        scenario.world.sleep(seconds)
        if error is not None:
            raise error
        return "done"

    return handle


def posting(scenario: Scenario, seconds: float = 0.0, error: Exception | None = None) -> Callable[..., str]:
    run = running(scenario, seconds, error)

    def handle(body: dict, message: Message, tx: Transaction) -> str:
        post_once(message, tx)
        return run(body)

    return handle


def post_once(message: Message, tx: Transaction) -> None:
    adding = {"UpdateExpression": "ADD times :one", "ExpressionAttributeValues": {":one": 1}}
    tx.update(TableName="Books", Key={"id": message.id}, **adding)


def posted(scenario: Scenario) -> dict[str, int]:
    books = scenario.memory.tables.get("Books")
    return {} if books is None else {item["id"]: item["times"] for item in books.items.values()}


@pytest.mark.parametrize("effects", ["any", "transaction"])
@pytest.mark.parametrize("trouble", ["none", "handler", "crash", "store", "denied", "time"])
def test_promise_1_nothing_lost_what_is_acknowledged_is_completed(trouble: str, effects: str) -> None:
    """A message is left out of the answer only if its record is COMPLETED; without claims, its effect is there, too."""
    scenario = Scenario()
    error = RuntimeError() if trouble == "handler" else None
    claiming = effects == "any"
    handle = (running if claiming else posting)(scenario, 2 if trouble == "time" else 0, error)
    worker = scenario.worker(handle, effects=effects)
    settle = "replace" if claiming else "commit"
    if trouble == "denied":
        scenario.store.next(settle, *[denied] * 4)
    if trouble == "crash":
        scenario.store.next(settle, crash(partial(scenario.kill, worker), applied=False))
    if trouble == "store":
        scenario.world.spawn(scenario.store.down, after=0.006 if claiming else 0)
    worker.deliver(*[sqs_record(str(number)) for number in range(4)], seconds=6)

    scenario.run()

    acknowledged = set("0123") - set(worker.answers[0]) if worker.answers else set()
    assert acknowledged == {"none": set("0123"), "time": set("01")}.get(trouble, set())
    completed = {id for id in "0123" if scenario.status(id) == "COMPLETED"}
    assert acknowledged <= completed
    if not claiming:
        assert completed == acknowledged
        assert posted(scenario) == dict.fromkeys(acknowledged, 1)


@pytest.mark.parametrize("confirms", [True, False])
def test_promise_1_nothing_lost_what_is_dead_lettered_is_confirmed(confirms: bool) -> None:
    """Or if SQS has confirmed its send to the dead-letter queue."""
    scenario = Scenario()
    if not confirms:
        scenario.sqs.deny.add("send_message")
    worker = scenario.worker(running(scenario, error=PermanentError("closed")), dead_letter_queue=DEAD_LETTERS)
    worker.deliver(sqs_record("1"))

    scenario.run()

    assert worker.answers == [[] if confirms else ["1"]]
    assert list(scenario.dead_letters()) == (["1"] if confirms else [])


@pytest.mark.parametrize("queue_client", [True, False])
def test_promise_1_nothing_lost_what_fails_for_good_is_sqs_to_move_where_nothing_is_dead_lettered(
    queue_client: bool,
) -> None:
    """Without a dead-letter queue it is a failure like any other."""
    scenario = Scenario()
    worker = scenario.worker(running(scenario, error=PermanentError("closed")), queue_client=queue_client)
    worker.deliver(sqs_record("1"))

    scenario.run()

    assert worker.answers == [["1"]]
    assert scenario.status("1") == "FAILED"
    assert json.loads(scenario.memory.items["1"]["error"])["permanent"] is True


def test_promise_2_one_at_a_time_while_a_lease_is_live_nobody_else_runs() -> None:
    """However often the message is delivered, to however many workers, with clocks that differ by two seconds."""
    scenario = Scenario()
    scenario.worker(running(scenario, 25)).deliver(sqs_record("1"), seconds=30)
    others = [scenario.worker(running(scenario), skew_seconds=skew) for skew in (-2, 0, 2)]
    for other in others:
        for after in (0.1, 5, 24.9):
            other.deliver(sqs_record("1", receives=2), after=after)

    scenario.run()

    assert [run.worker for run in scenario.runs] == ["w0"]
    assert all(answer == ["1"] for other in others for answer in other.answers)


def test_promise_2_one_at_a_time_of_many_that_claim_at_once_one_runs() -> None:
    """The same message, at the same moment, to five workers."""
    scenario = Scenario()
    workers = [scenario.worker(running(scenario, 1)) for _ in range(5)]
    for worker in workers:
        worker.deliver(sqs_record("1"))

    scenario.run()

    assert len(scenario.runs) == 1
    assert sorted(worker.answers for worker in workers) == [[[]]] + [[["1"]]] * 4


def test_promise_3_once_done_done_until_the_record_expires() -> None:
    """After that, and not before, the key is free again."""
    scenario = Scenario()
    worker = scenario.worker(running(scenario), retention_seconds=DAY)
    for after in (0, 1, 3600, DAY - 60, DAY + 60):
        worker.deliver(sqs_record("1", receives=2), after=after)

    scenario.run()

    assert worker.answers == [[]] * 5
    assert [round(run.started / DAY) for run in scenario.runs] == [0, 1]


def test_promise_3_without_claims_no_later_runs_effects_commit() -> None:
    """Many run at once, and again until the record expires: promise 2 is given up, and the effect is there once."""
    scenario = Scenario()
    workers = [scenario.worker(posting(scenario, 1 + place), effects="transaction") for place in range(5)]
    for worker in workers:
        for after in (0, 3600, DAY):
            worker.deliver(sqs_record("1", receives=1), after=after)

    scenario.run()

    assert [worker.answers for worker in workers] == [[[]] * 3] * 5
    assert len(scenario.runs) == 15
    assert posted(scenario) == {"1": 1}


@pytest.mark.parametrize("ends", ["returns", "raises"])
def test_promise_4_fenced_a_worker_whose_claim_was_taken_over_changes_nothing(ends: str) -> None:
    """Neither while the other worker runs nor after it has completed, and not by requests that arrive late."""
    scenario = Scenario()
    error = RuntimeError() if ends == "raises" else None
    zombie = scenario.worker(running(scenario, 8, error))
    scenario.store.next("replace", lambda call: call.act())  # the second worker's claim
    scenario.store.next("replace", delivered_later(5))  # the first worker's settlement
    zombie.deliver(sqs_record("1"), seconds=20)
    scenario.dead.add(zombie.name)
    taker = scenario.worker(running(scenario, 4), skew_seconds=60)
    taker.deliver(sqs_record("1", receives=2), after=5)

    scenario.run()

    assert zombie.answers == [["1"]]
    assert taker.answers == [[]]
    assert (scenario.memory.items["1"]["owner"], scenario.memory.items["1"]["data"]) == ("w1", '"done"')


@pytest.mark.parametrize("effects", ["any", "transaction"])
@pytest.mark.parametrize("moment", ["before", "after", "answer lost", "zombie", "overdrawn", "raises"])
def test_promise_5_exactly_once_the_transaction_and_the_completion_commit_together_or_not_at_all(
    moment: str, effects: str
) -> None:
    """Whenever the process dies and whichever answer is lost: each posting is there once."""
    scenario = Scenario()

    def post(body: dict, message: Message, tx: Transaction) -> None:
        if moment == "overdrawn" and message.receive_count == 1:
            tx.check(TableName="Books", Key={"id": "payer"}, ConditionExpression="attribute_exists(id)")
        post_once(message, tx)
        if moment == "raises" and message.receive_count == 1:
            raise RuntimeError
        scenario.world.sleep(8 if moment == "zombie" and message.receive_count == 1 else 0)

    first = scenario.worker(post, effects=effects)
    if moment in ("before", "after"):
        scenario.store.next("commit", crash(partial(scenario.kill, first), applied=moment == "after"))
    if moment == "answer lost":
        scenario.store.next("commit", lost_answer)
    if moment == "zombie":
        scenario.dead.add(first.name)
    first.deliver(sqs_record("1"), seconds=20)
    second = scenario.worker(post, effects=effects, skew_seconds=60 if moment == "zombie" else 0)
    second.deliver(sqs_record("1", receives=2), after=5 if moment == "zombie" else 30)

    scenario.run()

    assert second.answers == [[]]
    assert posted(scenario) == {"1": 1}


def test_promise_5_for_other_effects_every_attempt_has_the_same_idempotency_key() -> None:
    """Other records have other keys."""
    scenario = Scenario()
    keys: list[tuple[str, str]] = []

    def handle(body: dict, message: Message) -> None:
        assert message.idempotency_key == current_claim().idempotency_key
        keys.append((message.id, message.idempotency_key))
        raise RuntimeError

    worker = scenario.worker(handle)
    for after in (0, 1, 2):
        worker.deliver(sqs_record("1", receives=after + 1), sqs_record("2", receives=after + 1), after=after)

    scenario.run()

    assert len(keys) == 6
    assert len(set(keys)) == 2


@pytest.mark.scenario("S36", mutant="an orphan waits for its record's expiration")
def test_promise_6_orphans_recover_by_themselves_once_their_lease_ends_and_without_ttl() -> None:
    """Nobody deletes anything; the next delivery after the lease takes the claim over."""
    scenario = Scenario()
    victim = scenario.worker(running(scenario, 60))
    victim.deliver(sqs_record("1"), seconds=10)
    scenario.world.spawn(partial(scenario.kill, victim), after=1)
    worker = scenario.worker(running(scenario))
    for after in (2, 9, 12.9, 13.1):
        worker.deliver(sqs_record("1", receives=2), after=after)

    scenario.run()

    assert worker.answers == [["1"], ["1"], ["1"], []]
    assert [(run.worker, run.attempt) for run in scenario.runs] == [("w0", 1), ("w1", 2)]
