"""What is seen of a consumer, an endpoint, a function or a store that is made with some options."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from idempotent_receiver import (
    DynamoDBStore,
    Message,
    PermanentError,
    RetryLater,
    Transaction,
    current_claim,
    http_endpoint,
    idempotent,
)
from idempotent_receiver.protocol.record import Record, Status, attributes
from tests.consumers import controlled
from tests.contexts import Context
from tests.counting_store import CountingStore
from tests.manual_clock import START_MS, ManualClock
from tests.simulation.scenario import Scenario
from tests.simulation.world import sqs_record
from tests.unit.http.api import request

if TYPE_CHECKING:
    from collections.abc import Callable

LARGE = "x" * 400_000
ARMED: list[bool] = []
"""An entry for each invocation whose process would have ended at its deadline."""

Observe = "Callable[[dict[str, Any]], Any]"
"""What is seen of something that was made with these options."""


@dataclass
class Recorder:
    """A logger, metrics, and a place for large results, which count how often they are called."""

    log_level: int = 10
    calls: int = 0

    def info(self, *arguments: object, **fields: object) -> None:
        self.calls += 1

    error = warning = debug = append_keys = add_metric = flush_metrics = info

    def put(self, name: str, data: str) -> dict[str, str]:
        self.calls += 1
        return {"result": "s3", "bucket": "b", "key": name}

    def get(self, place: dict[str, str], owned: str) -> str:
        return json.dumps(LARGE)


def used(observe: Observe) -> Observe:
    """Whether the only option, a recorder, was called."""

    def look(options: dict[str, Any]) -> bool:
        for recorder in options.values():
            recorder.calls = 0
        observe(options)
        return any(recorder.calls for recorder in options.values())

    return look


# A consumer.


def accept(body: dict) -> str:
    return "done"


def refuse(body: dict) -> None:
    raise PermanentError("never")


def fail(body: dict) -> None:
    raise ValueError("its text")


def postpone(body: dict) -> None:
    raise RetryLater(seconds=60)


def post(body: dict, message: Message, tx: Transaction) -> None:
    tx.put(TableName="entries", Item={"id": message.id})


def announce(id: str) -> None: ...


def call(body: dict, tx: Transaction) -> None:
    tx.call(announce, id=body["id"])


def consumed(
    see: Callable[[Scenario], Any],
    function: Callable[..., Any] = accept,
    bodies: list[dict[str, Any]] | None = None,
    seconds: float = 30.0,
    **always: Any,
) -> Observe:
    """What is seen after a batch of these bodies, with that much time."""

    def observe(options: dict[str, Any]) -> Any:
        scenario, given = Scenario(namespace="n"), always | options
        if "sqs" in given:
            given["sqs"] = scenario.sqs
        records = [sqs_record(f"m{n}", json.dumps(body)) for n, body in enumerate(bodies or [{"id": "7"}])]
        scenario.keys_of = {record["messageId"]: ("n#7", f"n#{record['messageId']}") for record in records}
        scenario.worker(function, **given).deliver(*records, seconds=seconds)
        scenario.run()
        return see(scenario)

    return observe


def answer(scenario: Scenario) -> list[str]:
    return scenario.workers[0].answers[0]


def item(scenario: Scenario) -> dict[str, Any]:
    (only,) = scenario.memory.items.values()
    return only


def bodies_handled(options: dict[str, Any]) -> list[Any]:
    seen: list[Any] = []

    def look(body: dict) -> None:
        seen.append(body)

    consumed(lambda scenario: None, look, [{"detail": {"n": 1}}])(options)
    return seen


def most_at_once(options: dict[str, Any]) -> int:
    running, most = [], []

    async def overlap(body: dict) -> None:
        running.append(body)
        most.append(len(running))
        await asyncio.sleep(0.1)
        running.pop()

    consumed(lambda scenario: None, overlap, [{"n": n} for n in range(5)])(options)
    return max(most)


def lease_beyond_deadline(options: dict[str, Any]) -> float:
    scenario, seen = Scenario(), []

    def look(body: dict) -> None:
        lease_seconds = item(scenario)["in_progress_expiration"] / 1000 - scenario.epoch_seconds
        seen.append(lease_seconds - current_claim().remaining_time_ms() / 1000)

    scenario.worker(look, **options).deliver(sqs_record("m"))
    scenario.run()
    return round(seen[0], 1)


def executors_made(options: dict[str, Any]) -> int:
    made: list[Any] = []

    def counted() -> Any:
        made.append(options["executor"]())
        return made[-1]

    consumer = controlled(CountingStore(), logger=Recorder(), metrics=Recorder(), **dict.fromkeys(options, counted))
    consumer(accept)({"Records": [sqs_record("m")]}, Context(ManualClock()))
    return len(made)


# A call, over HTTP or of a function.


def answered(
    see: Callable[[CountingStore, list[Any]], Any],
    *events: dict[str, Any],
    does: Callable[[], Any] = dict,
    seconds: float = 30.0,
    before: Callable[[CountingStore, ManualClock], None] = lambda store, clock: None,
    **always: Any,
) -> Observe:
    """What is seen after these requests, with that much time each: responses, or the types of exceptions."""

    def observe(options: dict[str, Any]) -> Any:
        store, given = CountingStore(), {"clock": ManualClock(), "logger": Recorder(), **always, **options}
        before(store, given["clock"])

        @http_endpoint(store, **given)
        def handle(event: Any, context: Any) -> dict[str, Any]:
            return {"statusCode": 200, **does()}

        answers = []
        for event in events or [request()]:
            try:
                answers.append(handle(event, Context(given["clock"], seconds)))
            except ValueError as error:  # as Lambda would get it
                answers.append({"statusCode": str(error)})
        return see(store, answers)

    return observe


def statuses(store: CountingStore, answers: list[Any]) -> list[Any]:
    return [each["statusCode"] for each in answers]


def only_record(store: CountingStore) -> dict[str, Any]:
    (only,) = store.items.values()
    return only


def days_kept(store: CountingStore, answers: list[Any]) -> int:
    return round((only_record(store)["expiration"] - START_MS / 1000) / 86_400)


def of_the_clocks_time(make: Callable[..., Callable[[], Any]], options: dict[str, Any]) -> bool:
    """Whether that is the time of the record."""
    store = CountingStore()
    make(store, dict, options)()
    return bool(only_record(store)["expiration"] == START_MS // 1000 + 30 * 86_400)


def lease_while_running(make: Callable[..., Callable[[], Any]], options: dict[str, Any]) -> float:
    """The seconds from the deadline, 30 s ahead, to the lease's end."""
    store, seen = CountingStore(), []
    make(store, lambda: seen.append(only_record(store)["in_progress_expiration"]) or {}, MANUAL | options)()
    return round((seen[0] - START_MS) / 1000 - 30, 1)


def endpoint(store: CountingStore, does: Callable[[], Any], options: dict[str, Any]) -> Callable[[], Any]:
    handle = http_endpoint(store, **options)(lambda event, context: {"statusCode": 200, **does()})
    return lambda: handle(request(), Context(ManualClock()))


def function(store: CountingStore, does: Callable[[], Any], options: dict[str, Any]) -> Callable[[], Any]:
    wrapped = idempotent(store, key=lambda context: "1", **options)(lambda context: does())
    return lambda: wrapped(Context(ManualClock()))


def consumer(store: CountingStore, does: Callable[[], Any], options: dict[str, Any]) -> Callable[[], Any]:
    handle = controlled(store, logger=Recorder(), metrics=Recorder(), **options)(accept)
    return lambda: handle({"Records": [sqs_record("m")]}, Context(ManualClock()))


MANUAL = {"clock": ManualClock()}


def raised() -> dict[str, Any]:
    raise ValueError("its text")


def held(store: CountingStore, clock: ManualClock) -> None:
    """Another call holds the key for five seconds."""
    record = Record(
        id="tests#k-1",
        status=Status.INPROGRESS,
        version="theirs",
        attempts=1,
        expiration=START_MS // 1000 + 86_400,
        in_progress_expiration=START_MS + 5_000,
    )
    store.items["tests#k-1"] = dict(attributes(record))


def called(
    see: Callable[[CountingStore, list[Any]], Any],
    *orders: dict[str, Any],
    does: Callable[[], Any] = dict,
    seconds: float | None = 30.0,
    **always: Any,
) -> Observe:
    """What is seen after calls with these arguments: results, or the types of exceptions."""

    def observe(options: dict[str, Any]) -> Any:
        store, given = (
            CountingStore(),
            {"key": lambda order, context: order["id"], "clock": ManualClock(), **always, **options},
        )

        @idempotent(store, **given)
        def handle(order: dict[str, Any], context: Any) -> Any:
            return does()

        results = []
        for order in orders or [{"id": "1"}]:
            try:
                results.append(handle(order, seconds and Context(given["clock"], seconds)))
            except Exception as error:  # noqa: BLE001  # any is looked at
                results.append(type(error).__name__)
        return see(store, results)

    return observe


def results_of(store: CountingStore, results: list[Any]) -> list[Any]:
    return results


def stored(see: Callable[[DynamoDBStore], Any]) -> Observe:
    return lambda options: see(DynamoDBStore(**{"table_name": "records"} | options))
