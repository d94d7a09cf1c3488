"""The judgement of `explore`, piece by piece: each is given the run that it must tell from the fault-free one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import MemoryStore, Transaction, sqs_consumer
from idempotent_receiver.testing import Table, baseline, findings, inputs, plugin, sqs_event
from idempotent_receiver.testing.baseline import Baseline, subtracted
from idempotent_receiver.testing.calls import Call
from idempotent_receiver.testing.clients import WorkerLog, WorkerQueue, WorkerStore
from idempotent_receiver.testing.explored_run import ExploredRun
from idempotent_receiver.testing.network import THROTTLED, UNKNOWN, Network
from idempotent_receiver.testing.report import Called, Exploration, Violation
from idempotent_receiver.testing.schedule import Decisions, Schedule
from idempotent_receiver.testing.search import Search
from idempotent_receiver.testing.setup import Setup, received
from idempotent_receiver.testing.varying import without
from idempotent_receiver.transaction.outbox import STAMP
from tests.unit.testing.handlers import services

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BODIES = [{"order": "o-1"}, {"order": "o-2"}]


@sqs_consumer(MemoryStore())
def consumer(order: dict, tx: Transaction) -> None:
    """It is never run here."""


def setup_of(*, event: object = BODIES[:1], workers: int = 2, **options: Any) -> Setup:
    handler = consumer if not options else sqs_consumer(MemoryStore(), **options)(consumer.__wrapped__)
    return Setup(
        handler=handler,
        consumer=inputs.consumer_in(handler),
        records=inputs.records(event),
        tables=None,
        state={},
        workers=workers,
        seconds=30,
        make_store=MemoryStore,
    )


def charge(key: str | None = "k", message: str | None = "message-1", name: str = "charge", **given: Any) -> Call:
    return Call(name, (), {}, key, message, 1, run=1, given=given)


def run_of(*calls: Call, refused: Sequence[Call] = (), event: object = BODIES[:1], **found: Any) -> ExploredRun:
    """A run in which everything is completed, with these calls, and with what else is `found`."""
    run = ExploredRun(setup_of(event=event, **found.pop("options", {})), Schedule())
    run.calls, run.refused = [*calls], [*refused]
    run.ends = dict.fromkeys(run.setup.record_ids, "completed")
    run.results = dict.fromkeys(run.setup.record_ids)
    for name, value in found.items():
        setattr(run, name, value)
    return run


def told(run: ExploredRun, wanted: ExploredRun, unstable: frozenset[str] = frozenset()) -> dict[str, str]:
    """The remedy of each finding, by its subject."""
    known: Any = SimpleNamespace(run=wanted, unstable=unstable)
    return {one.subject: one.remedy for one in findings.all_of(run, known)}


TWO_CALLS = [charge("k-1"), charge("k-2")]
A, B = {"order": "a"}, {"order": "b"}
JUDGED: dict[str, tuple[ExploredRun, ExploredRun, set[str]]] = {
    "the same": (run_of(*TWO_CALLS), run_of(*TWO_CALLS), set()),
    "one call of two": (run_of(TWO_CALLS[0]), run_of(*TWO_CALLS), {"missing charge"}),
    "one call of two, because the other was refused": (
        run_of(TWO_CALLS[0], refused=[TWO_CALLS[1]]),
        run_of(*TWO_CALLS),
        {"refused charge"},
    ),
    "refused, with another result": (
        run_of(TWO_CALLS[0], refused=[TWO_CALLS[1]], results={"message-1": "declined"}),
        run_of(*TWO_CALLS),
        set(),
    ),
    "refused, and made up for": (
        run_of(charge(name="refund"), refused=[charge()]),
        run_of(charge()),
        set(),
    ),
    "another call": (run_of(charge(), charge(name="refund")), run_of(charge()), {"additional refund"}),
    "one item of two equal ones": (
        run_of(tables={"orders": [A]}),
        run_of(tables={"orders": [A, A]}),
        {"table orders"},
    ),
    "two equal items": (run_of(tables={"orders": [A, A]}), run_of(tables={"orders": [A]}), {"table orders"}),
    "other state": (run_of(state={"seen": {1}}), run_of(state={"seen": {1, 2}}), {"state seen"}),
}


@pytest.mark.parametrize("name", JUDGED)
def test_a_run_is_told_from_the_fault_free_one_by_numbers_too(name: str) -> None:
    run, wanted, expected = JUDGED[name]
    assert {*told(run, wanted)} == expected


def test_the_remedy_fits_the_consumer_and_its_messages() -> None:
    keyless = [charge(None), charge(None)]
    for effects, remedy in (("any", "pass message.idempotency_key"), ("transaction", "write it through the Trans")):
        options: dict[str, Any] = {"options": {"effects": effects}} if effects != "any" else {}
        assert told(run_of(*keyless, **options), run_of(charge(None)))["call charge"].startswith(remedy)
    in_order = sqs_event(*BODIES, fifo=True)
    repeats = "a later attempt must be able"
    for event, remedy in ((BODIES, "SQS can deliver"), (BODIES[:1], repeats), (in_order, repeats)):
        run = run_of(event=event)
        run.ends = {**run.ends, "message-1": "dead letter"}
        assert told(run, run_of(event=event))["end message-1"].startswith(remedy)


# What the fault-free runs have in common.


def compared(*runs: ExploredRun) -> Baseline:
    """The baseline of these runs, of which the last is repeated."""
    left = [*runs]
    return Baseline(lambda: left.pop(0) if len(left) > 1 else left[0])


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long is waited for a second that differs."""
    seconds: list[float] = []
    monkeypatch.setattr(baseline.SystemClock, "sleep", lambda self, some: seconds.append(some))
    return seconds


@pytest.mark.parametrize(
    ("one", "other", "why"),
    [
        (run_of(tables={"orders": [A, B]}), run_of(tables={"orders": [A]}), "holds 2 items after one run, 1 after"),
        (run_of(charge()), run_of(charge(name="refund")), "one run calls charge; the next calls refund"),
        (run_of(), run_of(ends={"message-1": "failed for good"}), "the messages end as"),
    ],
)
def test_runs_that_differ_in_more_than_values_are_not_repeatable(
    one: ExploredRun, other: ExploredRun, why: str
) -> None:
    assert why in str(compared(one, other).unrepeatable)


@pytest.mark.parametrize("kind", ["tables", "state", "results", "calls"])
def test_values_that_vary_in_any_place_are_not_compared(kind: str) -> None:
    """Each run has another value, so each time is a new one."""

    def run(at: int) -> ExploredRun:
        values: Mapping[str, Any] = {
            "tables": {"orders": [{"order": "a", "at": at}]},
            "state": {"seen": {"at": at}},
            "results": {"message-1": {"at": at}},
            "calls": [charge(at=at)],
        }
        return run_of(**{kind: values[kind]})

    runs = iter(map(run, range(9)))
    found = Baseline(lambda: next(runs))
    place = {"tables": "orders.at", "state": "seen.at", "results": "result of message-1.at", "calls": "charge(at"}
    assert (found.unrepeatable, found.unstable) == (None, {place[kind]})
    assert told(run(9), found.run, found.unstable) == {}


def test_what_is_right_only_the_first_time_is_not_a_value_that_varies(slept: list[float]) -> None:
    """As a cache that is filled by then. Whoever looks must not miss a second that has just begun."""
    first, later = (run_of(state={"cache": {"filled": filled}}) for filled in (False, True))
    found = compared(first, later)
    assert found.unrepeatable == "cache.filled is correct only the first time"
    assert slept == [baseline.TICK_SECONDS]


def test_a_second_look_is_a_second_later_and_the_last_and_adds_to_the_first(slept: list[float]) -> None:
    def run(id: int, at: int) -> ExploredRun:
        return run_of(state={"journal": {"id": id, "at": at}})

    runs = iter([run(0, 0), run(1, 0), run(2, 0), run(0, 1), run(3, 2)])
    found = Baseline(lambda: next(runs))
    assert found.unstable == {"journal.id"}
    assert found.look_again()
    assert (slept, found.unstable) == ([baseline.TICK_SECONDS], {"journal.id", "journal.at"})
    assert [*runs] == []
    runs = iter([run(0, 0), run(0, 0)])
    assert not found.look_again()


def test_each_of_several_equal_items_counts() -> None:
    assert (subtracted([1, 1, 2], [1]), subtracted([1], [1, 1])) == ([1, 2], [])


def test_a_text_that_varies_may_have_any_length() -> None:
    assert without({"text": "abc"}, {"at.text"}, "at") == without({"text": "a"}, {"at.text"}, "at")


# What goes wrong on the way.


class Networks:
    """A network on which one request after another gets its decision; workers go on after a crash."""

    def __init__(self, *chosen: str | None) -> None:
        decisions = iter(chosen)
        self.killed: list[str] = []
        self.done: list[str] = []
        world: Any = SimpleNamespace(sleep=lambda seconds: None, stop=lambda: None)
        self.decisions: Any = SimpleNamespace(choose=lambda *offered: next(decisions, None), delay=lambda: 1.0)
        self.network = Network(world, self.decisions, [])

    def worker(self, name: str) -> Any:
        return SimpleNamespace(name=name, kill=lambda: self.killed.append(name))

    def write(self, name: str = "A") -> Any:
        (answer,) = self.network.write(self.worker(name), "insert", "claims", 1, lambda: [self.done.append(name)])
        return answer


@pytest.mark.parametrize(("chosen", "requests"), [("late-2", 2), ("late-3", 3), ("crash-late-4", 4)])
def test_a_late_write_arrives_just_before_the_request_that_its_name_says(chosen: str, requests: int) -> None:
    """Its worker gets no answer, and is dead by then if it crashed."""
    networks = Networks(chosen)
    assert networks.write("A") == UNKNOWN
    for _ in range(requests - 1):
        networks.write("B")
    assert networks.done == ["B"] * (requests - 1)
    networks.write("B")
    assert networks.done[-2:] == ["A", "B"]
    assert networks.killed == (["A"] if chosen.startswith("crash") else [])


def test_nothing_is_written_by_a_throttled_request_nor_known_of_one_without_an_answer() -> None:
    networks = Networks("refused", "timeout")
    assert (networks.write(), networks.write(), networks.done) == (THROTTLED, UNKNOWN, [])
    read = Networks("timeout").network.read(networks.worker("A"), "reads", 2, lambda: [None, None])
    assert read == [UNKNOWN, UNKNOWN]


def test_only_beside_another_worker_is_a_request_slow_and_a_dead_one_is_none() -> None:
    networks = Networks()
    network = networks.network
    network.under_way.add("A")
    assert "slow" not in network.offered("lost")
    network.under_way.add("B")
    network.running.update({("A", "k"): 1, ("B", "k"): 1})
    assert "slow" in network.offered("lost")
    network.gone(networks.worker("B"))
    assert (network.under_way, {*network.running}, network.offered("lost")) == ({"A"}, {("A", "k")}, ("lost",))


# A worker's clients.


def stamp(key: str, original: str = "message-1") -> dict[str, Any]:
    return {STAMP: {"StringValue": f'{{"key": "{key}", "original_id": "{original}"}}', "DataType": "String"}}


@pytest.fixture
def worker() -> Any:
    run = run_of()
    run.memory = MemoryStore(tables={"orders": Table("order")})
    run.network = Networks().network
    return SimpleNamespace(name="A", run=run)


def test_a_dead_letter_goes_by_the_id_under_which_it_came(worker: Any) -> None:
    WorkerQueue(worker).send_message(MessageAttributes=stamp("order-1"))
    assert worker.run.network.dead_letters == {"message-1"}


def test_a_message_that_is_sent_again_is_one_effect(worker: Any) -> None:
    assert not worker.run.touched
    entry = {"Id": "0", "MessageBody": "sold", "MessageAttributes": stamp("k-0")}
    for again in range(2):
        sent = [{**entry, "MessageDeduplicationId": str(again)}]
        WorkerQueue(worker).send_message_batch(QueueUrl="https://sqs/mail", Entries=sent)
    found = [(item["key"], item["MessageBody"]) for item in worker.run.memory.tables["messages sent"].items.values()]
    assert (found, worker.run.touched) == ([("k-0", "sold")], True)


def test_what_a_handler_reads_is_seen_and_why_it_failed_is_told(worker: Any) -> None:
    WorkerStore(worker, worker.run.setup).get("orders", {"order": "o-1"})
    assert worker.run.touched
    log = WorkerLog(worker)
    log.error("failed", extra={"message_id": "message-1", "error_type": "ValueError", "reason": "no such customer"})
    assert worker.run.why == {"message-1": "ValueError: no such customer"}
    log.error("not run", extra={"message_id": "message-1", "why": "the store did not answer"})
    assert worker.run.why == {"message-1": "the store did not answer"}


# What is told.


def test_a_violation_says_what_to_do_and_how_to_play_it_again() -> None:
    lines = str(Violation("charged twice", "pass a key", ("A crashes",), "3:lost")).splitlines()
    assert lines == [
        *("charged twice", "  1. A crashes"),
        *("  Remedy: pass a key.", '  Replay: explore(..., replay="3:lost")'),
    ]


def test_a_report_counts_calls_and_keys_and_says_what_it_lacks() -> None:
    calls = [Called("charge", "m", 3, 0), Called("refund", "m", 3, 1), Called("mail", "m", 3, 2)]
    found = str(Exploration(schedules=5, complete=False, calls=calls, unstable=["orders.at"])).splitlines()
    assert found == [
        "5 schedules, but not all",
        "charge for m: at least once, at most 3 times, without a key",
        "refund for m: at least once, at most 3 times, same key",
        "mail for m: at least once, at most 3 times, 2 keys",
        "not compared, because it varies between runs: orders.at",
    ]
    assert str(Exploration(schedules=5, complete=True)) == "5 schedules"


def test_the_most_calls_and_keys_of_any_schedule_are_counted() -> None:
    runs: Any = SimpleNamespace()
    search = Search(runs, faults=1, most_schedules=9, requests=[])
    for calls in (TWO_CALLS, TWO_CALLS[:1]):
        search._count(run_of(*calls))
    assert search._calls == {("charge", "message-1"): (2, 2)}


# What is played.


@pytest.mark.parametrize("text", ["3:crash-after,4", "3:", ":lost", "three:lost", "3:lost,x"])
def test_a_replay_that_is_not_whole_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="replay must be copied from a finding"):
        Schedule.parsed(text)


@pytest.mark.parametrize(
    ("replay", "diverged"), [("0:lost", False), ("0:slow", True), ("7:lost", True), ("0:lost,7:lost", True)]
)
def test_a_replay_that_does_not_fit_the_handler_is_noticed(replay: str, diverged: bool) -> None:
    decisions = Decisions(Schedule.parsed(replay))
    decisions.choose("insert", "A claims", ("lost",))
    assert decisions.diverged is diverged


def test_of_two_slow_calls_the_second_waits_for_longer() -> None:
    decisions = Decisions(Schedule())
    assert [decisions.delay() for _ in range(3)] == [1.0, 2.0, 4.0]


def test_a_fifo_group_is_dealt_to_one_worker() -> None:
    event = sqs_event("a", "b", "c", fifo=True, groups=["x", "x", "y"])
    ids = [[one["messageId"] for one in part] for part in setup_of(event=event).dealt()]
    assert ids == [["message-1", "message-2"], ["message-3"]]
    standard = setup_of(event=sqs_event("a", "b", "c")).dealt()
    assert [len(part) for part in standard] == [2, 1]


def test_each_receive_has_its_own_receipt() -> None:
    (record,) = inputs.records(BODIES[:1])
    assert received(record, 1)["receiptHandle"] != received(record, 2)["receiptHandle"]


def test_a_handler_that_changes_state_alone_has_an_effect() -> None:
    run = run_of()
    run.conclude(run.observed())
    assert not run.touched
    run.conclude(({}, {"seen": {1}}))
    assert run.touched


# What cannot be played.


def test_what_lambda_would_not_deliver_is_refused_though_the_rest_is_right() -> None:
    whole = sqs_event("a", "b")["Records"]
    lacking = [whole[0], {name: value for name, value in whole[1].items() if name != "attributes"}]
    with pytest.raises(ValueError, match="the event's messages lack attributes"):
        inputs.records({"Records": lacking})
    with pytest.raises(ValueError, match="messages must have distinct messageIds"):
        inputs.records({"Records": [whole[0], whole[0]]})


def test_a_state_has_no_tables_name_and_true_is_no_number() -> None:
    with pytest.raises(ValueError, match="orders is the name of a table and of a state"):
        inputs.require_containers({"orders": {}}, {"orders"})
    with pytest.raises(ValueError, match="workers must be a whole number from 1 to 4; it is True"):
        inputs.require_between(True, "workers", 1, 4)  # that is the test


def test_a_fake_of_the_fixture_goes_with_its_test() -> None:
    fixture: Any = plugin.calls
    real = services.charge
    with pytest.MonkeyPatch.context() as patched:
        fixture.__wrapped__(patched).replace(services, "charge", key="key")
        assert services.charge is not real
    assert services.charge is real
