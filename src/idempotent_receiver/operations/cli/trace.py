"""The command `receiver trace`: everything known about one key, from every source."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated

import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Group
from rich.text import Text

from idempotent_receiver.dynamodb.codes import code_of
from idempotent_receiver.operations.account import UsageError
from idempotent_receiver.operations.cli.command import of_a_deployment
from idempotent_receiver.operations.cli.common_options import NO_ARCHIVE
from idempotent_receiver.operations.cli.deployment import Deployment
from idempotent_receiver.operations.cli.records import record_table, record_values
from idempotent_receiver.operations.cli.terminal import Exit, Terminal, counted, listing, moment
from idempotent_receiver.operations.dead_letters.cause import cause_of
from idempotent_receiver.operations.dead_letters.dead_letter import DeadLetter
from idempotent_receiver.operations.dead_letters.history import NotKept, in_doubt
from idempotent_receiver.operations.dead_letters.queue import DeadLetterQueue
from idempotent_receiver.operations.records import written_ms
from idempotent_receiver.operations.trace import (
    Hook,
    TraceEvent,
    in_order,
    log_pattern,
    of_act,
    of_dead_letter,
    of_execution,
    of_hook,
    of_log,
    of_record,
    of_resend,
)
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.protocol.store import Unknown

LOOK_HOLD_SECONDS = 30
"""Seconds that dead letters stay invisible to others if the command dies while reading them."""

MOST_LINES = 100
MOST_LOG_SECONDS = 10.0
LOG_MS = 14 * 24 * 60 * 60 * 1000
BEFORE_MS = 60 * 60 * 1000
"""The log search starts an hour before the earliest known event, but at most two weeks ago. CloudWatch reads every line
since then, so the search is limited to ten seconds.
"""

NOW = "now"
RECORD, LOG = "record", "log"
A_TAKE = 100


@dataclass
class Story:
    """The trace of one key. A source that cannot be read is named, and the trace continues without it.

    `keys` holds the key and its messageIds, and `ids` the ids of its records.
    """

    key: str
    deployment: Deployment
    terminal: Terminal
    found: Record | None = None
    events: list[TraceEvent] = field(default_factory=list)
    absent: list[TraceEvent] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ids = self.deployment.ids_of(self.key)
        self.keys = dict.fromkeys([self.key, self.deployment.key_of(self.ids[0])])
        self.linked: list[str] = []
        self.now_ms = self.terminal.clock.epoch_ms()

    @contextmanager
    def _reading(self, source: str, on: str = "the dead-letter queue") -> Iterator[None]:
        try:
            yield
        except ClientError as error:
            self.unread[source] = _refused(error, on)
        except (UsageError, NotKept, BotoCoreError) as error:
            self.unread[source] = str(error)

    def record(self) -> None:
        """Add the key's record."""
        found = next((each for each in self.deployment.store.read(self.ids) if each is not None), None)
        if isinstance(found, Unknown):
            self.unread[RECORD] = found.why
        elif found is None:
            own = self.deployment.description.store
            place = self.deployment.table if own is None else "the database of --consumer"
            self.absent.append(TraceEvent(None, RECORD, f"no record with the id {self.ids[-1]} in {place}"))
        else:
            self.found = found
            self.keys[self.deployment.key_of(found.id)] = None
            retention = self.deployment.known_retention(found.id)
            self.events += of_record(RECORD, found, self.now_ms, retention, self.deployment.key_of)
            if found.execution is not None:
                self._execution(found.execution)

    def _execution(self, arn: str) -> None:
        with self._reading("execution", arn):
            self.events += of_execution(self.deployment.client("stepfunctions").describe_execution(executionArn=arn))

    def dead_letters(self, limit: int, stopped: Callable[[], bool]) -> None:
        """Add the key's dead letters. Reads about `limit` in the queue and releases them at once."""
        with self._reading("dead letters"):
            if not self.deployment.has_dead_letters:
                none = f"none: {self.deployment.queue.url} has no redrive policy"
                self.absent.append(TraceEvent(None, "dead letters", none))
                return
            url, reader = self.deployment.dead_letter_queue.url, self.deployment.reader()
            if url.endswith(".fifo"):
                self.terminal.note(
                    "While this command reads dead letters, SQS delivers no other messages of their groups."
                )
            clock, looked = self.terminal.clock, 0
            queue = DeadLetterQueue(self.deployment.client("sqs"), url, clock, hold_seconds=LOOK_HOLD_SECONDS)
            try:
                while looked < limit and not stopped() and (raws := queue.take(min(A_TAKE, limit - looked), stopped)):
                    looked += len(raws)
                    for raw in raws:
                        self._dead_letter(reader.read(raw, self.now_ms))
            finally:
                queue.release()
            if (about := queue.count()) > looked:
                self.terminal.note(
                    f"Looked at {looked} of about {counted(about, 'dead letter')} (see --limit; "
                    "those held by others are not visible)."
                )

    def _dead_letter(self, each: DeadLetter) -> None:
        first = None if each.stamp is None else each.stamp.original_id
        if each.record_id not in self.ids and self.key not in (each.id, first):
            return
        conflict = self.found is not None and self.found.differs(each.fingerprint)
        cause = cause_of(each, self.found, self.now_ms, conflict=conflict)
        self.events += of_dead_letter(each, cause.reason)
        self.keys |= dict.fromkeys(name for name in (each.id, first) if name is not None)
        if first is not None:
            self.linked += self.deployment.ids_of(first)

    def history(self) -> None:
        """Add what operators did with the key's dead letters."""
        kept = self.deployment.history(self.terminal)
        with self._reading("history"):
            acts = [act for id in dict.fromkeys([*self.ids, *self.keys]) for act in kept.of_key(id)]
            doubts = in_doubt(acts)
            self.events += [of_act(each, self.deployment.key_of, doubt=each in doubts) for each in acts]
            self.linked += [each.other for each in acts if each.other]
            if kept.foreign:
                self.terminal.note(f"Left out: {counted(kept.foreign, 'item')} of {kept.table} that are not actions.")

    def resends(self) -> None:
        """Add resends from the records of related keys."""
        others = [id for id in dict.fromkeys(self.linked) if id not in self.ids]
        for found in self.deployment.store.read(others) if others else ():
            if isinstance(found, Unknown):
                self.unread["resend"] = found.why
            elif found is not None:
                self.events += of_resend(found, self.ids, self._written_ms(found), self.deployment.key_of)

    def _written_ms(self, record: Record) -> int | None:
        return written_ms(record, self.now_ms, self.deployment.known_retention(record.id))

    def log(self) -> None:
        """Add the consumer's log lines, as far as the limits allow."""
        group = self.deployment.outputs.get("ConsumerLogGroup")
        if group is None:
            self.unread[LOG] = "no stack output ConsumerLogGroup"
            return
        known = [each.at_ms for each in self.events if each.at_ms is not None and each.at_ms <= self.now_ms]
        # A record of unknown age may be older than all else that is known, but not older than its message.
        dated = (
            self.found is None or self._written_ms(self.found) or any(each.source == "message" for each in self.events)
        )
        since_ms = max(self.now_ms - LOG_MS, min(known if dated else [], default=0) - BEFORE_MS)
        until = self.terminal.clock.monotonic_seconds() + MOST_LOG_SECONDS
        lines: list[TraceEvent] = []
        asked = {"logGroupName": group, "filterPattern": log_pattern(self.keys), "startTime": since_ms}
        with self._reading(LOG, group):
            pages = self.deployment.client("logs").get_paginator("filter_log_events").paginate(**asked)
            for page in pages:
                lines += [event for line in page["events"] for event in of_log(line, self.keys)]
                more = "nextToken" in page
                if more and (len(lines) >= MOST_LINES or self.terminal.clock.monotonic_seconds() >= until):
                    last = moment(max([since_ms, *(each.at_ms or 0 for each in lines)]))
                    self.unread[LOG] = f"too many lines to search after {last}"
                    break
        self.events += lines[:MOST_LINES]

    def hook(self, name: str, hook: Hook) -> None:
        """Add what the application's hook returns."""
        try:
            self.events += of_hook(name, hook(self.key, self.found))
        except Exception as error:  # noqa: BLE001  # a failing hook must not hide the rest
            self.unread[name] = f"{type(error).__name__}: {error}"

    def answer(self) -> None:
        """Print the trace, with the record first."""
        events = in_order([*self.events, *self.absent], self.now_ms)
        told = [
            {"at": None if each.at_ms is None else moment(each.at_ms), "source": each.source, "text": each.text}
            for each in events
        ]
        unread = [{"source": source, "why": why} for source, why in self.unread.items()]
        rows = [((each["at"] or NOW, each["source"]), (each["text"],)) for each in told]
        for each in unread:
            self.terminal.note(f"Not read: {each['source']}: {each['why']}")
        record = None if self.found is None else record_values(self.found, self.deployment, self.now_ms)
        status = record["status"] if record else "NOT_READ" if RECORD in self.unread else "ABSENT"
        id = self.ids[-1] if self.found is None else self.found.id
        values = {"key": self.deployment.key_of(id), "id": id, "status": status, "record": record}
        shown = listing(("at", "source"), rows)
        self.terminal.answer(
            {**values, "events": told, "unread": unread},
            shown if record is None else Group(record_table(record), Text(), shown),
        )


def _refused(error: ClientError, on: str) -> str:
    """AWS's error; for a missing permission, the permission and its resource."""
    code, operation = code_of(error), error.operation_name
    if "AccessDenied" not in code:
        return str(error)
    service = {"DescribeExecution": "states", "FilterLogEvents": "logs"}.get(operation, "sqs")
    return f"{code}: allow {service}:{operation.removesuffix('Batch')} on {on}"


@of_a_deployment
def trace(
    *,
    key: Annotated[str, typer.Argument(help="The key, as `stuck` and `dlq list` print it, or a full record id.")],
    deployment: Deployment,
    terminal: Terminal,
    hook: Annotated[
        str | None,
        typer.Option(help="Your function that adds events, as module:function; it receives the key and its record."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Read at most this many dead letters.")] = 1000,
) -> None:
    """Show everything known about one key.

    The record and its result come first. Then, in chronological order: the record's last write, its workflow execution,
    its dead letters, operators' actions, log lines, and events from your hook. The time of the write is derived from
    the record's expiry. To find dead letters, the command briefly holds those that it reads. For HTTP requests and
    functions, --table is enough.
    """
    if not key:
        raise UsageError("KEY is empty: give a message's key, as its log line shows it")
    deployment.options.refuse("trace", archive=NO_ARCHIVE)
    if not deployment.names_queue:
        deployment.options.refuse("trace without a queue", dlq="give --queue or --stack as well")
    asked = None if hook is None else resolved(hook)
    story = Story(key, deployment, terminal)
    story.record()
    halted = False
    if deployment.names_queue:
        with terminal.stoppable() as stopped:
            story.dead_letters(limit, stopped)
            halted = stopped()
    if deployment.names_queue or deployment.history_table is not None:
        story.history()
    story.resends()
    story.log()
    if hook is not None and asked is not None:
        story.hook(hook, asked)
    story.answer()
    unread = story.unread.keys() - {LOG}
    if not (story.events or unread):
        terminal.note(f"Nothing is known about {key}: check the key and --consumer. Its record may have expired.")
    if halted:
        raise typer.Exit(Exit.STOPPED)
    if RECORD in unread:
        raise typer.Exit(Exit.AWS)
    if unread or not story.events:
        raise typer.Exit(Exit.LEFT)


def resolved(hook: str) -> Hook:
    """The function that module:function names; it may be in the current folder. Raises UsageError if there is none."""
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Hook = resolve_name(hook if ":" in hook else f"{hook}:")
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"--hook {hook}: {error}; give module:function, importable from the current folder") from None
    finally:
        del sys.path[0]
    if not callable(found):
        raise UsageError(f"--hook {hook} is not a function: give module:function")
    return found
