"""Wraps a deployed handler on the local cloud: records what happens to each message, and injects faults.

A copy of this file next to the function's code serves as the function's handler. It writes notes as JSON lines to a
file that survives the process, and copies the function's output to another. There are three modes:

- No faults.
- One message in the first batch fails once, without reaching its handler. The others in the batch do not fail.
- Workers are killed. The first message to reach its handler is offered to a second worker while the first runs it;
  then the first worker dies, after the handler has returned and before anything is recorded. The first worker to finish
  a batch dies just before responding, with everything recorded and nothing acknowledged. Every message's first
  acknowledgement is lost, so SQS redelivers it.

The local cloud deletes every message in a batch whose response AWS would reject. Here, such a response has the same
effect as on AWS.

It imports nothing from the library at the top level: the function may use a different version, or none. Without the
library, each delivery counts as a run.
"""

import contextlib
import functools
import importlib
import inspect
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

VARIABLE = "RECEIVER_LOCAL"
"""The environment variable with the settings, as JSON: `handler`, `folder`, `queue_url`, `faults`; `partial`, which
says whether the mapping uses partial batch responses; and `observed`, which says that messages are noted whole, because
this is another function, to whose queue the one under trial may send.
"""
NONE, ONE_FAILS, KILLS = "none", "one fails", "kills"
"""The values of `faults`."""
PING = {"receiver local": "are you there?"}
"""An event that only imports the handler."""
MEETING_SECONDS, LONGEST_MEETING_SECONDS, MEETING_LOOK_SECONDS = 0.5, 3.0, 0.05
"""How long the first handler waits after a second worker has received its message, how long it waits at most for that
delivery, and the interval between its checks.
"""

settings: dict[str, Any] = json.loads(os.environ.get(VARIABLE, "{}"))


def note(what: str, **said: object) -> None:
    """Write a note, whole or not at all."""
    line = {"at_ms": time.time_ns() // 1_000_000, "what": what, "process": os.getpid(), **said}
    with (Path(settings["folder"]) / "log.jsonl").open("ab", buffering=0) as file:
        file.write(json.dumps(line).encode() + b"\n")


def lines() -> list[dict[str, Any]]:
    """All notes so far, from all processes."""
    return [json.loads(line) for line in (Path(settings["folder"]) / "log.jsonl").read_bytes().splitlines()]


def first(name: str) -> bool:
    """Whether this is the first call with `name` in any process."""
    try:
        (Path(settings["folder"]) / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


class Copied:
    """A stream that also copies every printed line to a file, which survives the process."""

    def __init__(self, stream: Any, copy: Any) -> None:
        self._stream, self._copy, self._line = stream, copy, ""

    def write(self, text: str) -> int:
        """Print text, which may end within a line."""
        *lines, self._line = (self._line + text).split("\n")
        self._copy.write("".join(f"{line}\n" for line in lines).encode(errors="replace"))
        return int(self._stream.write(text))

    def writelines(self, texts: Iterable[str]) -> None:
        """Print texts."""
        for text in texts:
            self.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def crash(place: str, done: Sequence[str] = ()) -> None:
    """Kill this process without cleanup, like a crash. SQS redelivers the messages in `done`, which were handled."""
    note("killed", place=place, ids=done)
    offer_again(deliveries.handles[id] for id in done)
    os.kill(os.getpid(), signal.SIGKILL)


def offer_again(handles: Iterable[str]) -> None:
    """Make the messages with these receipt handles visible at once. Has no effect on messages already redelivered."""
    import boto3  # noqa: PLC0415  # the function's own version, once its handler has been imported
    from botocore.exceptions import ClientError  # noqa: PLC0415

    sqs = boto3.client("sqs")
    for handle in handles:
        with contextlib.suppress(ClientError):
            sqs.change_message_visibility(QueueUrl=settings["queue_url"], ReceiptHandle=handle, VisibilityTimeout=0)


def meet(id: str, handle: str, seconds: float) -> None:
    """Offer a message to a second worker, and wait up to `seconds` until that worker receives it."""
    offer_again([handle])
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        time.sleep(MEETING_LOOK_SECONDS)
        if any(
            line["what"] == "delivered" and line["process"] != os.getpid() and id in line["ids"] for line in lines()
        ):
            time.sleep(MEETING_SECONDS)
            return


class Planned(Exception):  # the name appears in the log
    """A planned failure of one message in a batch, not the handler's own."""


class Deliveries:
    """The messages that this process has received: the latest batch's receipt handles, and all message ids by key."""

    def __init__(self) -> None:
        self.handles: dict[str, str] = {}
        self.ids: dict[str, str] = {}

    def take(self, records: Iterable[Mapping[str, Any]], remaining_ms: int) -> None:
        """Note a batch, and when the function's timeout ends its process."""
        self.handles = {record["messageId"]: record.get("receiptHandle", "") for record in records}
        note(
            "delivered",
            ids=list(self.handles),
            handles=self.handles,
            until_ms=time.time_ns() // 1_000_000 + remaining_ms,
            messages=[*map(dict, records)] if settings.get("observed") else [],
        )

    def read_stamps(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Note the keys in the stamps of redriven messages."""
        for record in records:
            with contextlib.suppress(KeyError, TypeError, ValueError):
                stamp = record["messageAttributes"]["idempotent-receiver"]["stringValue"]
                self.has_key(record["messageId"], json.loads(stamp)["key"])

    def has_key(self, id: str, key: str) -> None:
        """Note the key of a message whose key is not simply its id."""
        self.ids[key] = id
        note("keyed", id=id, key=key)

    def keyed(self, strategy: Callable[[Any], str]) -> Callable[[Any], str]:
        """The key strategy, wrapped to note each key."""

        @functools.wraps(strategy)
        def key(message: Any) -> str:
            found = strategy(message)
            self.has_key(message.id, found)
            return found

        return key


deliveries = Deliveries()


def watched(function: Callable[..., Any], current_claim: Callable[[], Any]) -> Callable[..., Any]:
    """The function for one message, wrapped to note each start and end."""

    def begun() -> str:
        claim = current_claim()
        if settings["faults"] == ONE_FAILS and first("failed"):
            note("spoiled", key=claim.key, record=claim.id)
            raise Planned("`receiver local` makes this message fail once")
        note(
            "started",
            key=claim.key,
            record=claim.id,
            attempt=claim.attempt,
            idempotency_key=getattr(claim, "idempotency_key", None),
        )
        id = deliveries.ids.get(claim.key, claim.key)
        if settings["faults"] == KILLS and id in deliveries.handles and first("met"):
            meet(id, deliveries.handles[id], min(LONGEST_MEETING_SECONDS, claim.remaining_time_ms() / 2000))
        key: str = claim.key
        return key

    def ended(key: str, error: BaseException | None = None) -> None:
        note(
            "ended",
            key=key,
            error=None if error is None else f"{type(error).__name__}: {error}".removesuffix(": ")[:200],
        )
        if settings["faults"] == KILLS and error is None and first("killed-before"):
            crash("before recording the result")

    @functools.wraps(function)
    def run(*arguments: Any) -> Any:
        key = begun()
        try:
            result = function(*arguments)
        except BaseException as error:
            ended(key, error)
            raise
        ended(key)
        return result

    @functools.wraps(function)
    async def run_async(*arguments: Any) -> Any:
        key = begun()
        try:
            result = await function(*arguments)
        except BaseException as error:
            ended(key, error)
            raise
        ended(key)
        return result

    asynchronous = map(inspect.iscoroutinefunction, (function, type(function).__call__))
    return run_async if any(asynchronous) else run


@functools.cache
def shipped() -> tuple[Callable[[Any, Any], Any], bool, list[str]]:
    """The function's own handler, and whether it contains this library's consumer, which is then observed from inside;
    if not, the consumers that its module has.

    Loaded at a process's first event, so that an import error becomes the response to that event.
    """
    module, _, name = settings["handler"].rpartition(".")
    code = importlib.import_module(module.replace("/", "."))
    handler = getattr(code, name)
    if "idempotent_receiver.sqs.consumer" not in sys.modules:
        return handler, False, []
    handlers = importlib.import_module("idempotent_receiver.sqs.handlers")
    if (consumer := handlers.consumer_inside(handler)) is None:
        return handler, False, handlers.names_in(code)
    library = importlib.import_module("idempotent_receiver")
    options = consumer.options
    note(
        "consumer",
        table=getattr(options.store, "table_name", None),
        database=_database(options.store),
        claims=options.effects == "any",
    )
    if options.key is not library.message_id:
        options = replace(options, key=deliveries.keyed(options.key))
    consumer._handle = consumer.with_options(options, watched(consumer.__wrapped__, library.current_claim))  # noqa: SLF001
    return handler, True, []


def _database(store: Any) -> dict[str, str] | None:
    """The file of an SQLite database, and the name of the table with the records, if that is what a store uses."""
    engine: Any = getattr(store, "engine", None)
    if engine is None or engine.name != "sqlite":
        return None
    return {"file": engine.url.database, "table": store.table.name}


def lambda_handler(event: Any, context: Any) -> Any:
    """Handle an event as the function's own handler does, then apply faults to the response."""
    handler, inside, named = shipped()
    if event == PING:
        return {"consumer": inside, "named": named}
    records = event["Records"]
    deliveries.take(records, context.get_remaining_time_in_millis())
    if inside:
        deliveries.read_stamps(records)
    else:
        for id in deliveries.handles:
            note("started", key=id, record=None, attempt=None)
    try:
        answer = handler(event, context)
    except BaseException:
        note("raised", ids=[*deliveries.handles])
        raise
    done = acknowledged(answer, [*deliveries.handles], partial=settings["partial"])
    if not inside:
        for id in deliveries.handles:
            note("ended", key=id, error=None if id in done else "unknown")
    return _answered(done)


def acknowledged(answer: Any, ids: Sequence[str], *, partial: bool) -> list[str]:
    """The messages in a batch that Lambda deletes from the queue after this response, by AWS's rules.

    Empty if Lambda cannot tell which failed: an id is missing, empty, or not in this batch.
    """
    failures = answer.get("batchItemFailures") if partial and isinstance(answer, dict) else None
    if not failures:
        return [*ids]
    try:
        failed = {each["itemIdentifier"] for each in failures}
    except (KeyError, TypeError):
        return []
    return [id for id in ids if id not in failed] if failed <= {*ids} else []


def _answered(done: list[str]) -> Any:
    """The response as Lambda receives it, unless the process is killed first."""
    kills = settings["faults"] == KILLS
    if kills and done and first("killed-after"):
        crash("before responding", done)
    lost = [id for id in done if kills and first(f"lost-{id}")]
    failed = [id for id in deliveries.handles if id not in done]
    note("answered", ids=[id for id in done if id not in lost], lost=lost, failed=failed)
    if lost:
        offer_again(deliveries.handles[id] for id in lost)
        if not settings["partial"]:
            raise ConnectionError("the acknowledgement was lost")
    return {"batchItemFailures": [{"itemIdentifier": id} for id in (*failed, *lost)]}


if settings:
    printed = (Path(settings["folder"]) / "printed.log").open("ab", buffering=0)
    sys.stdout, sys.stderr = Copied(sys.stdout, printed), Copied(sys.stderr, printed)
