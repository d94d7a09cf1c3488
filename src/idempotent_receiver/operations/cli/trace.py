"""The command `receiver trace`: one key's story, from every place that knows something of it."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated

import typer
from botocore.exceptions import BotoCoreError, ClientError

from idempotent_receiver.dynamodb.errors import code_of
from idempotent_receiver.operations.account import UsageError
from idempotent_receiver.operations.cli.deployment import Deployment, of_a_deployment
from idempotent_receiver.operations.cli.terminal import Exit, Terminal, counted, listing, moment
from idempotent_receiver.operations.dead_letters.cause import cause_of
from idempotent_receiver.operations.dead_letters.history import NotKept
from idempotent_receiver.operations.dead_letters.queue import DeadLetterQueue
from idempotent_receiver.operations.trace import (
    Event,
    Hook,
    in_order,
    of_act,
    of_dead_letter,
    of_execution,
    of_hook,
    of_record,
)
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.protocol.store import Unknown

HOLD_SECONDS = 30
"""How long dead letters stay invisible to others if the command dies while it looks at them."""

NOW = "now"


@dataclass
class Story:
    """One key's story as it is gathered; what could not be read is named, and the story goes on without it."""

    key: str
    deployment: Deployment
    terminal: Terminal
    events: list[Event] = field(default_factory=list)
    absent: list[Event] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ids = self.deployment.ids_of(self.key)
        self.now_ms = self.terminal.clock.epoch_ms()

    @contextmanager
    def _reading(self, source: str, on: str = "the dead-letter queue") -> Iterator[None]:
        try:
            yield
        except ClientError as error:
            self.unread[source] = _refused(error, on)
        except (UsageError, NotKept, BotoCoreError) as error:
            self.unread[source] = str(error)

    def record(self, source: str, table: str, ids: list[str]) -> Record | None:
        """Tell of the record with the first of these ids that there is."""
        found = next((each for each in self.deployment.store_in(table).read(ids) if each is not None), None)
        if isinstance(found, Unknown):
            self.unread[source] = found.why
        elif found is None:
            self.absent.append(Event(None, source, f"there is none with the id {ids[0]} in {table}"))
        else:
            self.events += of_record(source, found, self.now_ms, self.deployment.retention_seconds)
            return found
        return None

    def execution(self, arn: str) -> None:
        """Tell of a workflow's execution."""
        with self._reading("execution", arn):
            self.events += of_execution(self.deployment.client("stepfunctions").describe_execution(executionArn=arn))

    def dead_letters(self, found: Record | None, limit: int, stopped: Callable[[], bool]) -> None:
        """Tell of the key's dead letters among about `limit`; all of them are released at once."""
        with self._reading("dead letters"):
            url, reader = self.deployment.dead_letter_queue.url, self.deployment.reader()
            if url.endswith(".fifo"):
                self.terminal.note("While dead letters are looked at, SQS gives out nothing more of their groups.")
            clock = self.terminal.clock
            queue = DeadLetterQueue(self.deployment.client("sqs"), url, clock, hold_seconds=HOLD_SECONDS)
            try:
                taken = [reader.read(raw, self.now_ms) for raw in queue.take(limit, stopped)]
            finally:
                queue.release()
            for each in taken:
                if each.record_id in self.ids or each.id == self.key:
                    conflict = found is not None and found.differs(each.fingerprint)
                    cause = cause_of(each, found, self.now_ms, conflict=conflict)
                    self.events += of_dead_letter(each, cause.reason)
            if (about := queue.count()) > len(taken):
                self.terminal.note(
                    f"Looked at {len(taken)} of about {counted(about, 'dead letter')} (see --limit; "
                    "what others hold is not seen)."
                )

    def history(self) -> None:
        """Tell what operators did with the key's dead letters."""
        kept = self.deployment.history(self.terminal)
        with self._reading("history"):
            for id in dict.fromkeys([*self.ids, self.key]):
                self.events += map(of_act, kept.of_key(id))

    def hook(self, name: str, hook: Hook, found: Record | None) -> None:
        """Tell what the application adds."""
        try:
            self.events += of_hook(name, hook(self.key, found))
        except Exception as error:  # noqa: BLE001  # whatever it is, the rest of the story stands
            self.unread[name] = f"{type(error).__name__}: {error}"

    def answer(self) -> None:
        """Print the story."""
        events = in_order([*self.events, *self.absent], self.now_ms)
        told = [
            {"at": None if each.at_ms is None else moment(each.at_ms), "source": each.source, "text": each.text}
            for each in events
        ]
        unread = [{"source": source, "why": why} for source, why in self.unread.items()]
        rows = [((each["at"] or NOW, each["source"]), (each["text"],)) for each in told]
        for each in unread:
            self.terminal.note(f"Not read: {each['source']}: {each['why']}")
        values = {"key": self.key, "id": self.ids[0], "events": told, "unread": unread}
        self.terminal.answer(values, listing(("at", "source"), rows))


def _refused(error: ClientError, on: str) -> str:
    """AWS's error; for a missing permission, which one on what."""
    code, operation = code_of(error), error.operation_name
    if "AccessDenied" not in code:
        return str(error)
    service = "states" if operation == "DescribeExecution" else "sqs"
    return f"{code}: allow {service}:{operation.removesuffix('Batch')} on {on}"


@of_a_deployment
def trace(
    *,
    key: Annotated[str, typer.Argument(help="The key as stuck and dlq list print it, or a record's whole id.")],
    deployment: Deployment,
    terminal: Terminal,
    request: Annotated[
        str | None, typer.Option(help="The whole id of the record of the HTTP request that it began with.")
    ] = None,
    request_table: Annotated[str | None, typer.Option(help="The table of that record, if it is another.")] = None,
    hook: Annotated[
        str | None, typer.Option(help="What the application adds: module:function, given the key and its record.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Look at this many dead letters at most.")] = 1000,
) -> None:
    """Tell one key's story.

    Its HTTP request, workflow execution, record, dead letters, what operators did with them, and what a hook of the
    application adds, in the order in which it happened. When a record was written is reckoned from its expiry. To
    find dead letters of the key, the command holds those that it looks at for a moment; then it releases them.
    """
    if not key:
        raise UsageError("KEY is empty: give the key of a message, as its log line has it")
    if request_table is not None and request is None:
        raise UsageError("--request-table needs --request: the whole id of a record in it")
    asked = None if hook is None else resolved(hook)
    story = Story(key, deployment, terminal)
    found = story.record("record", deployment.table, story.ids)
    records = [found]
    if request is not None:
        records.append(story.record("request", request_table or deployment.table, [request]))
    for execution in dict.fromkeys(each.execution for each in records if each is not None and each.execution):
        story.execution(execution)
    with terminal.stoppable() as stopped:
        story.dead_letters(found, limit, stopped)
        halted = stopped()
    story.history()
    if hook is not None and asked is not None:
        story.hook(hook, asked, found)
    story.answer()
    if not (story.events or story.unread):
        terminal.note(f"Nothing is known of {key}: check it, and --consumer. It may never have been claimed.")
    if halted:
        raise typer.Exit(Exit.STOPPED)
    if story.unread or not story.events:
        raise typer.Exit(Exit.LEFT)


def resolved(hook: str) -> Hook:
    """The function that is named as module:function; modules are found from here, too. Raises UsageError."""
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Hook = resolve_name(hook if ":" in hook else f"{hook}:")
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"--hook {hook}: {error}; give module:function, to be imported from here") from None
    finally:
        del sys.path[0]
    if not callable(found):
        raise UsageError(f"--hook {hook} is no function: give module:function")
    return found
