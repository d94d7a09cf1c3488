"""What happens to messages while the store loses answers, refuses or delays requests, or is down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

from idempotent_receiver import Message, Transaction
from idempotent_receiver.protocol.store import Conflict, NotApplied, Unknown
from tests.simulation import faults
from tests.simulation.faults import (
    crash,
    delivered_later,
    denied,
    lost_answer,
    lost_request,
    partly,
    raises,
    raises_late,
    sent_twice,
    throttled,
    works,
)
from tests.simulation.scenario import Reported, Scenario, batch, ids, instant
from tests.simulation.world import Worker, sqs_record

Handler = Callable[..., object]

TRANSIENT = [lost_answer, lost_request, throttled, sent_twice]


def posting(body: dict, tx: Transaction) -> int:
    tx.put(TableName="Entries", Item={"id": str(body.get("id")), "amount": 1})
    return 1


def posted(scenario: Scenario) -> int:
    table = scenario.memory.tables.get("Entries")
    return 0 if table is None else len(table.items)


# One fault: the same invocation copes with it.


@pytest.mark.scenario("S13", mutant="one's own version is not recognised")
@pytest.mark.scenario("S14", mutant="a time-out is a claim")
@pytest.mark.scenario("S15", mutant="one's own settlement is not recognised")
@pytest.mark.scenario("S16", "S32", mutant="what may be tried again is given up")
@pytest.mark.scenario("S30", mutant="what is in doubt is given up")
@pytest.mark.parametrize("count", [1, 5, 60])
@pytest.mark.parametrize(
    ("effects", "met"),
    [
        *(("any", {call: [fault]}) for call in ("insert", "replace", "commit") for fault in TRANSIENT),
        *(("any", {"read": [fault]}) for fault in TRANSIENT[:3]),
        ("any", {"insert": [lost_answer], "read": [lost_request, throttled]}),
        ("any", {"replace": [throttled] * 3}),
        # Without claims, an empty transaction is an insert, and a redelivery is read first.
        *(("transaction", {call: [fault]}) for call in ("insert", "commit") for fault in TRANSIENT),
        *(("transaction", {"read": [works], "commit": [fault]}) for fault in TRANSIENT),
        ("transaction", {"commit": [throttled] * 3}),
    ],
    ids=lambda one: (
        "-".join(f"{call}-{fault.__name__}" for call, met in one.items() for fault in met)
        if isinstance(one, dict)
        else None
    ),
)
def test_transient_faults_are_overcome_within_the_invocation(
    effects: str, met: dict[str, list[faults.Fault]], count: int
) -> None:
    """Everything is acknowledged, every handler ran once, and what it posted is there once.

    A completion whose answer was lost is recognised as one's own: no other worker has taken over the claim.
    """
    scenario, reported = Scenario(effects=effects), Reported()
    for call, fault in met.items():
        scenario.store.next(call, *fault)

    def nothing(body: dict, tx: Transaction) -> None: ...

    function = posting if "commit" in met else instant if effects == "any" else nothing

    assert scenario.answer(function, *batch(count, receives=1 + ("read" in met)), metrics=reported) == []
    assert sorted(scenario.keys_run) == sorted(ids(count))
    assert posted(scenario) == (count if "commit" in met else 0)
    assert (reported.counts["Completed"], reported.counts["LostClaims"]) == (count, 0)


@pytest.mark.scenario("S17", mutant="one ok is all ok")
@pytest.mark.scenario("S18", mutant="what is in doubt is given up")
@pytest.mark.parametrize(
    "otherwise",
    [NotApplied("throttled", retry=True), Unknown("internal error"), Conflict(None)],
    ids=lambda one: one.why if hasattr(one, "why") else "conflict",
)
def test_of_a_batch_only_the_statement_that_failed_is_sent_again(scenario: Scenario, otherwise: object) -> None:
    scenario.store.next("insert", partly(*[True] * 24, False, otherwise=otherwise))

    assert scenario.answer(instant, *batch(25)) == []
    assert len(scenario.runs) == 25
    sizes = [size for name, size in scenario.requests() if name in ("insert", "read")]
    assert sizes[0] == 25
    assert set(sizes[1:]) == {1}


@pytest.mark.scenario("S19", mutant="one ok is all ok")
def test_a_statement_that_can_never_be_applied_fails_its_message_alone(scenario: Scenario) -> None:
    def invalid(call: faults.Call) -> list[object]:
        return [*call.act()[:24], NotApplied("validation", retry=False)]

    scenario.store.next("insert", invalid)
    scenario.memory.items["24"] = {"id": "24", "status": "SOMETHING_NEWER"}

    assert scenario.answer(instant, *batch(25)) == ["24"]
    assert len(scenario.runs) == 24


# The store raises: a defect, of its own or ours or of what it was given.


@pytest.mark.parametrize("fault", [raises, raises_late])
@pytest.mark.parametrize("count", [1, 60])
def test_a_claim_at_which_the_store_raises_fails_its_message_at_once_and_runs_nothing(
    scenario: Scenario, fault: faults.Fault, count: int
) -> None:
    scenario.store.next("insert", *[fault] * 3)
    reported = Reported()

    assert sorted(scenario.answer(instant, *batch(count), seconds=900, logger=reported)) == sorted(ids(count))
    assert scenario.runs == []
    assert set(scenario.request_names()) == {"insert"}
    assert scenario.world.now < 0.1
    for text, why in reported.errors:
        assert text == "not run: the record could not be claimed"
        assert why.startswith("the store raised AttributeError at tests.simulation.faults.")
        assert "secret" not in why

    scenario.store.mended()
    assert scenario.answer(instant, *batch(count, receives=2), seconds=900, after=904) == []


@pytest.mark.parametrize(
    ("call", "fault", "answer", "requests"),
    [
        ("read", raises, ["0"], ["read"]),
        ("commit", raises, ["0"], ["insert", "commit", "replace"]),
        ("commit", raises_late, [], ["insert", "commit", "replace"]),
        ("replace", raises, ["0"], ["insert", "replace"]),
        ("replace", raises_late, ["0"], ["insert", "replace"]),
    ],
)
def test_a_call_at_which_the_store_raises_is_not_sent_again(
    scenario: Scenario, call: str, fault: faults.Fault, answer: list[str], requests: list[str]
) -> None:
    """Only what is known to be recorded is acknowledged. Recording the failure of a commit that was done after all
    finds the record COMPLETED.
    """
    scenario.store.next(call, fault)
    function = posting if call == "commit" else instant

    assert scenario.answer(function, *batch(1, receives=1 + (call == "read")), seconds=8) == answer
    assert scenario.request_names() == requests
    assert scenario.world.now < 0.1
    assert posted(scenario) == (answer == [])
    if (call, fault) == ("commit", raises):
        error = scenario.error("0")
        assert error["type"] == "TransactionNotCommitted"
        assert error["text"].startswith("the store raised AttributeError at tests.simulation.faults.raises:")


# The store is down.


@pytest.mark.scenario("S27", mutant="claiming is as patient as settling")
@pytest.mark.parametrize("receives", [1, 2])
@pytest.mark.parametrize("count", [1, 30, 1000])
def test_while_the_store_is_down_nothing_runs_and_every_id_fails_fast(
    scenario: Scenario, count: int, receives: int
) -> None:
    scenario.store.down()

    assert sorted(scenario.answer(instant, *batch(count, receives=receives), seconds=900)) == sorted(ids(count))
    assert scenario.runs == []
    assert scenario.world.now < 3


@pytest.mark.scenario("S27", mutant="what could not be claimed is told to nobody")
def test_denied_access_is_reported_at_once_without_a_retry(scenario: Scenario) -> None:
    scenario.store.next("insert", *[denied] * 50)
    reported = Reported()

    assert len(scenario.answer(instant, *batch(1000), seconds=900, logger=reported)) == 1000
    assert reported.errors == [("not run: the record could not be claimed", "access denied")] * 1000
    assert scenario.world.now < 0.1
    assert len(scenario.requests()) <= 8


@pytest.mark.scenario("S70", mutant="a store's trouble backs off like a handler's")
def test_a_quarter_of_an_hour_without_a_table_uses_up_nobodys_five_receives(scenario: Scenario) -> None:
    worker = scenario.worker(instant, queue_client=True)
    visible = {str(number): 0.0 for number in range(40)}
    receives = Counter[str]()
    scenario.store.down()
    while visible:
        id = min(visible, key=lambda one: visible[one])
        at = max(visible.pop(id), scenario.world.now)
        if at >= 15 * 60:
            scenario.store.up()
        receives[id] += 1
        worker.deliver(sqs_record(id, receives=receives[id]), after=at - scenario.world.now)
        scenario.run()
        if worker.answers[-1] == [id]:
            visible[id] = scenario.world.now + scenario.sqs.visibilities[id]

    assert sorted(scenario.keys_run) == sorted(receives)
    assert max(receives.values()) <= 5


@pytest.mark.scenario("S28", mutant="settling gives up as early as claiming")
def test_a_completion_is_retried_until_a_store_that_went_down_is_back(scenario: Scenario) -> None:
    scenario.world.spawn(scenario.store.down, after=0.006)
    scenario.world.spawn(scenario.store.up, after=20)

    assert scenario.answer(instant, *batch(3), seconds=30) == []
    assert len(scenario.runs) == 3


@pytest.mark.scenario("S28", mutant="acknowledged although it could not be recorded")
def test_a_store_that_stays_down_after_the_claims_leaves_failures_and_an_orphan_for_later(scenario: Scenario) -> None:
    worker = scenario.deliver(instant, *batch(3), seconds=10)
    scenario.world.spawn(scenario.store.down, after=0.006)

    assert scenario.answers_of(worker) == [["0", "1", "2"]]
    assert scenario.world.now < 10

    scenario.store.up()

    assert scenario.answer(instant, *batch(3, receives=2), after=13 - scenario.world.now + 0.1) == []
    assert [run.attempt for run in scenario.runs] == [1, 1, 1, 2, 2, 2]


@pytest.mark.scenario("S29", mutant="what is refused for good is tried again")
def test_a_completion_that_is_denied_fails_its_message_and_is_not_retried(scenario: Scenario) -> None:
    scenario.store.next("replace", denied)
    reported = Reported()

    assert scenario.answer(instant, *batch(1), seconds=900, metrics=reported) == ["0"]
    assert scenario.world.now < 0.1
    assert reported.counts["Unsettled"] == 1


@pytest.mark.scenario("S26", mutant="what is in doubt is given up")
def test_a_release_that_meets_an_internal_error_is_sent_again(scenario: Scenario) -> None:
    scenario.store.next("replace", works, lost_request, lost_request)

    def slow(body: dict, message: Message) -> None:
        scenario.world.sleep(0.5 if message.id == "0" else 2)

    assert scenario.answer(slow, *batch(3), seconds=5) == ["2"]
    assert scenario.request_names().count("replace") == 4
    assert scenario.live_claims() == []


# Delays and crashes.


@pytest.mark.scenario("S05", mutant="an insert over what is there")
def test_a_claim_delayed_on_the_wire_changes_nothing_that_came_after_it(scenario: Scenario) -> None:
    scenario.store.next("insert", delivered_later(60))

    assert scenario.answer(scenario.taking(2), *batch(2), seconds=4) == ["1"]
    assert scenario.status("0") == "COMPLETED"
    assert scenario.answer(instant, *batch(2, receives=2)) == []
    assert scenario.live_claims() == []


@pytest.mark.scenario("S05", mutant="a take-over without compare-and-swap")
def test_a_take_over_delayed_on_the_wire_does_not_claim_a_failed_record_again(scenario: Scenario) -> None:
    fails = scenario.taking(0, RuntimeError())
    scenario.answer(fails, *batch(1))
    scenario.store.next("replace", delivered_later(60))

    assert scenario.answer(fails, *batch(1, receives=2)) == ["0"]
    assert scenario.status("0") == "FAILED"
    assert scenario.live_claims() == []


def test_a_completion_whose_copy_arrives_after_a_redelivery_changes_nothing(scenario: Scenario) -> None:
    scenario.store.next("replace", delivered_later(5, works))
    first = scenario.deliver(instant, *batch(1))

    assert scenario.answer(instant, *batch(1, receives=2), after=1) == []
    assert first.answers == [[]]
    assert scenario.keys_run == ["0"]


@pytest.mark.scenario("S04", mutant="a settlement names no version")
def test_a_completion_of_a_dead_worker_that_arrives_after_a_take_over_is_refused(scenario: Scenario) -> None:
    victim = scenario.worker(instant)
    dies = crash(partial(scenario.kill, victim), applied=False)
    scenario.store.next("replace", delivered_later(50, dies))
    victim.deliver(*batch(1), seconds=10)

    assert scenario.answer(instant, *batch(1, receives=2), after=20) == []
    assert scenario.memory.items["0"]["owner"] == "w1"
    assert [run.worker for run in scenario.runs] == ["w0", "w1"]


@pytest.mark.scenario("S12", mutant="a claim's version is its owner")
def test_a_late_write_of_a_warm_processs_first_invocation_does_not_disturb_its_second(scenario: Scenario) -> None:
    def hanging(call: faults.Call) -> None:
        call.world.spawn(call.act, after=20)
        call.world.sleep(1000)

    def slow_at_last(body: dict, message: Message) -> int:
        scenario.world.sleep(12 if message.receive_count == 2 else 0)
        return message.receive_count

    scenario.store.next("replace", hanging)
    worker = scenario.deliver(slow_at_last, *batch(1), seconds=10)
    worker.deliver(*batch(1, receives=2), after=14)

    assert scenario.answers_of(worker) == [["0"], []]
    assert [run.attempt for run in scenario.runs] == [1, 2]
    assert (scenario.memory.items["0"]["attempts"], scenario.memory.items["0"]["data"]) == (2, "2")


@pytest.mark.scenario("S36", mutant="an orphan waits for its record's expiration")
@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("call", ["insert", "replace"])
def test_a_worker_that_dies_at_any_store_call_is_recovered_after_its_lease(call: str, applied: bool) -> None:
    scenario = Scenario()
    victim = scenario.worker(instant)
    scenario.store.next(call, crash(partial(scenario.kill, victim), applied=applied))
    victim.deliver(*batch(3), seconds=10)
    early, late = scenario.worker(instant), scenario.worker(instant)
    early.deliver(*batch(3, receives=2), after=5)
    late.deliver(*batch(3, receives=3), after=14)

    assert scenario.answers_of(victim) == []
    done_already = call == "replace" and applied
    nothing_claimed = call == "insert" and not applied
    assert early.answers == ([[]] if done_already or nothing_claimed else [["0", "1", "2"]])
    assert len(scenario.runs) == (6 if (call, applied) == ("replace", False) else 3)


@pytest.mark.scenario("S36", mutant="an orphan waits for its record's expiration")
@pytest.mark.parametrize("applied", [False, True])
def test_a_worker_that_dies_at_its_commit_leaves_all_of_it_or_nothing(scenario: Scenario, applied: bool) -> None:
    victim = scenario.worker(posting)
    scenario.store.next("commit", crash(partial(scenario.kill, victim), applied=applied))
    victim.deliver(*batch(1), seconds=10)

    assert scenario.answer(posting, *batch(1, receives=2), after=14) == []
    assert posted(scenario) == 1
    assert len(scenario.runs) == (1 if applied else 2)


@pytest.mark.scenario("S24", mutant="a completed record may be claimed")
def test_a_crash_in_the_middle_of_a_group_commit_keeps_what_was_written(scenario: Scenario) -> None:
    victim = scenario.worker(instant)

    def half(call: faults.Call) -> object:
        held = scenario.memory.items.copy()
        call.act()
        for id in list(scenario.memory.items)[12:]:
            scenario.memory.items[id] = held[id]
        return crash(partial(scenario.kill, victim), applied=False)(call)

    scenario.store.next("replace", half)
    victim.deliver(*batch(25), seconds=10)
    early = scenario.deliver(instant, *batch(25, receives=2), after=12)

    assert scenario.answer(instant, *batch(25, receives=3), after=14) == []
    assert [len(failed) for failed in early.answers] == [13]
    assert [run.worker for run in scenario.runs[25:]] == ["w2"] * 13


# Fencing.


def zombie_and_taker(
    scenario: Scenario, zombie_function: Handler, taker_function: Handler = instant
) -> tuple[Worker, Worker]:
    zombie = scenario.deliver(zombie_function, *batch(1), seconds=20)
    taker = scenario.deliver(taker_function, *batch(1, receives=2), after=6, skew_seconds=60)
    scenario.dead.add(zombie.name)
    return zombie, taker


@pytest.mark.scenario("S01", "S02", mutant="a settlement names no version")
@pytest.mark.scenario("S03", mutant="a settlement replaces whatever is there")
@pytest.mark.parametrize("error", [None, RuntimeError()])
@pytest.mark.parametrize(("seconds", "answer"), [(2, ["0"]), (0, [])])
def test_a_zombie_changes_nothing_and_acknowledges_only_what_another_has_completed(
    scenario: Scenario, error: Exception | None, seconds: float, answer: list[str]
) -> None:
    zombie, taker = zombie_and_taker(scenario, scenario.taking(7, error), scenario.taking(seconds))

    assert scenario.answer(instant, *batch(1, receives=3), after=7.5) == answer
    assert (zombie.answers, taker.answers) == ([answer], [[]])
    assert (scenario.status("0"), scenario.memory.items["0"]["owner"]) == ("COMPLETED", "w1")


@pytest.mark.scenario("S31", mutant="a transaction does not ask whether its claim stands")
def test_a_zombies_transaction_leaves_nothing_visible(scenario: Scenario) -> None:
    def slow(body: dict, tx: Transaction) -> None:
        tx.put(TableName="Entries", Item={"id": "zombie"})
        scenario.world.sleep(7)

    zombie, taker = zombie_and_taker(scenario, slow, posting)
    scenario.run()

    assert (zombie.answers, taker.answers) == ([[]], [[]])
    assert list(scenario.memory.tables["Entries"].items) == [("0",)]


@pytest.mark.scenario("S06", mutant="a take-over without compare-and-swap")
def test_of_three_workers_two_see_one_stale_claim_and_one_takes_it_over(scenario: Scenario) -> None:
    dead = scenario.worker(instant)
    scenario.store.next("replace", crash(partial(scenario.kill, dead), applied=False))
    dead.deliver(*batch(1), seconds=2)

    takers = [scenario.worker(scenario.taking(1)) for _ in range(2)]
    for taker in takers:
        taker.deliver(*batch(1, receives=2), after=10)

    assert scenario.answers_of(dead) == []
    assert sorted(taker.answers for taker in takers) == [[[]], [["0"]]]
    assert len(scenario.runs) == 2


@pytest.mark.scenario("S63", mutant="a settlement names no version")
def test_a_late_completion_beats_a_take_over_that_has_already_read(scenario: Scenario) -> None:
    worker = scenario.worker(instant, lease_margin_seconds=0)
    scenario.store.next("replace", delivered_later(5.0085, crash(lambda: scenario.kill(worker), applied=False)))
    worker.deliver(*batch(1), seconds=3)

    assert scenario.answer(instant, *batch(1, receives=2), after=5.01) == []
    assert [run.worker for run in scenario.runs] == ["w0"]
    assert scenario.requests()[-2:] == [("read", 1), ("replace", 1)]


@pytest.mark.scenario("S64", mutant="a settlement names no version")
def test_a_transaction_delayed_on_the_wire_is_refused_once_its_record_has_failed(scenario: Scenario) -> None:
    scenario.memory.tables.clear()

    def overdrawing(body: dict, tx: Transaction) -> None:
        tx.put(TableName="Entries", Item={"id": "1"})
        tx.check(TableName="Entries", Key={"id": "payer"}, ConditionExpression="attribute_exists(id)")

    scenario.store.next("commit", delivered_later(60))
    payer = {("payer",): {"id": "payer"}}
    scenario.world.spawn(lambda: scenario.memory.tables["Entries"].items.update(payer), after=30)

    assert scenario.answer(overdrawing, *batch(1)) == ["0"]
    assert scenario.status("0") == "FAILED"
    assert list(scenario.memory.tables["Entries"].items) == [("payer",)]


@pytest.mark.scenario("S61", mutant="an expired record is honoured")
def test_an_expired_record_counts_as_absent_while_it_is_still_there(scenario: Scenario) -> None:
    worker = scenario.deliver(instant, *batch(1), retention_seconds=86_400)
    worker.deliver(*batch(1, receives=2), after=86_300)
    worker.deliver(*batch(1, receives=3), after=86_402)

    assert scenario.answers_of(worker) == [[], [], []]
    assert [run.started < 1 for run in scenario.runs] == [True, False]
    assert [run.attempt for run in scenario.runs] == [1, 1]


@pytest.mark.scenario("S21", mutant="what is in the way is taken for nothing")
def test_a_record_that_ttl_deletes_between_a_refused_insert_and_the_read_is_inserted_anew(scenario: Scenario) -> None:
    scenario.memory.items["0"] = {"id": "0", "status": "COMPLETED", "version": "old", "expiration": 1}

    def deleted(call: faults.Call) -> object:
        scenario.memory.items.clear()
        return call.act()

    scenario.store.next("insert", lambda call: [Conflict(None) for _ in call.act()])
    scenario.store.next("read", deleted)

    assert scenario.answer(instant, *batch(1)) == []
    assert [(run.key, run.attempt) for run in scenario.runs] == [("0", 1)]
    assert scenario.request_names() == ["insert", "read", "insert", "replace"]


@pytest.mark.scenario("S21", mutant="a wish may lose for ever")
def test_a_record_that_is_always_in_the_way_and_never_there_fails_its_message_in_bounded_requests() -> None:
    scenario = Scenario()
    scenario.store.next("insert", *[lambda call: [Conflict(None)]] * 10_000)

    assert scenario.answer(instant, *batch(1), seconds=60) == ["0"]
    assert scenario.runs == []
    assert len(scenario.requests()) <= 2 * (12 + 4)


@pytest.mark.scenario("S22", mutant="a settlement names no version")
def test_a_take_over_that_is_built_on_a_stale_read_is_refused(scenario: Scenario) -> None:
    old: list[object] = []
    scenario.store.next("replace", lambda call: [old.extend(scenario.memory.read(["0"])), call.act()][1])
    scenario.deliver(instant, *batch(1), seconds=3, lease_margin_seconds=0)
    scenario.world.spawn(lambda: scenario.store.next("read", lambda call: [call.act(), list(old)][1]), after=3.9)

    assert scenario.answer(instant, *batch(1, receives=2), after=4) == []
    assert scenario.keys_run == ["0"]
    assert scenario.requests()[-2:] == [("read", 1), ("replace", 1)]


@pytest.mark.scenario("S23", mutant="unread is free")
def test_what_a_read_left_out_fails_or_is_read_again_and_is_never_assumed(scenario: Scenario) -> None:
    scenario.answer(instant, *batch(3))
    before = dict(scenario.memory.items["1"])
    scenario.requests()

    def without_the_second(call: faults.Call) -> object:
        return [Unknown("unprocessed") if record.id == "1" else record for record in call.act()]  # type: ignore[union-attr]

    scenario.store.next("read", *[without_the_second] * 100)

    assert scenario.answer(instant, *batch(3, receives=2)) == ["1"]
    assert scenario.memory.items["1"] == before
    assert set(scenario.request_names()) == {"read"}


def test_a_record_that_is_deleted_while_its_handler_runs_is_not_resurrected(scenario: Scenario) -> None:
    def forgetting(body: dict, message: Message) -> None:
        if message.receive_count == 1:
            scenario.memory.items.clear()

    worker = scenario.deliver(forgetting, *batch(1))

    assert scenario.answers_of(worker) == [["0"]]
    assert scenario.memory.items == {}

    worker.deliver(*batch(1, receives=2))
    scenario.run()
    assert worker.answers[1:] == [[]]


@pytest.mark.scenario("S46", mutant="what is done is remembered by the process")
def test_a_process_reads_even_what_it_has_completed_from_the_table(scenario: Scenario) -> None:
    def failing_once_more(body: dict, message: Message) -> None:
        if message.receive_count == 2:
            raise RuntimeError

    worker = scenario.deliver(failing_once_more, *batch(1))
    scenario.run()
    scenario.memory.items.clear()
    worker.deliver(*batch(1, receives=2))

    assert scenario.answers_of(worker) == [[], ["0"]]
    assert [run.attempt for run in scenario.runs] == [1, 1]


@pytest.mark.scenario("S62", mutant="what is unreadable is overwritten")
@pytest.mark.parametrize(
    "item",
    [
        {"status": "EXPIRED", "version": "1"},
        {"status": "INPROGRESS"},
        {"status": "COMPLETED", "version": 7},
        {"status": "COMPLETED", "expiration": "tomorrow"},
        {"note": "an operator's"},
    ],
)
@pytest.mark.parametrize("receives", [1, 2])
def test_a_record_of_an_unknown_format_fails_its_message_and_is_left_untouched(item: dict, receives: int) -> None:
    scenario = Scenario()
    scenario.memory.items["0"] = {"id": "0", **item}

    assert scenario.answer(instant, *batch(2, receives=receives)) == ["0"]
    assert scenario.memory.items["0"] == {"id": "0", **item}
    assert scenario.keys_run == ["1"]


def test_a_record_that_powertools_completed_is_acknowledged_without_a_run(scenario: Scenario) -> None:
    soon = int(scenario.epoch_seconds) + 3600
    scenario.memory.items["0"] = {"id": "0", "status": "COMPLETED", "expiration": soon, "data": "1"}
    lease = {"in_progress_expiration": int(scenario.epoch_seconds * 1000) + 5000}
    scenario.memory.items["1"] = {"id": "1", "status": "INPROGRESS", "expiration": soon, **lease}
    worker = scenario.deliver(instant, *batch(2, receives=2))
    worker.deliver(*batch(2, receives=3), after=5.1)

    assert scenario.answers_of(worker) == [["1"], []]
    assert scenario.keys_run == ["1"]


def test_powertools_finishing_first_prevents_a_take_over(scenario: Scenario) -> None:
    soon = int(scenario.epoch_seconds) + 3600
    item = {"id": "0", "status": "INPROGRESS", "expiration": soon, "in_progress_expiration": 1}
    scenario.memory.items["0"] = item
    completed = {"0": item | {"status": "COMPLETED", "data": "1"}}
    scenario.world.spawn(lambda: scenario.memory.items.update(completed), after=0.006)

    assert scenario.answer(instant, *batch(1, receives=2)) == []
    assert scenario.runs == []
