"""What becomes of messages while the store loses answers, refuses, delays, or is gone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

from idempotent_receiver import Message, Transaction
from idempotent_receiver.protocol.store import Conflict, NotApplied, Unknown
from tests.simulation import faults
from tests.simulation.faults import (
    crash,
    delivered_again,
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
from tests.simulation.scene import Scene
from tests.simulation.world import Worker, sqs_record

Handler = Callable[..., object]

TRANSIENT = [lost_answer, lost_request, throttled, sent_twice]


def instant(body: dict) -> int:
    return 1


def posting(body: dict, tx: Transaction) -> int:
    tx.put(TableName="Entries", Item={"id": str(body.get("id")), "amount": 1})
    return 1


def posted(scene: Scene) -> int:
    table = scene.memory.tables.get("Entries")
    return 0 if table is None else len(table.items)


def batch(count: int, **options: object) -> list[dict[str, object]]:
    return [sqs_record(str(number), f'{{"id":{number}}}', **options) for number in range(count)]  # type: ignore[arg-type]


class Told:
    """What was told of batches: the metrics' counts, and the log's errors with the reasons that they give."""

    log_level = 10

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.errors: list[tuple[str, str]] = []

    def add_metric(self, name: str, unit: object, value: float) -> None:
        self.counts[name] += int(value)

    def flush_metrics(self) -> None: ...

    def error(self, text: str, extra: dict[str, object]) -> None:
        self.errors.append((text, str(extra.get("why"))))

    def info(self, text: str, extra: dict[str, object]) -> None: ...

    debug = warning = info


# One fault: the same invocation copes with it.


@pytest.mark.scenario("S13", mutant="one's own version is not recognised")
@pytest.mark.scenario("S14", mutant="a time-out is a claim")
@pytest.mark.parametrize("fault", TRANSIENT)
@pytest.mark.parametrize("call", ["insert", "replace"])
@pytest.mark.parametrize("count", [1, 5, 60])
def test_one_transient_fault_is_mended_within_the_invocation(call: str, fault: faults.Fault, count: int) -> None:
    """Everything is acknowledged, and every handler ran once."""
    scene = Scene()
    scene.store.next(call, fault)
    worker = scene.worker(instant)
    worker.deliver(*batch(count))

    scene.run()

    assert worker.answers == [[]]
    assert sorted(scene.keys_run) == sorted(str(number) for number in range(count))


@pytest.mark.parametrize("fault", [lost_answer, lost_request, throttled])
def test_one_transient_fault_of_the_first_read_is_mended(fault: faults.Fault) -> None:
    """What has been received before is looked at until it has been seen."""
    scene = Scene()
    scene.store.next("read", fault)
    worker = scene.worker(instant)
    worker.deliver(*batch(5, receives=2))

    scene.run()

    assert worker.answers == [[]]


@pytest.mark.scenario("S30", mutant="what is in doubt is given up")
@pytest.mark.scenario("S32", mutant="what may be tried again is given up")
@pytest.mark.parametrize("fault", [lost_answer, lost_request, throttled])
def test_one_transient_fault_of_a_commit_is_mended_and_its_items_are_written_once(fault: faults.Fault) -> None:
    """The transaction is sent again as it was, or recognised as done."""
    scene = Scene()
    scene.store.next("commit", fault)
    worker = scene.worker(posting)
    worker.deliver(*batch(2))

    scene.run()

    assert worker.answers == [[]]
    assert posted(scene) == 2
    assert len(scene.runs) == 2


def test_a_lost_claim_answer_and_a_lost_read_after_it_are_mended_too() -> None:
    """The read is asked again, and finds our own version."""
    scene = Scene()
    scene.store.next("insert", lost_answer)
    scene.store.next("read", lost_request, throttled)
    worker = scene.worker(instant)
    worker.deliver(*batch(1))

    scene.run()

    assert worker.answers == [[]]
    assert scene.keys_run == ["0"]


@pytest.mark.scenario("S16", mutant="what may be tried again is given up")
def test_a_throttled_completion_is_sent_again_and_the_handler_is_not() -> None:
    """Three times, inside the deadline."""
    scene = Scene()
    scene.store.next("replace", throttled, throttled, throttled)
    worker = scene.worker(instant)
    worker.deliver(*batch(1))

    scene.run()

    assert worker.answers == [[]]
    assert scene.keys_run == ["0"]


@pytest.mark.scenario("S15", mutant="one's own settlement is not recognised")
@pytest.mark.parametrize("fault", [lost_answer, sent_twice])
def test_a_completion_whose_answer_was_lost_is_recognised_as_ones_own(fault: faults.Fault) -> None:
    """It is a completion, and not a claim that somebody has taken over."""
    scene = Scene()
    scene.store.next("replace", fault)
    told = Told()
    worker = scene.worker(instant, metrics=told)
    worker.deliver(*batch(1))

    scene.run()

    assert worker.answers == [[]]
    assert (told.counts["Completed"], told.counts["LostClaims"]) == (1, 0)


@pytest.mark.scenario("S17", mutant="one ok is all ok")
@pytest.mark.scenario("S18", mutant="what is in doubt is given up")
@pytest.mark.parametrize(
    "otherwise",
    [NotApplied("throttled", retry=True), Unknown("internal error"), Conflict(None)],
    ids=lambda one: one.why if hasattr(one, "why") else "conflict",
)
def test_of_a_batch_only_the_statement_in_trouble_is_asked_again(otherwise: object) -> None:
    """The 24 others have been claimed; the one that was in truth applied is recognised by its version."""
    scene = Scene()
    scene.store.next("insert", partly(*[True] * 24, False, otherwise=otherwise))
    worker = scene.worker(instant)
    worker.deliver(*batch(25))

    scene.run()

    assert worker.answers == [[]]
    assert len(scene.runs) == 25
    sizes = [size for name, size in scene.requests() if name in ("insert", "read")]
    assert sizes[0] == 25
    assert set(sizes[1:]) == {1}


@pytest.mark.scenario("S19", mutant="one ok is all ok")
def test_a_statement_that_can_never_be_applied_fails_its_message_alone() -> None:
    """The 24 others go on."""
    scene = Scene()

    def invalid(call: faults.Call) -> list[object]:
        return [*call.act()[:24], NotApplied("validation", retry=False)]

    scene.store.next("insert", invalid)
    scene.memory.items["24"] = {"id": "24", "status": "SOMETHING_NEWER"}
    worker = scene.worker(instant)
    worker.deliver(*batch(25))

    scene.run()

    assert worker.answers == [["24"]]
    assert len(scene.runs) == 24


# The store raises: a defect, of its own or ours or of what it was given.


@pytest.mark.parametrize("fault", [raises, raises_late])
@pytest.mark.parametrize("count", [1, 60])
def test_a_claim_that_the_store_raises_at_fails_its_message_at_once_and_runs_nothing(
    fault: faults.Fault, count: int
) -> None:
    """Though the claim may have been written: nobody knows, and after its lease the message comes to it again."""
    scene = Scene()
    scene.store.next("insert", *[fault] * 3)
    told = Told()
    worker = scene.worker(instant, logger=told)
    worker.deliver(*batch(count), seconds=900)
    scene.run()

    assert sorted(worker.answers[0]) == sorted(str(number) for number in range(count))
    assert scene.runs == []
    assert {name for name, _ in scene.requests()} == {"insert"}
    assert scene.world.now < 0.1
    assert {text for text, _ in told.errors} == {"not run: the record could not be claimed"}
    assert all(why.startswith("the store raised AttributeError at tests.simulation.faults.") for _, why in told.errors)
    assert "secret" not in str(told.errors)

    scene.store.mended()
    worker.deliver(*batch(count, receives=2), seconds=900, after=904)
    scene.run()

    assert worker.answers[1:] == [[]]


def test_a_read_that_the_store_raises_at_fails_its_messages_at_once() -> None:
    """And is not asked again."""
    scene = Scene()
    scene.store.next("read", raises)
    worker = scene.worker(instant)
    worker.deliver(*batch(3, receives=2), seconds=900)

    scene.run()

    assert [sorted(answer) for answer in worker.answers] == [["0", "1", "2"]]
    assert [name for name, _ in scene.requests()] == ["read"]


def test_a_commit_that_the_store_raises_at_fails_its_message_at_once_and_leaves_no_claim() -> None:
    """Three requests, no read among them and no pause, where the invocation was used up in consistent reads."""
    scene = Scene()
    scene.store.next("commit", *[raises] * 100)
    worker = scene.worker(posting)
    worker.deliver(*batch(1), seconds=8)
    scene.run()

    assert worker.answers == [["0"]]
    assert [name for name, _ in scene.requests()] == ["insert", "commit", "replace"]
    assert scene.world.now < 0.1
    assert posted(scene) == 0
    error = json.loads(scene.memory.items["0"]["error"])
    assert error["type"] == "TransactionNotCommitted"
    assert error["text"].startswith("the store raised AttributeError at tests.simulation.faults.raises:")


def test_a_commit_that_the_store_raises_at_once_it_is_done_is_found_done() -> None:
    """The failure names the claim's version, which is gone. COMPLETED stands there: the message is a success."""
    scene = Scene()
    scene.store.next("commit", raises_late)
    worker = scene.worker(posting)
    worker.deliver(*batch(1), seconds=8)

    scene.run()

    assert worker.answers == [[]]
    assert (scene.status("0"), posted(scene)) == ("COMPLETED", 1)
    assert [name for name, _ in scene.requests()] == ["insert", "commit", "replace"]


@pytest.mark.parametrize("fault", [raises, raises_late])
def test_a_completion_that_the_store_raises_at_is_no_success_at_once(fault: faults.Fault) -> None:
    """What is known to be recorded is acknowledged, and nothing else."""
    scene = Scene()
    scene.store.next("replace", fault)
    worker = scene.worker(instant)
    worker.deliver(*batch(1), seconds=8)

    scene.run()

    assert worker.answers == [["0"]]
    assert [name for name, _ in scene.requests()] == ["insert", "replace"]
    assert scene.world.now < 0.1


# The store is down.


@pytest.mark.scenario("S27", mutant="claiming is as patient as settling")
@pytest.mark.parametrize("receives", [1, 2])
@pytest.mark.parametrize("count", [1, 30, 1000])
def test_while_the_store_is_down_nothing_runs_and_every_id_comes_again_fast(count: int, receives: int) -> None:
    """Not at the deadline, but at once."""
    scene = Scene()
    scene.store.down()
    worker = scene.worker(instant)
    worker.deliver(*batch(count, receives=receives), seconds=900)

    scene.run()

    assert sorted(worker.answers[0]) == sorted(str(number) for number in range(count))
    assert scene.runs == []
    assert scene.world.now < 3


@pytest.mark.scenario("S27", mutant="what could not be claimed is told to nobody")
def test_denied_access_is_reported_at_once_without_any_further_try() -> None:
    """One request for each chunk that was under way, and no pause."""
    scene = Scene()
    scene.store.next("insert", *[denied] * 50)
    told = Told()
    worker = scene.worker(instant, logger=told)
    worker.deliver(*batch(1000), seconds=900)

    scene.run()

    assert len(worker.answers[0]) == 1000
    assert told.errors == [("not run: the record could not be claimed", "access denied")] * 1000
    assert scene.world.now < 0.1
    assert len(scene.requests()) <= 8


@pytest.mark.scenario("S70", mutant="a store's trouble backs off like a handler's")
def test_a_quarter_of_an_hour_without_a_table_uses_up_nobodys_five_receives() -> None:
    """Each message comes again when its visibility ends; by the fifth receive the table is back."""
    scene = Scene()
    worker = scene.worker(instant, queue_client=True)
    visible = {str(number): 0.0 for number in range(40)}
    receives = Counter[str]()
    scene.store.down()
    while visible:
        id = min(visible, key=lambda one: visible[one])
        at = max(visible.pop(id), scene.world.now)
        if at >= 15 * 60:
            scene.store.up()
        receives[id] += 1
        worker.deliver(sqs_record(id, receives=receives[id]), after=at - scene.world.now)
        scene.run()
        if worker.answers[-1] == [id]:
            visible[id] = scene.world.now + scene.sqs.visibilities[id]

    assert sorted(scene.keys_run) == sorted(receives)
    assert max(receives.values()) <= 5


@pytest.mark.scenario("S28", mutant="settling gives up as early as claiming")
def test_a_store_that_goes_down_after_the_claims_is_told_as_soon_as_it_is_back() -> None:
    """An effect is done and wants to be recorded: settling goes on to the deadline."""
    scene = Scene()
    worker = scene.worker(instant)
    worker.deliver(*batch(3), seconds=30)
    scene.world.spawn(scene.store.down, after=0.006)
    scene.world.spawn(scene.store.up, after=20)

    scene.run()

    assert worker.answers == [[]]
    assert len(scene.runs) == 3


@pytest.mark.scenario("S28", mutant="acknowledged although it could not be recorded")
def test_a_store_that_stays_down_after_the_claims_leaves_failures_and_an_orphan_for_later() -> None:
    """The answer leaves in time; after the lease the next delivery takes it over and acknowledges it."""
    scene = Scene()
    worker = scene.worker(instant)
    worker.deliver(*batch(3), seconds=10)
    scene.world.spawn(scene.store.down, after=0.006)
    scene.run()
    assert worker.answers == [["0", "1", "2"]]
    assert scene.world.now < 10

    scene.store.up()
    again = scene.worker(instant)
    again.deliver(*batch(3, receives=2), after=13 - scene.world.now + 0.1)
    scene.run()

    assert again.answers == [[]]
    assert [run.attempt for run in scene.runs] == [1, 1, 1, 2, 2, 2]


@pytest.mark.scenario("S29", mutant="what is refused for good is tried again")
def test_a_completion_that_is_denied_fails_its_message_and_is_not_tried_for_ever() -> None:
    """A missing permission is no trouble that passes."""
    scene = Scene()
    scene.store.next("replace", denied)
    told = Told()
    worker = scene.worker(instant, metrics=told)
    worker.deliver(*batch(1), seconds=900)

    scene.run()

    assert worker.answers == [["0"]]
    assert scene.world.now < 0.1
    assert told.counts["Unsettled"] == 1


@pytest.mark.scenario("S26", mutant="what is in doubt is given up")
def test_a_release_that_meets_an_internal_error_is_sent_again() -> None:
    """A message is not locked for a whole lease because of one bad answer."""
    scene = Scene()
    scene.store.next("replace", works, lost_request, lost_request)

    def slow(body: dict, message: Message) -> None:
        scene.world.sleep(0.5 if message.id == "0" else 2)

    worker = scene.worker(slow)
    worker.deliver(*batch(3), seconds=5)
    scene.run()

    assert worker.answers == [["2"]]
    assert [name for name, _ in scene.requests()].count("replace") == 4
    assert scene.live_claims() == []


# Delays and crashes.


@pytest.mark.scenario("S05", mutant="an insert over what is there")
def test_a_claim_delayed_on_the_wire_changes_nothing_that_came_after_it() -> None:
    """Its re-send was applied and completed; the old request arrives and is refused."""
    scene = Scene()
    scene.store.next("insert", delivered_later(60))
    worker = scene.worker(instant)
    worker.deliver(*batch(1))

    scene.run()

    assert worker.answers == [[]]
    assert scene.status("0") == "COMPLETED"


@pytest.mark.scenario("S05", mutant="an insert over what is there")
def test_a_claim_delayed_on_the_wire_leaves_no_ghost_after_a_release() -> None:
    """A released record stays where it is, so that the old request finds the key taken."""
    scene = Scene()

    def slow(body: dict) -> None:
        scene.world.sleep(2)

    scene.store.next("insert", delivered_later(60))
    worker = scene.worker(slow)
    worker.deliver(*batch(2), seconds=4)
    scene.run()
    again = scene.worker(instant)
    again.deliver(*batch(2, receives=2))
    scene.run()

    assert worker.answers == [["1"]]
    assert scene.live_claims() == []
    assert again.answers == [[]]


@pytest.mark.scenario("S05", mutant="a take-over without compare-and-swap")
def test_a_take_over_delayed_on_the_wire_does_not_claim_a_failed_record_again() -> None:
    """Every write names the version that it replaces: no ghost holds the key afterwards."""
    scene = Scene()

    def fails(body: dict) -> None:
        raise RuntimeError

    first = scene.worker(fails)
    first.deliver(*batch(1))
    scene.run()
    scene.store.next("replace", delivered_later(60))
    second = scene.worker(fails)
    second.deliver(*batch(1, receives=2))

    scene.run()

    assert second.answers == [["0"]]
    assert scene.status("0") == "FAILED"
    assert scene.live_claims() == []


def test_a_completion_whose_copy_arrives_after_a_redelivery_changes_nothing() -> None:
    """Neither the record nor anybody's answer."""
    scene = Scene()
    scene.store.next("replace", delivered_again(5))
    first = scene.worker(instant)
    first.deliver(*batch(1))
    second = scene.worker(instant)
    second.deliver(*batch(1, receives=2), after=1)

    scene.run()

    assert (first.answers, second.answers) == ([[]], [[]])
    assert scene.keys_run == ["0"]


@pytest.mark.scenario("S04", mutant="a settlement names no version")
def test_a_completion_of_a_dead_worker_that_arrives_after_a_take_over_is_refused() -> None:
    """Killed with its completion on the wire; the record is the new owner's."""
    scene = Scene()
    victim = scene.worker(instant)

    def on_the_wire(call: faults.Call) -> object:
        call.world.spawn(call.act, after=50)
        return crash(partial(scene.kill, victim), applied=False)(call)

    scene.store.next("replace", on_the_wire)
    victim.deliver(*batch(1), seconds=10)
    survivor = scene.worker(instant)
    survivor.deliver(*batch(1, receives=2), after=20)

    scene.run()

    assert survivor.answers == [[]]
    assert scene.memory.items["0"]["owner"] == "w1"
    assert [run.worker for run in scene.runs] == ["w0", "w1"]


@pytest.mark.scenario("S12", mutant="a claim's version is its owner")
def test_a_late_write_of_a_warm_processs_first_invocation_does_not_disturb_its_second() -> None:
    """The process was frozen with its completion on the wire; the owner is the same, and every version another."""
    scene = Scene()

    def hanging(call: faults.Call) -> None:
        call.world.spawn(call.act, after=20)
        call.world.sleep(1000)

    def slow_at_last(body: dict, message: Message) -> int:
        scene.world.sleep(12 if message.receive_count == 2 else 0)
        return message.receive_count

    worker = scene.worker(slow_at_last)
    scene.store.next("replace", hanging)
    worker.deliver(*batch(1), seconds=10)
    worker.deliver(*batch(1, receives=2), after=14)

    scene.run()

    assert worker.answers == [["0"], []]
    assert [run.attempt for run in scene.runs] == [1, 2]
    assert (scene.memory.items["0"]["attempts"], scene.memory.items["0"]["data"]) == (2, "2")


@pytest.mark.scenario("S36", mutant="an orphan waits for its record's expiration")
@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("call", ["insert", "replace"])
def test_a_worker_that_dies_at_any_store_call_is_recovered_after_its_lease(call: str, applied: bool) -> None:
    """What was completed is acknowledged without a run; the rest runs again, once its lease is over and not before."""
    scene = Scene()
    victim = scene.worker(instant)
    scene.store.next(call, crash(partial(scene.kill, victim), applied=applied))
    victim.deliver(*batch(3), seconds=10)
    early, late = scene.worker(instant), scene.worker(instant)
    early.deliver(*batch(3, receives=2), after=5)
    late.deliver(*batch(3, receives=3), after=14)

    scene.run()

    assert victim.answers == []
    done_already = call == "replace" and applied
    nothing_claimed = call == "insert" and not applied
    assert early.answers == ([[]] if done_already or nothing_claimed else [["0", "1", "2"]])
    assert late.answers == [[]]
    assert len(scene.runs) == (6 if (call, applied) == ("replace", False) else 3)


@pytest.mark.scenario("S36", mutant="an orphan waits for its record's expiration")
@pytest.mark.parametrize("applied", [False, True])
def test_a_worker_that_dies_at_its_commit_leaves_all_of_it_or_nothing(applied: bool) -> None:
    """And the items are written once."""
    scene = Scene()
    victim = scene.worker(posting)
    scene.store.next("commit", crash(partial(scene.kill, victim), applied=applied))
    victim.deliver(*batch(1), seconds=10)
    late = scene.worker(posting)
    late.deliver(*batch(1, receives=2), after=14)

    scene.run()

    assert late.answers == [[]]
    assert posted(scene) == 1
    assert len(scene.runs) == (1 if applied else 2)


@pytest.mark.scenario("S24", mutant="a completed record may be claimed")
def test_a_crash_in_the_middle_of_a_group_commit_keeps_what_was_written() -> None:
    """Of 25 statements twelve were applied: twelve are acknowledged as duplicates, thirteen run again."""
    scene = Scene()
    victim = scene.worker(instant)

    def half(call: faults.Call) -> object:
        held = scene.memory.items.copy()
        call.act()
        for id in list(scene.memory.items)[12:]:
            scene.memory.items[id] = held[id]
        return crash(partial(scene.kill, victim), applied=False)(call)

    scene.store.next("replace", half)
    victim.deliver(*batch(25), seconds=10)
    early, late = scene.worker(instant), scene.worker(instant)
    early.deliver(*batch(25, receives=2), after=12)
    late.deliver(*batch(25, receives=3), after=14)

    scene.run()

    assert [len(failed) for failed in early.answers] == [13]
    assert late.answers == [[]]
    assert [run.worker for run in scene.runs[25:]] == [late.name] * 13


# Fencing.


def zombie_and_taker(
    scene: Scene, zombie_function: Handler, taker_function: Handler = instant
) -> tuple[Worker, Worker]:
    """A worker at a long run, and one that takes its message over, for its clock is a minute ahead."""
    zombie, taker = scene.worker(zombie_function), scene.worker(taker_function, skew_seconds=60)
    zombie.deliver(*batch(1), seconds=20)
    taker.deliver(*batch(1, receives=2), after=6)
    scene.dead.add(zombie.name)
    return zombie, taker


@pytest.mark.scenario("S01", mutant="a settlement names no version")
def test_a_zombie_that_completes_while_another_holds_its_key_is_refused() -> None:
    """It does not acknowledge, and the other's claim stands."""
    scene = Scene()

    def slow(body: dict) -> None:
        scene.world.sleep(7)

    def slower(body: dict) -> str:
        scene.world.sleep(2)
        return "mine"

    zombie, taker = zombie_and_taker(scene, slow, slower)
    scene.run()

    assert zombie.answers == [["0"]]
    assert taker.answers == [[]]
    assert scene.memory.items["0"]["data"] == '"mine"'


@pytest.mark.scenario("S02", mutant="a settlement names no version")
def test_a_zombie_that_fails_while_another_holds_its_key_changes_nothing() -> None:
    """Neither does it free the key for a third, and the other completes as if nothing had been."""
    scene = Scene()

    def slow(body: dict) -> None:
        scene.world.sleep(7)
        raise RuntimeError

    def slower(body: dict) -> None:
        scene.world.sleep(2)

    zombie, taker = zombie_and_taker(scene, slow, slower)
    third = scene.worker(instant)
    third.deliver(*batch(1, receives=3), after=7.5)
    scene.run()

    assert zombie.answers == [["0"]]
    assert third.answers == [["0"]]
    assert taker.answers == [[]]
    assert scene.memory.items["0"]["owner"] == "w1"


@pytest.mark.scenario("S03", mutant="a settlement replaces whatever is there")
@pytest.mark.parametrize("fails", [False, True])
def test_a_zombie_that_ends_after_another_has_completed_acknowledges_and_changes_nothing(fails: bool) -> None:
    """The effect is done, and the record says whose."""
    scene = Scene()

    def slow(body: dict) -> None:
        scene.world.sleep(7)
        if fails:
            raise RuntimeError

    zombie, taker = zombie_and_taker(scene, slow)
    scene.run()

    assert zombie.answers == [[]]
    assert taker.answers == [[]]
    assert scene.memory.items["0"]["owner"] == "w1"


@pytest.mark.scenario("S31", mutant="a transaction does not ask whether its claim stands")
def test_a_zombies_transaction_leaves_nothing_visible() -> None:
    """Its claim is gone, so none of its writes happens."""
    scene = Scene()

    def slow(body: dict, tx: Transaction) -> None:
        tx.put(TableName="Entries", Item={"id": "zombie"})
        scene.world.sleep(7)

    zombie, taker = zombie_and_taker(scene, slow, posting)
    scene.run()

    assert (zombie.answers, taker.answers) == ([[]], [[]])
    assert list(scene.memory.tables["Entries"].items) == [("0",)]


@pytest.mark.scenario("S06", mutant="a take-over without compare-and-swap")
def test_of_three_workers_two_see_one_stale_claim_and_one_takes_it_over() -> None:
    """The other's take-over was built on what is no longer there."""
    scene = Scene()
    dead = scene.worker(instant)
    scene.store.next("replace", crash(partial(scene.kill, dead), applied=False))
    dead.deliver(*batch(1), seconds=2)

    def slow(body: dict) -> None:
        scene.world.sleep(1)

    takers = [scene.worker(slow) for _ in range(2)]
    for taker in takers:
        taker.deliver(*batch(1, receives=2), after=10)

    scene.run()

    assert dead.answers == []
    assert sorted(taker.answers for taker in takers) == [[[]], [["0"]]]
    assert len(scene.runs) == 2


@pytest.mark.scenario("S63", mutant="a settlement names no version")
def test_a_late_completion_beats_a_take_over_that_has_already_read() -> None:
    """The taker's version is gone: it reads again, finds the record completed, and acknowledges without a run."""
    scene = Scene()
    worker = scene.worker(instant, lease_margin_seconds=0)
    scene.store.next("replace", delivered_later(5.0085, crash(lambda: scene.kill(worker), applied=False)))
    worker.deliver(*batch(1), seconds=3)
    taker = scene.worker(instant)
    taker.deliver(*batch(1, receives=2), after=5.01)

    scene.run()

    assert taker.answers == [[]]
    assert [run.worker for run in scene.runs] == ["w0"]
    assert scene.requests()[-2:] == [("read", 1), ("replace", 1)]


@pytest.mark.scenario("S64", mutant="a settlement names no version")
def test_a_transaction_delayed_on_the_wire_is_refused_once_its_record_has_failed() -> None:
    """Attempt one's request arrives after the retry was refused as overdrawn: nothing of it becomes visible."""
    scene = Scene()
    scene.memory.tables.clear()

    def overdrawing(body: dict, tx: Transaction) -> None:
        tx.put(TableName="Entries", Item={"id": "1"})
        tx.check(TableName="Entries", Key={"id": "payer"}, ConditionExpression="attribute_exists(id)")

    scene.store.next("commit", delivered_later(60))
    worker = scene.worker(overdrawing)
    worker.deliver(*batch(1))
    scene.world.spawn(lambda: scene.memory.tables["Entries"].items.update({("payer",): {"id": "payer"}}), after=30)

    scene.run()

    assert worker.answers == [["0"]]
    assert scene.status("0") == "FAILED"
    assert list(scene.memory.tables["Entries"].items) == [("payer",)]


@pytest.mark.scenario("S61", mutant="an expired record is honoured")
def test_an_expired_record_counts_as_absent_although_it_is_still_there() -> None:
    """TTL deletes days late; the attribute decides."""
    scene = Scene()
    worker = scene.worker(instant, retention_seconds=86_400)
    worker.deliver(*batch(1))
    worker.deliver(*batch(1, receives=2), after=86_300)
    worker.deliver(*batch(1, receives=3), after=86_402)

    scene.run()

    assert worker.answers == [[], [], []]
    assert [run.started < 1 for run in scene.runs] == [True, False]
    assert [run.attempt for run in scene.runs] == [1, 1]


@pytest.mark.scenario("S21", mutant="what is in the way is taken for nothing")
def test_a_record_that_ttl_deletes_between_a_refused_insert_and_the_read_is_inserted_anew() -> None:
    """It was in the way, and then it was gone: the message is claimed and run in the same invocation."""
    scene = Scene()
    scene.memory.items["0"] = {"id": "0", "status": "COMPLETED", "version": "old", "expiration": 1}

    def deleted(call: faults.Call) -> object:
        scene.memory.items.clear()
        return call.act()

    scene.store.next("insert", lambda call: [Conflict(None) for _ in call.act()])
    scene.store.next("read", deleted)
    worker = scene.worker(instant)
    worker.deliver(*batch(1))

    scene.run()

    assert worker.answers == [[]]
    assert [(run.key, run.attempt) for run in scene.runs] == [("0", 1)]
    assert [name for name, _ in scene.requests()] == ["insert", "read", "insert", "replace"]


@pytest.mark.scenario("S21", mutant="a wish may lose for ever")
def test_a_record_that_is_always_in_the_way_and_never_there_fails_its_message_in_bounded_requests() -> None:
    """Neither acknowledged nor run unclaimed, and long before the deadline."""
    scene = Scene()
    scene.store.next("insert", *[lambda call: [Conflict(None)]] * 10_000)
    worker = scene.worker(instant)
    worker.deliver(*batch(1), seconds=60)

    scene.run()

    assert worker.answers == [["0"]]
    assert scene.runs == []
    assert len(scene.requests()) <= 2 * (12 + 4)


@pytest.mark.scenario("S22", mutant="a settlement names no version")
def test_a_take_over_that_is_built_on_a_stale_read_is_refused() -> None:
    """An old image says that the lease is over; the record has been completed since, and is found so."""
    scene = Scene()
    worker = scene.worker(instant, lease_margin_seconds=0)
    old: list[object] = []
    scene.store.next("replace", lambda call: [old.extend(scene.memory.read(["0"])), call.act()][1])
    worker.deliver(*batch(1), seconds=3)
    taker = scene.worker(instant)
    scene.world.spawn(lambda: scene.store.next("read", lambda call: [call.act(), list(old)][1]), after=3.9)
    taker.deliver(*batch(1, receives=2), after=4)

    scene.run()

    assert taker.answers == [[]]
    assert scene.keys_run == ["0"]
    assert scene.requests()[-2:] == [("read", 1), ("replace", 1)]


@pytest.mark.scenario("S23", mutant="unread is free")
def test_what_a_read_left_out_fails_or_is_read_again_and_is_never_assumed() -> None:
    """Of three known messages one is never answered: it alone comes again, and nothing is written for it."""
    scene = Scene()
    scene.worker(instant).deliver(*batch(3))
    scene.run()
    before = dict(scene.memory.items["1"])
    scene.requests()

    def without_the_second(call: faults.Call) -> object:
        return [Unknown("unprocessed") if record.id == "1" else record for record in call.act()]  # type: ignore[union-attr]

    scene.store.next("read", *[without_the_second] * 100)
    worker = scene.worker(instant)
    worker.deliver(*batch(3, receives=2))

    scene.run()

    assert worker.answers == [["1"]]
    assert scene.memory.items["1"] == before
    assert {name for name, _ in scene.requests()} == {"read"}


def test_a_record_that_is_deleted_while_its_handler_runs_is_not_resurrected() -> None:
    """The message comes again, and runs under a claim of its own."""
    scene = Scene()

    def forgetting(body: dict, message: Message) -> None:
        if message.receive_count == 1:
            scene.memory.items.clear()

    worker = scene.worker(forgetting)
    worker.deliver(*batch(1))
    scene.run()
    assert worker.answers == [["0"]]
    assert scene.memory.items == {}

    worker.deliver(*batch(1, receives=2))
    scene.run()
    assert worker.answers[1:] == [[]]


@pytest.mark.scenario("S46", mutant="what is done is remembered by the process")
def test_what_a_process_has_completed_is_asked_of_the_table_all_the_same() -> None:
    """Nothing is remembered: where an operator has deleted the record, the message is one that has never come."""
    scene = Scene()

    def failing_once_more(body: dict, message: Message) -> None:
        if message.receive_count == 2:
            raise RuntimeError

    worker = scene.worker(failing_once_more)
    worker.deliver(*batch(1))
    scene.run()
    scene.memory.items.clear()
    worker.deliver(*batch(1, receives=2))
    scene.run()

    assert worker.answers == [[], ["0"]]
    assert [run.attempt for run in scene.runs] == [1, 1]


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
def test_a_record_that_we_do_not_know_fails_its_message_and_is_left_untouched(item: dict, receives: int) -> None:
    """Neither run nor acknowledged nor overwritten."""
    scene = Scene()
    scene.memory.items["0"] = {"id": "0", **item}
    worker = scene.worker(instant)
    worker.deliver(*batch(2, receives=receives))

    scene.run()

    assert worker.answers == [["0"]]
    assert scene.memory.items["0"] == {"id": "0", **item}
    assert scene.keys_run == ["1"]


def test_a_record_that_powertools_completed_is_acknowledged_without_a_run() -> None:
    """A migration runs nothing twice; what it left in progress is taken over when its lease ends."""
    scene = Scene()
    soon = int(scene.epoch_seconds) + 3600
    scene.memory.items["0"] = {"id": "0", "status": "COMPLETED", "expiration": soon, "data": "1"}
    lease = int(scene.epoch_seconds * 1000) + 5000
    scene.memory.items["1"] = {"id": "1", "status": "INPROGRESS", "expiration": soon, "in_progress_expiration": lease}
    worker = scene.worker(instant)
    worker.deliver(*batch(2, receives=2))
    worker.deliver(*batch(2, receives=3), after=5.1)

    scene.run()

    assert worker.answers == [["1"], []]
    assert scene.keys_run == ["1"]


def test_powertools_finishing_first_refuses_our_take_over() -> None:
    """It writes no version, so its status and its ends are what must stand."""
    scene = Scene()
    soon = int(scene.epoch_seconds) + 3600
    item = {"id": "0", "status": "INPROGRESS", "expiration": soon, "in_progress_expiration": 1}
    scene.memory.items["0"] = item
    worker = scene.worker(instant)
    worker.deliver(*batch(1, receives=2))
    scene.world.spawn(
        lambda: scene.memory.items.update({"0": item | {"status": "COMPLETED", "data": "1"}}), after=0.006
    )

    scene.run()

    assert worker.answers == [[]]
    assert scene.runs == []
