"""How handlers end, and what follows: results, errors, dead letters, visibility. The answer is always valid."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel, field_validator, model_serializer

from idempotent_receiver import Message, PermanentError, Transaction
from idempotent_receiver.sqs.visibility import Backoff
from tests.simulation.faults import throttled
from tests.simulation.scenario import Scenario, batch, ids, instant
from tests.simulation.world import DEAD_LETTERS, QUEUE, sqs_record


def returning(result: Any) -> Callable[..., Any]:
    def handle(body: dict) -> Any:
        return result

    return handle


def raising(error: BaseException, *ids: str) -> Callable[..., Any]:
    def handle(body: dict, message: Message) -> None:
        if not ids or message.id in ids:
            raise error

    return handle


fails = raising(RuntimeError())
refuses = raising(PermanentError("no"))


# Whatever a handler raises.


class OurBase(BaseException):
    """An error that derives from BaseException."""


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("even this")


class Exits(PermanentError):
    def __str__(self) -> str:
        raise SystemExit(1)


class Interrupts(PermanentError):
    def __str__(self) -> str:
        raise KeyboardInterrupt


ERRORS: list[BaseException] = [
    ValueError("x"),
    SystemExit(0),
    SystemExit("bye"),
    KeyboardInterrupt(),
    GeneratorExit(),
    StopIteration(1),
    StopAsyncIteration(),
    asyncio.CancelledError(),
    MemoryError(),
    RecursionError(),
    OurBase(),
    Unspeakable(),
    Exits(),
    Interrupts(),
    ExceptionGroup("several", [ValueError()]),
    PermanentError("no"),
    PermanentError("\ud800"),
]


@pytest.mark.scenario("S35", mutant="a failure that is recorded is acknowledged")
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_whatever_a_handler_raises_is_that_messages_failure_alone(
    scenario: Scenario, error: BaseException, asynchronous: bool
) -> None:
    plain = raising(error, "1")

    async def coroutine(body: dict, message: Message) -> None:
        await asyncio.sleep(0.1)
        plain(body, message)

    assert scenario.answer(coroutine if asynchronous else plain, *batch(3), concurrency=3) == ["1"]
    assert scenario.status("1") == "FAILED"
    if not (asynchronous and isinstance(error, StopIteration)):  # which Python lets no coroutine raise
        (told,) = error.exceptions if isinstance(error, ExceptionGroup) else [error]
        assert scenario.error("1")["type"] == type(told).__qualname__
    assert len(scenario.runs) == 3


@pytest.mark.scenario("S58", mutant="where everything failed nothing is named")
def test_when_all_fail_all_are_named(scenario: Scenario) -> None:
    assert sorted(scenario.answer(fails, *batch(30))) == sorted(ids(30))


def test_a_failed_message_runs_again_at_its_next_delivery_at_once(scenario: Scenario) -> None:
    for receives in (1, 2, 3):
        assert scenario.answer(fails, sqs_record("1", receives=receives)) == ["1"]
    assert [run.attempt for run in scenario.runs] == [1, 2, 3]


def test_the_text_of_an_error_is_kept_only_where_its_author_chose_it(scenario: Scenario) -> None:
    leaking, chosen, harmless = (
        raising(one) for one in (ValueError("card 4111"), PermanentError("no"), ValueError("x"))
    )
    scenario.answer(leaking, sqs_record("0"))
    scenario.answer(chosen, sqs_record("1"))
    scenario.answer(harmless, sqs_record("2"), error_texts=True)

    kept = [scenario.error(id) for id in ids(3)]
    assert "text" not in kept[0]
    assert kept[0]["type"] == "ValueError"
    assert kept[0]["at"].startswith("tests.simulation.test_scenarios_endings.handle:")
    assert (kept[1]["text"], kept[2]["text"]) == ("no", "x")


class Amount(BaseModel):
    amount: int

    @field_validator("amount")
    @classmethod
    def _check(cls, value: int) -> int:
        if value < 0:
            raise LookupError("custom")
        return value


@pytest.mark.scenario("S54", mutant="a failure that is recorded is acknowledged")
@pytest.mark.scenario("S55", mutant="what never started keeps its claim")
@pytest.mark.parametrize("body", ['{"amount":"secret"}', "{}", "null", "[]", "", "{", '{"amount":-1}', "[" * 100_000])
def test_a_body_of_another_type_than_the_handlers_fails_alone_and_its_values_are_kept_nowhere(
    scenario: Scenario, body: str
) -> None:
    def handle(body: Amount) -> None: ...

    right = '{"amount":1}'
    assert scenario.answer(handle, *map(sqs_record, "012", (right, body, right))) == ["1"]
    assert scenario.status("1") == "FAILED"
    assert "secret" not in scenario.memory.items["1"]["error"]


def test_a_body_of_a_mebibyte_is_a_body(scenario: Scenario) -> None:
    """That is SQS's limit; its duplicate is recognised."""
    largest = json.dumps({"x": "é" * (512 * 1024 - 100)}, ensure_ascii=False)
    worker = scenario.deliver(instant, sqs_record("1", largest))
    worker.deliver(sqs_record("1", largest, receives=2), after=1)

    assert scenario.answers_of(worker) == [[], []]
    assert scenario.keys_run == ["1"]


# Whatever a handler returns.


class Model(BaseModel):
    at: datetime
    amount: Decimal


class Refusing(BaseModel):
    @model_serializer
    def refuse(self) -> Any:
        raise RuntimeError("not today")


class Exiting(BaseModel):
    @model_serializer
    def exit(self) -> Any:
        raise SystemExit(1)


CIRCULAR: list[Any] = []
CIRCULAR.append(CIRCULAR)
DEEP: list[Any] = []
for _ in range(100_000):
    DEEP = [DEEP]

UNKEPT: dict[str, Any] = {
    "object": object(),
    "bytes": b"\xff\xfe",
    "nan": float("nan"),
    "infinity": {"a": float("-inf")},
    "surrogate": "\ud800",
    "2 KB": "x" * 2000,
    "10 MB": "x" * 10_000_000,
    "circular": CIRCULAR,
    "deep": DEEP,
    "raising": Refusing(),
    "exiting": Exiting(),
    "builtin": open,
    "lambda": lambda: 1,
    "class": Scenario,
}


@pytest.mark.parametrize(
    ("result", "data"),
    [
        (None, None),
        (0, "0"),
        ("", '""'),
        (False, "false"),
        ({"a": [1, "é"]}, '{"a":[1,"é"]}'),
        (Decimal("1.50"), '"1.50"'),
        (datetime(2026, 1, 2, tzinfo=UTC), '"2026-01-02T00:00:00Z"'),
        (Model(at=datetime(2026, 1, 2, tzinfo=UTC), amount=Decimal(1)), '{"at":"2026-01-02T00:00:00Z","amount":"1"}'),
        ("NaN and Infinity, in words", '"NaN and Infinity, in words"'),
    ],
    ids=str,
)
def test_a_result_is_kept_as_json(scenario: Scenario, result: Any, data: str | None) -> None:
    assert scenario.answer(returning(result), *batch(1)) == []
    assert scenario.memory.items["0"].get("data") == data


@pytest.mark.scenario("S40", "S41", mutant="a result that cannot be kept is a failure")
@pytest.mark.parametrize("result", UNKEPT.values(), ids=UNKEPT)
def test_a_result_that_cannot_be_kept_still_completes_with_a_marker(scenario: Scenario, result: Any) -> None:
    worker = scenario.deliver(returning(result), *batch(1))
    worker.deliver(*batch(1, receives=2), after=1)

    assert scenario.answers_of(worker) == [[], []]
    assert len(scenario.runs) == 1
    assert json.loads(scenario.memory.items["0"]["data"])["idempotent-receiver"]["result"] == "dropped"


async def unawaited() -> None:
    """A coroutine whose effect needs an `await`."""


def generator() -> Any:
    yield 1


async def async_generator() -> Any:
    yield 1


class Awaitable:
    def __await__(self) -> Any:
        yield


@pytest.mark.scenario("S43", mutant="a coroutine that nobody awaited is a result")
@pytest.mark.parametrize("make", [unawaited, generator, async_generator, Awaitable])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_result_whose_body_nobody_has_run_is_a_failure_and_never_completed(
    scenario: Scenario, make: Callable[[], Any], asynchronous: bool
) -> None:
    def plain(body: dict) -> Any:
        return make()

    async def coroutine(body: dict) -> Any:
        return make()

    assert scenario.answer(coroutine if asynchronous else plain, *batch(1)) == ["0"]
    assert scenario.status("0") == "FAILED"


# Transactions.


@pytest.mark.scenario("S32", mutant="a failed condition is a success")
@pytest.mark.parametrize(
    ("error", "reasons"),
    [(None, {}), (RuntimeError("no"), {}), (PermanentError("overdrawn"), {"0": "overdrawn"})],
    ids=["by default", "for now", "for good"],
)
def test_a_failed_condition_means_what_the_handler_said_and_is_that_messages_alone(
    either: Scenario, error: Exception | None, reasons: dict[str, str]
) -> None:
    """A permanent error goes to the dead-letter queue with its reason; those that shared its request are done."""

    def handle(body: dict, message: Message, tx: Transaction) -> None:
        tx.put(TableName="T", Item={"id": message.id})
        if message.id == "0":
            condition = "attribute_exists(id)"
            tx.check(TableName="T", Key={"id": "x"}, ConditionExpression=condition, otherwise=error)

    assert either.answer(handle, *batch(5), dead_letter_queue=DEAD_LETTERS) == ([] if reasons else ["0"])
    assert {id: stamp["reason"] for id, stamp in either.dead_letters().items()} == reasons
    assert either.error("0")["type"] == ("ConditionFailed" if error is None else type(error).__name__)
    assert sorted(either.memory.tables["T"].items) == [("1",), ("2",), ("3",), ("4",)]


def test_a_handler_that_raises_after_filling_its_transaction_writes_nothing(scenario: Scenario) -> None:
    def handle(body: dict, tx: Transaction) -> None:
        tx.put(TableName="T", Item={"id": "1"})
        raise RuntimeError

    assert scenario.answer(handle, *batch(1)) == ["0"]
    assert scenario.memory.tables == {}


@pytest.mark.scenario("S33", mutant="a hundred actions beside the record's own")
@pytest.mark.parametrize("wrong", ["too many", "one item twice", "the key"])
def test_a_transaction_that_cannot_be_sent_fails_its_message_alone(scenario: Scenario, wrong: str) -> None:
    def handle(body: dict, message: Message, tx: Transaction) -> None:
        if message.id == "1":
            tx.put(TableName="T", Item={"id": "good"})
            return
        if wrong == "the key":
            values = {":x": "2"}
            tx.update(TableName="T", Key={"id": "1"}, UpdateExpression="SET id = :x", ExpressionAttributeValues=values)
        for number in range(100 if wrong == "too many" else 2):
            tx.put(TableName="T", Item={"id": str(number if wrong == "too many" else 7)})

    assert scenario.answer(handle, *batch(2)) == ["0"]
    assert scenario.status("0") == "FAILED"
    assert list(scenario.memory.tables["T"].items) == [("good",)]


UNSET: dict[str, dict[str, Any]] = {
    "no table": {"TableName": None},
    "an empty table": {"TableName": ""},
    "no update": {"UpdateExpression": None},
    "no condition": {"ConditionExpression": None},
    "names as a list": {"ExpressionAttributeNames": ["#a"]},
    "no key": {"Key": None},
    "a float": {"ExpressionAttributeValues": {":one": 1.0}},
}


@pytest.mark.parametrize("wrong", UNSET.values(), ids=UNSET)
def test_a_wrong_argument_of_a_transaction_fails_its_message_alone_and_at_once(
    scenario: Scenario, wrong: dict[str, Any]
) -> None:
    right = {"TableName": "T", "UpdateExpression": "ADD amount :one", "ExpressionAttributeValues": {":one": 1}}

    def handle(body: dict, message: Message, tx: Transaction) -> None:
        tx.update(**right | {"Key": {"id": message.id}} | (wrong if message.id == "0" else {}))

    assert scenario.answer(handle, *batch(2), seconds=8) == ["0"]
    assert (scenario.status("0"), scenario.status("1")) == ("FAILED", "COMPLETED")
    error = scenario.error("0")
    assert error["type"] in ("TypeError", "ValueError")
    assert error["at"].startswith(f"{__name__}.handle:"), "the line that gave it says which argument it was"
    assert sorted(scenario.request_names()) == ["commit", "insert", "replace"]
    assert scenario.world.now < 0.1


# Dead letters.


def test_what_fails_for_good_is_dead_lettered_with_its_reason_and_then_acknowledged(scenario: Scenario) -> None:
    record = sqs_record("1", '{"a":1}', attributes={"tenant": {"stringValue": "t", "dataType": "String"}})

    assert scenario.answer(refuses, record, dead_letter_queue=DEAD_LETTERS) == []
    (sent,) = scenario.sqs.sent
    assert scenario.status("1") == "FAILED"
    assert (sent["QueueUrl"], sent["MessageBody"]) == (DEAD_LETTERS, '{"a":1}')
    assert sent["MessageAttributes"]["tenant"] == {"DataType": "String", "StringValue": "t"}
    letter = scenario.dead_letters()["1"]
    assert letter.pop("at").startswith("tests.simulation.test_scenarios_endings.handle:")
    assert letter == {
        "key": "1",
        "original_id": "1",
        "reason": "no",
        "error_type": "PermanentError",
        "function": "consumer",
        "queue": QUEUE,
    }


def test_an_unconfirmed_dead_letter_is_a_failure_and_the_next_delivery_sends_it(scenario: Scenario) -> None:
    scenario.sqs.deny.add("send_message")
    assert scenario.answer(refuses, sqs_record("1"), dead_letter_queue=DEAD_LETTERS) == ["1"]

    scenario.sqs.deny.clear()
    assert scenario.answer(refuses, sqs_record("1", receives=2), dead_letter_queue=DEAD_LETTERS) == []
    assert list(scenario.dead_letters()) == ["1"]


def test_done_or_a_dead_letter_but_for_a_late_duplicate_of_a_dead_letter_which_may_be_done(scenario: Scenario) -> None:
    for receives, function in enumerate((refuses, returning("opened again"), refuses), start=1):
        assert scenario.answer(function, sqs_record("1", receives=receives), dead_letter_queue=DEAD_LETTERS) == []

    assert scenario.keys_run == ["1", "1"]
    assert scenario.status("1") == "COMPLETED"
    assert len(scenario.sqs.sent) == 1


@pytest.mark.parametrize(("body", "reason", "runs"), [("{}", "no", 5), ("{not JSON", "not a dict", 0)])
def test_without_a_dead_letter_queue_what_fails_for_good_is_a_failure_at_each_receive_until_sqs_has_moved_it(
    scenario: Scenario, body: str, reason: str, runs: int
) -> None:
    """Nothing is sent or acknowledged. Its record gives the reason, and it becomes visible at once."""
    worker = scenario.worker(refuses, queue_client=True)
    for receives in range(1, 6):
        worker.deliver(sqs_record("1", body, receives=receives), after=3 * receives)

    assert scenario.answers_of(worker) == [["1"]] * 5
    assert len(scenario.runs) == runs
    assert scenario.sqs.calls == ["change_message_visibility_batch"] * 5
    assert scenario.sqs.visibilities["1"] <= 2
    error = scenario.error("1")
    assert (scenario.status("1"), error["permanent"], reason in error["text"]) == ("FAILED", True, True)


@pytest.mark.parametrize("full", ["attributes", "bytes"])
def test_a_message_without_room_for_a_reason_stays_where_it_is(scenario: Scenario, full: str) -> None:
    """SQS allows ten attributes and 1 MiB."""
    attributes = {f"a{n}": {"stringValue": "v", "dataType": "String"} for n in range(10 if full == "attributes" else 0)}
    body = json.dumps({"x": "x" * (1024 * 1024 - 9 if full == "bytes" else 0)})
    record = sqs_record("1", body, attributes=attributes)

    assert scenario.answer(refuses, record, dead_letter_queue=DEAD_LETTERS) == ["1"]
    assert scenario.sqs.sent == []


def test_thousands_of_dead_letters_and_visibilities_never_take_thousands_of_threads(scenario: Scenario) -> None:
    """Each is a blocking call, and Lambda allows about a thousand threads."""
    peak, options = Peak(scenario), {"dead_letter_queue": DEAD_LETTERS, "concurrency": 50}
    assert scenario.answer(refuses, *batch(1000), seconds=60, **options) == []
    assert peak.most < 100

    scenario.store.down()
    assert len(scenario.answer(refuses, *batch(2000, receives=2), seconds=60, **options)) == 2000
    assert peak.most < 100


class Peak:
    """Counts the most calls of the SQS client that are under way at once."""

    def __init__(self, scenario: Scenario) -> None:
        self.most = self.now = 0
        arrive = scenario.sqs._arrive

        def counted(name: str) -> None:
            self.now += 1
            self.most = max(self.most, self.now)
            try:
                arrive(name)
            finally:
                self.now -= 1

        scenario.sqs._arrive = counted  # type: ignore[method-assign]


# Visibilities.


def test_a_failed_message_comes_again_after_an_exponential_backoff_with_full_jitter() -> None:
    for receives, bound in [(1, 4), (2, 8), (3, 16), (6, 128), (9, 900), (1000, 900)]:
        scenario = Scenario(seed=receives)
        assert len(scenario.answer(fails, *batch(200, receives=receives), queue_client=True)) == 200
        seconds = scenario.sqs.visibilities.values()
        assert len(seconds) == 200
        assert min(seconds) >= 1
        assert bound * 0.9 < max(seconds) <= bound
        assert scenario.sqs.calls == ["change_message_visibility_batch"] * 20


def test_a_backoff_never_asks_for_more_than_the_twelve_hours_that_sqs_counts_from_the_receive(
    scenario: Scenario,
) -> None:
    """However large its maximum: a batching window and an invocation may already have passed."""
    endless = Backoff(first_seconds=1e6, longest_seconds=1e9)

    assert len(scenario.answer(fails, *batch(300, receives=40), queue_client=True, backoff=endless)) == 300
    assert 40_000 < max(scenario.sqs.visibilities.values()) <= 12 * 3600 - 20 * 60


def test_a_message_in_progress_elsewhere_is_not_visible_before_the_lease_has_ended(scenario: Scenario) -> None:
    scenario.worker(scenario.taking(25)).deliver(*batch(1))

    assert scenario.answer(scenario.taking(25), *batch(1, receives=2), after=10, queue_client=True) == ["0"]
    assert 30 + 3 - 10 <= scenario.sqs.visibilities["0"] <= 30 + 3 - 10 + 2


@pytest.mark.scenario("S70", mutant="what was not started backs off")
def test_what_was_not_started_is_visible_again_almost_at_once(scenario: Scenario) -> None:
    assert len(scenario.answer(scenario.taking(2), *batch(100, receives=4), seconds=4, queue_client=True)) == 99
    assert len(scenario.sqs.visibilities) == 99
    assert set(scenario.sqs.visibilities.values()) == {0, 1, 2}


@pytest.mark.parametrize("trouble", ["denied", "slow", "absurd"])
def test_visibilities_never_alter_the_answer(scenario: Scenario, trouble: str) -> None:
    if trouble == "denied":
        scenario.sqs.deny.add("change_message_visibility_batch")
    elif trouble == "slow":
        scenario.sqs.round_trip_seconds = 100
    else:
        scenario.sqs.change_message_visibility_batch = None  # type: ignore[assignment,method-assign]

    assert len(scenario.answer(fails, *batch(200), queue_client=True)) == 200


@pytest.mark.parametrize(("seconds", "most"), [(30, 1.1), (1.5, 0.8)])
def test_slow_visibilities_hold_the_answer_up_for_a_second_at_most(
    scenario: Scenario, seconds: float, most: float
) -> None:
    """And for at most half of the time left."""
    scenario.sqs.round_trip_seconds = 100
    worker = scenario.deliver(fails, *batch(1), seconds=seconds, queue_client=True)
    answered: list[bool] = []
    scenario.world.spawn(lambda: answered.append(worker.answers == [["0"]]), after=most)

    scenario.run()

    assert answered == [True]


def test_without_a_queue_client_visibilities_are_left_alone(scenario: Scenario) -> None:
    assert scenario.answer(fails, *batch(1)) == ["0"]
    assert scenario.sqs.calls == []


def test_a_record_without_a_receipt_handle_gets_no_visibility(scenario: Scenario) -> None:
    bare = sqs_record("1")
    del bare["receiptHandle"]

    assert scenario.answer(fails, bare, queue_client=True) == ["1"]
    assert scenario.sqs.calls == []


# How many requests it takes.


def requests(scenario: Scenario, count: int, receives: int = 1) -> Counter[str]:
    scenario.requests()
    assert scenario.answer(instant, *batch(count, receives=receives)) == []
    return Counter(scenario.request_names())


@pytest.mark.parametrize("count", [1, 2, 10, 24, 25, 26, 50, 75, 100, 250, 1000])
def test_fresh_messages_cost_one_claim_and_one_completion_a_chunk(scenario: Scenario, count: int) -> None:
    chunks = -(-count // 25)

    assert requests(scenario, count) == {"insert": chunks, "replace": chunks}


@pytest.mark.parametrize("count", [1, 10, 99, 100, 101, 500])
def test_duplicates_of_completed_messages_cost_one_read_a_hundred_and_no_write(scenario: Scenario, count: int) -> None:
    scenario.answer(instant, *batch(count))

    assert requests(scenario, count, receives=2) == {"read": -(-count // 100)}


def test_what_was_received_before_and_never_claimed_costs_a_read_and_an_insert(scenario: Scenario) -> None:
    assert requests(scenario, 25, receives=2) == {"read": 1, "insert": 1, "replace": 1}


@pytest.mark.scenario("S53", mutant="a request takes five statements")
@pytest.mark.parametrize("count", [1_000, 10_000])
def test_a_batch_of_thousands_is_done_in_linear_requests_and_time(scenario: Scenario, count: int) -> None:
    assert scenario.answer(instant, *batch(count), seconds=60) == []
    assert len(scenario.requests()) == 0.08 * count
    assert scenario.world.now < 0.04 * count * 0.005 + 0.1


def test_handlers_overlap_up_to_the_concurrency_and_never_more(scenario: Scenario) -> None:
    assert scenario.answer(scenario.taking(1), *batch(40), concurrency=8) == []
    starts = [run.started for run in scenario.runs]
    assert max(sum(run.started <= at < run.ended for run in scenario.runs) for at in starts) == 8
    assert scenario.world.now == pytest.approx(5, abs=0.1)


def test_what_becomes_ready_later_gets_lanes_of_its_own(scenario: Scenario) -> None:
    scenario.store.next("insert", throttled)

    assert scenario.answer(scenario.taking(1), *batch(50), concurrency=50) == []
    assert scenario.world.now < 1.2


@pytest.mark.scenario("S25", mutant="a settlement waits until its request is full")
def test_a_finished_handler_is_recorded_within_two_milliseconds_and_a_round_trip(scenario: Scenario) -> None:
    seen: list[str | None] = []
    scenario.world.spawn(lambda: seen.append(scenario.status("0")), after=0.005 + 1 + 0.002 + 0.0026)

    assert scenario.answer(scenario.taking(1), *batch(3)) == []
    assert seen == ["COMPLETED"]
