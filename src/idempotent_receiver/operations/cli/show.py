"""The command `receiver show`: what the record of a key says."""

import json
from datetime import timedelta
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.table import Column, Table

from idempotent_receiver.operations.account import UsageError
from idempotent_receiver.operations.cli.deployment import Deployment, of_a_deployment
from idempotent_receiver.operations.cli.terminal import Exit, Terminal, clean, line, moment
from idempotent_receiver.operations.records import error_of, permanent, reason_in
from idempotent_receiver.protocol.record import Record, Status
from idempotent_receiver.protocol.store import Unknown

LABEL = len("written about")
UNDATED = "give --retention-days to see when"
MAX_SKEW_MS = 60_000
"""How far a worker's clock may be ahead of the operator's."""


@of_a_deployment
def show(
    *,
    key: Annotated[str, typer.Argument(help="The key as stuck and dlq list print it, or a record's whole id.")],
    deployment: Deployment,
    terminal: Terminal,
) -> None:
    """Show the record of a key.

    That is its status, attempts, owner, lease, error and result.
    """
    if not key:
        raise UsageError("KEY is empty: give the key of a message, as its log line has it")
    ids = deployment.ids_of(key)
    found = next((each for each in deployment.store.read(ids) if each is not None), None)
    if isinstance(found, Unknown):
        terminal.note(f"the record of {key} could not be read: {found.why}")
        raise typer.Exit(Exit.AWS)
    if found is None:
        text = (
            f"There is no record {ids[-1]} in {deployment.table}: check --namespace. "
            "It may never have been claimed, or its record has expired."
        )
        terminal.answer({"key": deployment.key_of(ids[-1]), "id": ids[-1], "status": None}, clean(text))
        raise typer.Exit(Exit.LEFT)
    values = record_values(found, deployment, terminal.clock.epoch_ms())
    terminal.answer(values, record_table(values))


def record_values(found: Record, deployment: Deployment, now_ms: int) -> dict[str, Any]:
    """A record as a script reads it; its status is EXPIRED where it counts as absent."""
    error = error_of(found)
    until = found.lease_until_ms if found.status == Status.INPROGRESS else None
    return {
        "key": deployment.key_of(found.id),
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
        "written_about": _written(found, now_ms, deployment.retention_seconds),
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
    shown = {**values, "lease": _lease(values)}
    if values["status"] == "EXPIRED":
        shown["status"] = f"EXPIRED (it was {values['was']}; the key is free again)"
    if undated(values):
        shown["written_about"] = UNDATED
    if values["result"] is not None:
        shown["result"] = json.dumps(values["result"], ensure_ascii=False, indent=2)
    table = Table.grid(Column(min_width=LABEL), Column(overflow="fold"), padding=(0, 2, 0, 0))
    names = ("status", "attempts", "owner", "lease", "error", "error_type", "error_at")
    for name in (*names, "written_about", "expires", "result", "unreadable"):
        if shown[name] is not None:
            table.add_row(name.replace("_", " "), clean(shown[name]))
    return Group(*(line((name, clean(values[name])), (LABEL, 0)) for name in ("key", "id")), table)


def undated(values: dict[str, Any]) -> bool:
    """Whether it is not known when a record was written, because it is not known how long it lasts."""
    return values["expires"] is not None and values["written_about"] is None


def _lease(values: dict[str, Any]) -> str | None:
    until, left = values["lease_until"], values["lease_left_seconds"]
    if until is None:
        return None
    return f"{timedelta(seconds=left)} left, until {until}" if left else f"over since {until}"
