"""What `show` and `stuck` say of records: tables for people, plain values for scripts."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from idempotent_receiver.operations.cli.layout import clean, command, counted, line, listing, row
from idempotent_receiver.operations.records import error_of, permanent, reason_in
from idempotent_receiver.operations.scan import Scan
from idempotent_receiver.protocol.record import Record, Status

LABEL = len("written about")
UNDATED = "give --retention-days to see when"
MAX_SKEW_MS = 60_000
"""How far a worker's clock may be ahead of the operator's."""

TAKEN_OVER = """\
The next delivery or request takes the claim over: nothing to type. If none comes:
{redrive}
If it is no dead letter, it is an orphan: see docs/operating.md, "Orphans"."""
TRIED_AGAIN = """\
The next delivery or request tries the key again. If it is a dead letter by now:
{redrive}"""
FIXED_FIRST = """\
Fix the cause; trying again does not help before that. Then:
{redrive_permanent}"""
ANSWERED = """\
These belong to a workflow. A failure is an answer: retry under another key.
What is overdue is resumed by its sweep. See docs/workflow.md, "Operating it\"."""

KINDS = {
    "unsettled": ("Claims that nobody settled", TAKEN_OVER),
    "failing": ("Keys that failed, and are tried again", TRIED_AGAIN),
    "permanent": ("Keys that failed for good", FIXED_FIRST),
    "workflow": ("Workflow executions that failed, or are overdue", ANSWERED),
}
"""What a scan names: its title, and what becomes of it."""


def moment(epoch_ms: int) -> str:
    """A time, as ISO 8601 in UTC."""
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def record_values(found: Record, key: str, now_ms: int, retention_seconds: int) -> dict[str, Any]:
    """A record as a script reads it; its status is EXPIRED where it counts as absent."""
    error = error_of(found)
    until = found.lease_until_ms if found.status == Status.INPROGRESS else None
    return {
        "key": key,
        "id": found.id,
        "status": "EXPIRED" if found.expired(now_ms) else found.status,
        "was": found.status,
        "attempts": found.attempts,
        "owner": found.owner,
        "lease_until": None if until is None else moment(until),
        "lease_left_seconds": None if until is None else max(0, (until - now_ms) // 1000),
        "error": reason_in(error),
        "error_type": error.get("type"),
        "error_at": error.get("at"),
        "permanent": permanent(found),
        "written_about": _written(found, now_ms, retention_seconds),
        "expires": None if found.expiration is None else moment(found.expiration * 1000),
        "result": _result(found.data),
        "unreadable": found.unreadable,
    }


def _written(found: Record, now_ms: int, retention_seconds: int) -> str | None:
    """About when it was written; None where that would be in the future, since its retention is not known here."""
    if found.expiration is None:
        return None
    written_ms = (found.expiration - retention_seconds) * 1000
    return None if written_ms > now_ms + MAX_SKEW_MS else moment(written_ms)


def _result(data: str | None) -> Any:
    try:
        return None if data is None else json.loads(data)
    except (ValueError, RecursionError):
        return data


def record_table(values: dict[str, Any]) -> RenderableType:
    """A record as a person reads it."""
    shown = {**values, "lease_left": _lease(values)}
    if values["status"] == "EXPIRED":
        shown["status"] = f"EXPIRED (it was {values['was']}; the key is free again)"
    if undated(values):
        shown["written_about"] = UNDATED
    if values["result"] is not None:
        shown["result"] = json.dumps(values["result"], ensure_ascii=False, indent=2)
    table = Table(show_header=False, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(min_width=LABEL)
    table.add_column(overflow="fold")
    names = ("status", "attempts", "owner", "lease_left", "error", "error_type", "error_at")
    for name in (*names, "written_about", "expires", "result", "unreadable"):
        if shown[name] is not None:
            row(table, name.replace("_", " "), shown[name])
    return Group(*(line((name, clean(values[name])), (LABEL, 0)) for name in ("key", "id")), table)


def undated(values: dict[str, Any]) -> bool:
    """Whether it is not known when a record was written, because it is not known how long it lasts."""
    return values["expires"] is not None and values["written_about"] is None


def _lease(values: dict[str, Any]) -> str | None:
    until, left = values["lease_until"], values["lease_left_seconds"]
    if until is None:
        return None
    return f"{timedelta(seconds=left)}, until {until}" if left else f"over since {until}"


def scan_values(
    scan: Scan, namespace: str | None, key_of: Callable[[str], str], now_ms: int, retention_seconds: int
) -> dict[str, Any]:
    """What a scan found in a namespace, or without one in the whole table, as a script reads it."""

    def values(record: Record) -> dict[str, Any]:
        whole = record_values(record, key_of(record.id), now_ms, retention_seconds)
        return {name: value for name, value in whole.items() if name not in ("was", "result")}

    return {
        "scanned": scan.scanned,
        "namespace": namespace,
        "own": scan.own,
        "given_back_count": scan.released_count,
        **{f"{kind}_count": count for kind, count in scan.counts.items()},
        **{kind: [values(record) for record in records] for kind, records in scan.named.items()},
    }


def scan_tables(values: dict[str, Any], options: Sequence[str]) -> RenderableType:
    """What a scan found, as a person reads it, and below each kind what becomes of it.

    With the `options`, a command means the same consumer.
    """
    records = counted(values["scanned"], "record")
    if values["namespace"] is not None:
        are = "is" if values["own"] == 1 else "are"
        records = f"{values['own']} of {records} {are} in the namespace {values['namespace']}"
    summary = (
        f"{records}: {counted(values['unsettled_count'], 'claim')} that nobody settled, "
        f"{values['given_back_count']} released and waiting, {counted(values['failing_count'], 'key')} failing, "
        f"{values['permanent_count']} failed for good"
    )
    if values["workflow_count"]:
        summary += f", {counted(values['workflow_count'], 'workflow execution')} failed or overdue"
    shown: list[RenderableType] = [Text(clean(f"{summary}."))]
    for kind, (title, then) in KINDS.items():
        if values[kind]:
            told = Text(advice(then, options), style="italic")
            shown += [Text(""), Text(title, style="bold"), _named(kind, values[kind]), told]
    return Group(*shown)


def advice(then: str, options: Sequence[str]) -> str:
    """What becomes of a kind, with commands that run as they stand once KEY is filled in."""
    redrive = ("receiver dlq redrive", *options)
    return then.format(
        redrive=command(*redrive, "--key KEY"), redrive_permanent=command(*redrive, "--include-permanent", "--key KEY")
    )


def _named(kind: str, records: Sequence[dict[str, Any]]) -> RenderableType:
    head, time = ("lease over since", "lease_until") if kind == "unsettled" else ("written about", "written_about")
    rows = [
        (
            (each["key"], each["status"], each["attempts"], each[time]),
            (each["error"], each["owner"] and f"owner: {each['owner']}"),
        )
        for each in records
    ]
    shown = listing(("key", "status", "attempts", head), rows)
    if kind != "unsettled" and any(map(undated, records)):
        return Group(shown, Text(f"written about: {UNDATED}"))
    return shown
