"""How handlers end, and what follows: results, errors, dead letters, visibility. The answer is always valid."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
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
        return result() if isinstance(result, type(returning)) else result

    return handle


def raising(error: BaseException, *ids: str) -> Callable[..., Any]:
    def handle(body: dict, message: Message) -> None:
        if not ids or message.id in ids:
            raise error

    return handle


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
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_whatever_a_handler_raises_is_that_messages_failure_alone(scenario: Scenario, error: BaseException) -> None:
    """It is recorded; its neighbours are acknowledged."""
    assert scenario.answer(raising(error, "1"), *batch(3)) == ["1"]
    assert scenario.status("1") == "FAILED"
    assert scenario.error("1")["type"] == type(error).__qualname__
    assert len(scenario.runs) == 3


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_whatever_a_coroutine_raises_is_that_messages_failure_alone(scenario: Scenario, error: BaseException) -> None:
    """As for a plain function."""

    async def handle(body: dict, message: Message) -> None:
        await asyncio.sleep(0.1)
        if message.id == "1":
            raise error

    assert scenario.answer(handle, *batch(3), concurrency=3) == ["1"]
    assert scenario.status("1") == "FAILED"


@pytest.mark.scenario("S58", mutant="where everything failed nothing is named")
def test_when_all_fail_all_are_named(scenario: Scenario) -> None:
    """And nothing is raised."""
    assert sorted(scenario.answer(raising(RuntimeError()), *batch(30))) == sorted(ids(30))


def test_a_failed_message_runs_again_at_its_next_delivery_at_once(scenario: Scenario) -> None:
    """Each attempt is counted."""
    worker = scenario.worker(raising(RuntimeError()))
    for receives in (1, 2, 3):
        worker.deliver(sqs_record("1", receives=receives), after=receives)

    scenario.run()

    assert [run.attempt for run in scenario.runs] == [1, 2, 3]


def test_the_text_of_an_error_is_kept_only_where_its_author_chose_it(scenario: Scenario) -> None:
    """Its type and place are kept."""
    worker = scenario.worker(raising(ValueError("card 4111"), "0"))
    chosen = scenario.worker(raising(PermanentError("overdrawn"), "1"))
    texts = scenario.worker(raising(ValueError("harmless"), "2"), error_texts=True)
    for place, one in enumerate((worker, chosen, texts)):
        one.deliver(sqs_record(str(place)))

    scenario.run()

    kept = [scenario.error(str(place)) for place in range(3)]
    assert "text" not in kept[0]
    assert kept[0]["type"] == "ValueError"
    assert kept[0]["at"].startswith("tests.simulation.test_scenarios_endings.handle:")
    assert (kept[1]["text"], kept[2]["text"]) == ("overdrawn", "harmless")


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
def test_a_body_of_another_type_than_the_handlers_fails_alone_and_its_values_are_kept_nowhere(body: str) -> None:
    """No live claim stays behind, even if a validator raises an exception that pydantic does not handle."""
    scenario = Scenario()

    def handle(body: Amount) -> None:
        pass

    assert scenario.answer(
        handle, sqs_record("0", '{"amount":1}'), sqs_record("1", body), sqs_record("2", '{"amount":1}')
    ) == ["1"]
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


def circular() -> Any:
    made: list[Any] = []
    made.append(made)
    return made


def deep() -> Any:
    made: list[Any] = []
    for _ in range(100_000):
        made = [made]
    return made


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
    """As pydantic serialises it."""
    assert scenario.answer(returning(result), *batch(1)) == []
    assert scenario.memory.items["0"].get("data") == data


@pytest.mark.scenario("S40", "S41", mutant="a result that cannot be kept is a failure")
@pytest.mark.parametrize(
    "result",
    [
        object(),
        b"\xff\xfe",
        float("nan"),
        {"a": float("-inf")},
        "\ud800",
        "x" * 2000,
        "x" * 10_000_000,
        circular,
        deep,
        Refusing(),
        Exiting(),
        open,
        lambda: 1,
        Scenario,
    ],
    ids=[
        "object",
        "bytes",
        "nan",
        "infinity",
        "surrogate",
        "2 KB",
        "10 MB",
        "circular",
        "deep",
        "raising",
        "exiting",
        "builtin",
        "lambda",
        "class",
    ],
)
def test_a_result_that_cannot_be_kept_still_completes_with_a_marker(scenario: Scenario, result: Any) -> None:
    """The effect is done and must not be repeated."""
    worker = scenario.deliver(
        returning(result) if not callable(result) or result in (circular, deep) else lambda_of(result), *batch(1)
    )
    worker.deliver(*batch(1, receives=2), after=1)

    assert scenario.answers_of(worker) == [[], []]
    assert len(scenario.runs) == 1
    assert json.loads(scenario.memory.items["0"]["data"])["idempotent-receiver"]["result"] == "dropped"


def lambda_of(result: Any) -> Callable[..., Any]:
    def handle(body: dict) -> Any:
        return result

    return handle


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
    """An `await` was forgotten: the effect has not happened."""

    def plain(body: dict) -> Any:
        return make()

    async def coroutine(body: dict) -> Any:
        return make()

    assert scenario.answer(coroutine if asynchronous else plain, *batch(1)) == ["0"]
    assert scenario.status("0") == "FAILED"


# Transactions.


@pytest.mark.scenario("S32", mutant="a failed condition is a success")
def test_a_failed_condition_means_what_the_handler_said_it_means(scenario: Scenario) -> None:
    """A permanent error goes to the dead-letter queue with its reason; by default the message is retried."""

    def handle(body: dict, message: Message, tx: Transaction) -> None:
        otherwise = {"otherwise": PermanentError("overdrawn")} if message.id == "0" else {}
        tx.put(TableName="T", Item={"id": message.id})
        tx.check(TableName="T", Key={"id": "x"}, ConditionExpression="attribute_exists(id)", **otherwise)

    assert scenario.answer(handle, *batch(2), dead_letter_queue=DEAD_LETTERS) == ["1"]
    assert scenario.dead_letters()["0"]["reason"] == "overdrawn"
    assert scenario.error("1")["type"] == "ConditionFailed"
    assert scenario.memory.tables["T"].items == {}


def test_a_handler_that_raises_after_filling_its_transaction_writes_nothing(scenario: Scenario) -> None:
    """All or nothing."""

    def handle(body: dict, tx: Transaction) -> None:
        tx.put(TableName="T", Item={"id": "1"})
        raise RuntimeError

    assert scenario.answer(handle, *batch(1)) == ["0"]
    assert scenario.memory.tables == {}


@pytest.mark.scenario("S33", mutant="a hundred actions beside the record's own")
@pytest.mark.parametrize("wrong", ["too many", "one item twice", "the key"])
def test_a_transaction_that_cannot_be_sent_fails_its_message_alone(scenario: Scenario, wrong: str) -> None:
    """Before any of it is written."""

    def handle(body: dict, message: Message, tx: Transaction) -> None:
        if message.id == "0":
            if wrong == "the key":
                tx.update(
                    TableName="T",
                    Key={"id": "1"},
                    UpdateExpression="SET id = :x",
                    ExpressionAttributeValues={":x": "2"},
                )
            for number in range(100 if wrong == "too many" else 2):
                tx.put(TableName="T", Item={"id": str(number if wrong == "too many" else 7)})
        else:
            tx.put(TableName="T", Item={"id": "good"})

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
def test_a_wrong_argument_of_a_transaction_fails_its_message_alone_and_at_once(wrong: dict[str, Any]) -> None:
    """At the call, without a request to the store, and no claim is left behind."""
    scenario = Scenario()

    def handle(body: dict, message: Message, tx: Transaction) -> None:
        right = {
            "TableName": "T",
            "Key": {"id": message.id},
            "UpdateExpression": "ADD amount :one",
            "ExpressionAttributeValues": {":one": 1},
        }
        tx.update(**right | (wrong if message.id == "0" else {}))

    assert scenario.answer(handle, *batch(2), seconds=8) == ["0"]
    assert (scenario.status("0"), scenario.status("1")) == ("FAILED", "COMPLETED")
    error = scenario.error("0")
    assert error["type"] in ("TypeError", "ValueError")
    assert error["at"].startswith(f"{__name__}.handle:"), "the line that gave it says which argument it was"
    assert sorted(scenario.request_names()) == ["commit", "insert", "replace"]
    assert scenario.world.now < 0.1


# Dead letters.


def test_what_fails_for_good_is_dead_lettered_with_its_reason_and_then_acknowledged(scenario: Scenario) -> None:
    """The dead letter is a copy with its attributes and one more."""
    worker = scenario.deliver(
        raising(PermanentError("account closed")),
        sqs_record("1", '{"a":1}', attributes={"tenant": {"stringValue": "t", "dataType": "String"}}),
        dead_letter_queue=DEAD_LETTERS,
    )

    scenario.run()

    (sent,) = scenario.sqs.sent
    assert worker.answers == [[]]
    assert scenario.status("1") == "FAILED"
    assert (sent["QueueUrl"], sent["MessageBody"]) == (DEAD_LETTERS, '{"a":1}')
    assert sent["MessageAttributes"]["tenant"] == {"DataType": "String", "StringValue": "t"}
    letter = scenario.dead_letters()["1"]
    assert letter.pop("at").startswith("tests.simulation.test_scenarios_endings.handle:")
    assert letter == {
        "key": "1",
        "original_id": "1",
        "reason": "account closed",
        "error_type": "PermanentError",
        "function": "consumer",
        "queue": QUEUE,
    }


def test_an_unconfirmed_dead_letter_is_a_failure_and_the_next_delivery_sends_it(scenario: Scenario) -> None:
    """Nothing is lost while SQS refuses."""
    scenario.sqs.deny.add("send_message")
    worker = scenario.deliver(raising(PermanentError("no")), sqs_record("1"), dead_letter_queue=DEAD_LETTERS)

    assert scenario.answers_of(worker) == [["1"]]

    scenario.sqs.deny.clear()
    worker.deliver(sqs_record("1", receives=2))
    scenario.run()
    assert worker.answers[1:] == [[]]
    assert list(scenario.dead_letters()) == ["1"]


def test_done_or_a_dead_letter_but_for_a_late_duplicate_of_a_dead_letter_which_may_be_done() -> None:
    """Its failure was recorded and sent before the duplicate ran. Once that is done, no duplicate is a dead letter."""
    scenario = Scenario()
    fails, succeeds = (
        scenario.worker(function, dead_letter_queue=DEAD_LETTERS)
        for function in (raising(PermanentError("account closed")), returning("opened again"))
    )
    fails.deliver(sqs_record("1"))
    succeeds.deliver(sqs_record("1", receives=2), after=1)
    fails.deliver(sqs_record("1", receives=3), after=2)

    scenario.run()

    assert (fails.answers, succeeds.answers) == ([[], []], [[]])
    assert scenario.keys_run == ["1", "1"]
    assert scenario.status("1") == "COMPLETED"
    assert len(scenario.sqs.sent) == 1


@pytest.mark.parametrize(("body", "reason", "runs"), [("{}", "account closed", 5), ("{not JSON", "not a dict", 0)])
def test_without_a_dead_letter_queue_what_fails_for_good_is_a_failure_at_each_receive_until_sqs_has_moved_it(
    scenario: Scenario, body: str, reason: str, runs: int
) -> None:
    """Nothing is sent or acknowledged. Its record gives the reason, and it becomes visible at once."""
    worker = scenario.worker(raising(PermanentError("account closed")), queue_client=True)
    for receives in range(1, 6):
        worker.deliver(sqs_record("1", body, receives=receives), after=3 * receives)

    assert scenario.answers_of(worker) == [["1"]] * 5
    assert len(scenario.runs) == runs
    assert scenario.sqs.calls == ["change_message_visibility_batch"] * 5
    assert scenario.sqs.visibilities["1"] <= 2
    error = scenario.error("1")
    assert (scenario.status("1"), error["permanent"], reason in error["text"]) == ("FAILED", True, True)


def test_nothing_is_dead_lettered_before_the_failure_is_recorded_nor_after_a_lost_claim(scenario: Scenario) -> None:
    """The worker that took over the claim decides what happens to the message."""

    def slow(body: dict) -> None:
        scenario.world.sleep(8)
        raise PermanentError("no")

    zombie = scenario.deliver(slow, *batch(1), seconds=20, dead_letter_queue=DEAD_LETTERS)
    scenario.dead.add("w0")
    taker = scenario.deliver(instant, *batch(1, receives=2), after=5, skew_seconds=60)

    scenario.run()

    assert (zombie.answers, taker.answers) == ([[]], [[]])
    assert scenario.sqs.sent == []
    assert scenario.status("0") == "COMPLETED"


def test_a_failure_that_could_not_be_recorded_is_not_dead_lettered(scenario: Scenario) -> None:
    """Otherwise its record would stay a claim while the message is gone."""
    worker = scenario.deliver(raising(PermanentError("no")), *batch(1), seconds=5, dead_letter_queue=DEAD_LETTERS)
    scenario.world.spawn(partial(scenario.store.down, "replace", "read"), after=0.003)

    assert scenario.answers_of(worker) == [["0"]]
    assert scenario.sqs.sent == []


@pytest.mark.parametrize("full", ["attributes", "bytes"])
def test_a_message_without_room_for_a_reason_stays_where_it_is(scenario: Scenario, full: str) -> None:
    """SQS allows ten attributes and 1 MiB."""
    attributes = {f"a{n}": {"stringValue": "v", "dataType": "String"} for n in range(10 if full == "attributes" else 0)}
    body = json.dumps("x" * (1024 * 1024 - 2)) if full == "bytes" else '"x"'

    def handle(body: str) -> None:
        raise PermanentError("no")

    assert scenario.answer(handle, sqs_record("1", body, attributes=attributes), dead_letter_queue=DEAD_LETTERS) == [
        "1"
    ]
    assert scenario.sqs.sent == []


def test_thousands_of_dead_letters_and_visibilities_never_take_thousands_of_threads(scenario: Scenario) -> None:
    """Each is a blocking call, and Lambda allows about a thousand threads."""
    peak = Peak(scenario)
    worker = scenario.deliver(
        raising(PermanentError("no")), *batch(1000), seconds=60, dead_letter_queue=DEAD_LETTERS, concurrency=50
    )

    assert scenario.answers_of(worker) == [[]]
    assert peak.most < 100

    scenario.store.down()
    worker.deliver(*batch(2000, receives=2), seconds=60)
    scenario.run()
    assert len(worker.answers[1]) == 2000
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
    """At least a second, at most doubled at each receive, and never above the maximum."""
    for receives, bound in [(1, 4), (2, 8), (3, 16), (6, 128), (9, 900), (1000, 900)]:
        scenario = Scenario(seed=receives)
        worker = scenario.worker(raising(RuntimeError()), queue_client=True)
        worker.deliver(*batch(200, receives=receives))
        scenario.run()
        seconds = scenario.sqs.visibilities.values()
        assert len(seconds) == 200
        assert min(seconds) >= 1
        assert bound * 0.9 < max(seconds) <= bound
        assert scenario.sqs.calls == ["change_message_visibility_batch"] * 20


def test_a_backoff_never_asks_for_more_than_the_twelve_hours_that_sqs_counts_from_the_receive() -> None:
    """However large its maximum: a batching window and an invocation may already have passed."""
    scenario = Scenario()
    scenario.deliver(
        raising(RuntimeError()),
        *batch(300, receives=40),
        queue_client=True,
        backoff=Backoff(first_seconds=1e6, longest_seconds=1e9),
    )

    scenario.run()

    assert 40_000 < max(scenario.sqs.visibilities.values()) <= 12 * 3600 - 20 * 60


def test_a_message_in_progress_elsewhere_is_not_visible_before_the_lease_has_ended(scenario: Scenario) -> None:
    """Waiting must not use up receives."""
    scenario.worker(scenario.taking(25)).deliver(*batch(1))

    assert scenario.answer(scenario.taking(25), *batch(1, receives=2), after=10, queue_client=True) == ["0"]
    assert 30 + 3 - 10 <= scenario.sqs.visibilities["0"] <= 30 + 3 - 10 + 2


@pytest.mark.scenario("S70", mutant="what was not started backs off")
def test_what_was_not_started_is_visible_again_almost_at_once(scenario: Scenario) -> None:
    """With jitter."""
    scenario.deliver(scenario.taking(2), *batch(100, receives=4), seconds=4, queue_client=True)

    scenario.run()

    assert len(scenario.sqs.visibilities) == 99
    assert set(scenario.sqs.visibilities.values()) == {0, 1, 2}


@pytest.mark.parametrize("trouble", ["denied", "slow", "absurd"])
def test_visibilities_never_alter_the_answer(scenario: Scenario, trouble: str) -> None:
    """They are best effort, and bounded to a second."""
    if trouble == "denied":
        scenario.sqs.deny.add("change_message_visibility_batch")
    elif trouble == "slow":
        scenario.sqs.round_trip_seconds = 100
    else:
        scenario.sqs.change_message_visibility_batch = None  # type: ignore[assignment,method-assign]

    assert len(scenario.answer(raising(RuntimeError()), *batch(200), queue_client=True)) == 200


def test_slow_visibilities_hold_the_answer_up_for_a_second_at_most() -> None:
    """And for at most half of the time left."""
    for seconds, most in [(30, 1.1), (1.5, 0.8)]:
        scenario = Scenario()
        scenario.sqs.round_trip_seconds = 100
        answered: list[float] = []
        worker = scenario.worker(raising(RuntimeError()), queue_client=True)
        handler = worker.handler
        worker.handler = lambda event, context, handler=handler, scenario=scenario, answered=answered: (
            handler(event, context),
            answered.append(scenario.world.now),
        )[0]
        worker.deliver(*batch(1), seconds=seconds)
        scenario.run()
        assert answered[0] < most


def test_without_a_queue_client_visibilities_are_left_alone(scenario: Scenario) -> None:
    """The queue's own visibility timeout applies."""
    assert scenario.answer(raising(RuntimeError()), *batch(1)) == ["0"]
    assert scenario.sqs.calls == []


def test_a_record_without_a_receipt_handle_gets_no_visibility(scenario: Scenario) -> None:
    """A recorded event may lack it."""
    bare = sqs_record("1")
    del bare["receiptHandle"]

    assert scenario.answer(raising(RuntimeError()), bare, queue_client=True) == ["1"]
    assert scenario.sqs.calls == []


# How many requests it takes.


def requests(count: int, receives: int = 1, before: int = 0) -> dict[str, int]:
    scenario = Scenario()
    worker = scenario.worker(instant)
    if before:
        worker.deliver(*batch(before))
        scenario.run()
        scenario.requests()
    worker.deliver(*batch(count, receives=receives), after=1)
    scenario.run()
    assert worker.answers[-1] == []
    names = scenario.request_names()
    return {name: names.count(name) for name in names}


@pytest.mark.parametrize("count", [1, 2, 10, 24, 25, 26, 50, 75, 100, 250, 1000])
def test_fresh_messages_cost_one_claim_and_one_completion_a_chunk(count: int) -> None:
    """25 records a request, and no other requests."""
    chunks = -(-count // 25)

    assert requests(count) == {"insert": chunks, "replace": chunks}


@pytest.mark.parametrize("count", [1, 10, 99, 100, 101, 500])
def test_duplicates_of_completed_messages_cost_one_read_a_hundred_and_no_write(count: int) -> None:
    """A message that was received before is read first."""
    assert requests(count, receives=2, before=count) == {"read": -(-count // 100)}


def test_what_was_received_before_and_never_claimed_costs_a_read_and_an_insert() -> None:
    """For example after the time-out of an invocation that claimed nothing."""
    assert requests(25, receives=2) == {"read": 1, "insert": 1, "replace": 1}


@pytest.mark.slow
@pytest.mark.scenario("S53", mutant="a request takes five statements")
def test_a_batch_of_ten_thousand_is_done_in_linear_requests_and_time(scenario: Scenario) -> None:
    """With 5 ms a round trip, it takes the time of four hundred of them."""
    assert scenario.answer(instant, *batch(10_000), seconds=60) == []
    assert len(scenario.requests()) == 800
    assert scenario.world.now < 400 * 0.005 + 0.1


def test_handlers_overlap_up_to_the_concurrency_and_never_more(scenario: Scenario) -> None:
    """Claims and settlements overlap with them."""
    scenario.deliver(scenario.taking(1), *batch(40), concurrency=8)

    scenario.run()

    starts = [run.started for run in scenario.runs]
    assert max(sum(run.started <= at < run.ended for run in scenario.runs) for at in starts) == 8
    assert scenario.world.now == pytest.approx(5, abs=0.1)


def test_what_becomes_ready_later_gets_lanes_of_its_own(scenario: Scenario) -> None:
    """The first chunk of claims is throttled once; its handlers still run beside those of the second."""
    scenario.store.next("insert", throttled)
    scenario.deliver(scenario.taking(1), *batch(50), concurrency=50)

    scenario.run()

    assert scenario.world.now < 1.2


@pytest.mark.scenario("S25", mutant="a settlement waits until its request is full")
def test_a_finished_handler_is_recorded_within_two_milliseconds_and_a_round_trip(scenario: Scenario) -> None:
    """It does not wait for the end of the batch."""
    scenario.deliver(scenario.taking(1), *batch(3))
    seen: list[str | None] = []
    scenario.world.spawn(lambda: seen.append(scenario.status("0")), after=0.005 + 1 + 0.002 + 0.0026)

    scenario.run()

    assert seen == ["COMPLETED"]
