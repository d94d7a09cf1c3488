"""What the commands say: tables for people, and plain values for scripts. Nothing here asks AWS or decides anything."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from idempotent_receiver.operations.layout import clean, command, counted, line, listing, row, table_of
from idempotent_receiver.operations.verdict import ACTS, Judgement, Verdict, error_of, permanent, reason_in
from idempotent_receiver.protocol.record import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import RenderableType

    from idempotent_receiver.operations.redrive import Tally
    from idempotent_receiver.operations.survey import Findings
    from idempotent_receiver.protocol.record import Record

SHOWN_OF_A_REASON = 20
NO_KEY = "(none)"
LABEL = len("written about")
UNDATED = "give --retention-days to see when"
MOST_SKEW_MS = 60_000
"""As far as a worker's clock may be ahead of the operator's."""

BEYOND = "BEYOND_LIMIT"
"""Stands among the verdicts for what only the limit keeps where it is."""

REMEDIES = 'see docs/operating.md, "Verdicts"'
"""Where each verdict is explained; told of each letter that stays by its own."""

WHAT: dict[str, str] = {
    Verdict.MOVE: "back to the queue",
    Verdict.DONE: "dropped: done already",
    Verdict.CONFLICT: "stays, in conflict: its key was used for another payload",
    Verdict.PERMANENT: "stays without --include-permanent: failed for good",
    Verdict.TOO_OLD: "stays without --force: older than records last",
    Verdict.NO_ROOM: "stays: no room for its key",
    Verdict.UNKEYED: "stays: no usable key",
    Verdict.UNREADABLE: "stays: its record could not be read",
    Verdict.FOREIGN: "stays: from another queue",
    BEYOND: "stays for now: --limit allows no more",
}


def moment(epoch_ms: int) -> str:
    """A time, as ISO 8601 in UTC."""
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


# A record.


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
    """About when it was written; None where that would be yet to come: then records last longer than is known here."""
    if found.expiration is None:
        return None
    written_ms = (found.expiration - retention_seconds) * 1000
    return None if written_ms > now_ms + MOST_SKEW_MS else moment(written_ms)


def _result(data: str | None) -> Any:
    try:
        return None if data is None else json.loads(data)
    except (ValueError, RecursionError):
        return data


def record_table(values: dict[str, Any]) -> RenderableType:
    """A record as a person reads it."""
    table = Table(show_header=False, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(min_width=LABEL)
    table.add_column(overflow="fold")
    was = f"{values['status']} (it was {values['was']}; the key is free again)"
    shown = {**values, "status": was if values["status"] == "EXPIRED" else values["status"]}
    shown["lease_left"] = _lease(values)
    shown["written_about"] = UNDATED if undated(values) else values["written_about"]
    shown["result"] = None if values["result"] is None else json.dumps(values["result"], ensure_ascii=False, indent=2)
    names = ("status", "attempts", "owner", "lease_left", "error", "error_type", "error_at")
    for name in (*names, "written_about", "expires", "result", "unreadable"):
        if shown[name] is not None:
            row(table, name.replace("_", " "), shown[name])
    return Group(*(line((name, clean(values[name])), (LABEL, 0)) for name in ("key", "id")), table)


def undated(values: dict[str, Any]) -> bool:
    """Whether nothing can be said of when a record was written, because it is not known how long it lasts."""
    return values["expires"] is not None and values["written_about"] is None


def _lease(values: dict[str, Any]) -> str | None:
    if values["lease_until"] is None:
        return None
    left = values["lease_left_seconds"]
    return (
        f"{timedelta(seconds=left)}, until {values['lease_until']}" if left else f"over since {values['lease_until']}"
    )


# Dead letters.


def letter_values(judgement: Judgement, *, bodies: bool) -> dict[str, Any]:
    """A dead letter as a script reads it."""
    letter = judgement.letter
    told = {
        "message_id": letter.id,
        "key": letter.message.key or None,
        "group": letter.message.group_id,
        "since": moment(letter.since_ms),
        "source": letter.source,
        "reason": judgement.reason,
        "error_type": judgement.error_type,
        "verdict": judgement.verdict.value,
        "why": judgement.why,
    }
    return {**told, "body": letter.message.raw_body} if bodies else told


def general(reason: str) -> str:
    """A reason without what differs from letter to letter."""
    return re.sub(r"[^\s:;,()]*\d[^\s:;,()]*", "…", reason)


def grouped(judgements: Sequence[Judgement]) -> dict[str, list[Judgement]]:
    """Letters by reason, names and numbers in it left out; the most first."""
    groups: dict[str, list[Judgement]] = defaultdict(list)
    for each in judgements:
        groups[general(each.reason)].append(each)
    return dict(sorted(groups.items(), key=lambda pair: -len(pair[1])))


def group_values(reason: str, group: Sequence[Judgement], *, bodies: bool) -> dict[str, Any]:
    """A group of letters as a script reads it."""
    return {
        "reason": reason,
        "count": len(group),
        "first_seen": moment(min(each.letter.since_ms for each in group)),
        "last_seen": moment(max(each.letter.since_ms for each in group)),
        "letters": [letter_values(each, bodies=bodies) for each in group],
    }


def letters_tables(groups: dict[str, list[Judgement]], *, bodies: bool) -> RenderableType:
    """The groups, and then the letters of each."""
    summary = table_of("letters", "reason", "first seen", "last seen", text="reason")
    shown: list[RenderableType] = [summary]
    for reason, group in groups.items():
        values = group_values(reason, group, bodies=bodies)
        row(summary, values["count"], reason, values["first_seen"], values["last_seen"])
        shown += [Text(""), Text(clean(reason), style="bold"), _letters(reason, values["letters"])]
        if len(group) > SHOWN_OF_A_REASON:
            shown.append(Text(f"and {len(group) - SHOWN_OF_A_REASON} more: --json lists them all"))
    return Group(*shown)


def _letters(heading: str, letters: Sequence[dict[str, Any]]) -> RenderableType:
    rows = []
    for each in letters[:SHOWN_OF_A_REASON]:
        reason = None if each["reason"] == heading else each["reason"]
        told = _told(each["message_id"], each["key"], reason, each["verdict"])
        rows.append(((each["key"] or NO_KEY, each["since"], each["verdict"]), (told, each.get("body"))))
    return listing(("key", "since", "redrive"), rows)


def _told(id: str, key: str | None, text: str | None, verdict: str) -> str:
    """What is told of a letter below its key: its own id, where that is another; where it stays, the remedy."""
    remedy = None if verdict in ACTS else REMEDIES
    return "; ".join(part for part in (None if key == id else f"message {id}", text, remedy) if part)


# A redrive.


def counts(plan: Sequence[Judgement], beyond: Sequence[Judgement]) -> dict[str, int]:
    """How many letters have which verdict; those `beyond` the limit are counted apart."""
    found = {
        verdict.value: sum(each.verdict is verdict for each in plan) - sum(each.verdict is verdict for each in beyond)
        for verdict in Verdict
    }
    return {verdict: count for verdict, count in {**found, BEYOND: len(beyond)}.items() if count}


def plan_tables(plan: Sequence[Judgement], beyond: Sequence[Judgement]) -> RenderableType:
    """What would be done, and each letter that would stay."""
    table = table_of("letters", "verdict", "what becomes of it", text="what becomes of it")
    for verdict, count in counts(plan, beyond).items():
        row(table, count, verdict, WHAT[verdict])
    staying = [each for each in plan if each.verdict not in ACTS]
    return Group(table, Text(""), _staying([_staying_values(each) for each in staying])) if staying else table


def _staying_values(each: Judgement) -> dict[str, Any]:
    return {"id": each.letter.id, "key": each.letter.message.key, "verdict": each.verdict.value, "why": each.why}


def _staying(left: Sequence[dict[str, Any]]) -> RenderableType:
    rows = [
        ((each["key"] or NO_KEY, each["verdict"]), (_told(each["id"], each["key"], each["why"], each["verdict"]),))
        for each in left[:SHOWN_OF_A_REASON]
    ]
    shown = listing(("key of what stays", "verdict"), rows)
    if len(left) <= SHOWN_OF_A_REASON:
        return shown
    return Group(shown, Text(f"and {len(left) - SHOWN_OF_A_REASON} more: --json lists them all"))


def tally_values(tally: Tally) -> dict[str, Any]:
    """What has come of a redrive, as a script reads it."""
    return {
        "moved": tally.moved,
        "dropped": tally.dropped,
        "left": [{**asdict(each), "verdict": each.verdict.value} for each in tally.left],
        "undeleted": [{**asdict(each), "verdict": each.verdict.value} for each in tally.undeleted],
        "beyond_limit": tally.beyond_limit,
        "unseen": tally.unseen,
    }


def tally_text(tally: Tally, plan: Sequence[Judgement], beyond: Sequence[Judgement]) -> RenderableType:
    """What has come of a redrive, as a person reads it, with the letters that stay although the plan did not say so."""
    lines = [f"{tally.moved} moved, {tally.dropped} dropped as done, {len(tally.left)} left in place."]
    if tally.beyond_limit:
        lines.append("More could go: the limit was reached.")
    if tally.unseen:
        lines.append(f"About {tally.unseen} more were not given out: run again, or see what stays ahead of its group.")
    if tally.undeleted:
        lines.append(f"{len(tally.undeleted)} not deleted, so still here too: run again once SQS lets them be deleted.")
    foreseen = {each.letter.id for each in plan if each.verdict not in ACTS}
    foreseen |= {each.letter.id for each in beyond}
    left = [asdict(each) for each in (*tally.left, *tally.undeleted) if each.id not in foreseen]
    return Group(*(_staying(each) for each in (left,) if each), Text("\n".join(lines)))


# What is stuck.

TAKEN_OVER = """\
The next delivery or request takes a claim over: nothing to type. If none comes:
{redrive}
If there is no such letter, it is an orphan: see docs/operating.md, "Orphans"."""
TRIED_AGAIN = """\
The next delivery or request tries a key again. If it is a dead letter by now:
{redrive}"""
MENDED_FIRST = """\
Mend the cause; trying again does not help before that. Then:
{redrive_permanent}"""
ANSWERED = """\
These are a workflow's. A failure is an answer: another try wants another key.
What is overdue, its sweep goes on with. See docs/workflow.md, "Operating it\"."""

KINDS = {
    "unsettled": ("Claims that nobody settled", TAKEN_OVER),
    "failing": ("Keys that failed, and are tried again", TRIED_AGAIN),
    "permanent": ("Keys that failed for good", MENDED_FIRST),
    "workflow": ("Workflow executions that failed, or are overdue", ANSWERED),
}
"""What a survey names: its title, and what becomes of it."""


def advice(then: str, options: Sequence[str]) -> str:
    """What becomes of a kind, with commands that run as they stand once KEY is filled in."""
    redrive = ("receiver dlq redrive", *options)
    return then.format(
        redrive=command(*redrive, "--key KEY"), redrive_permanent=command(*redrive, "--include-permanent", "--key KEY")
    )


def findings_values(
    found: Findings, namespace: str | None, key_of: Callable[[str], str], now_ms: int, retention_seconds: int
) -> dict[str, Any]:
    """What a survey found in a namespace, or without one in the whole table, as a script reads it."""

    def values(records: Sequence[Record]) -> list[dict[str, Any]]:
        whole = [record_values(each, key_of(each.id), now_ms, retention_seconds) for each in records]
        return [{name: held for name, held in each.items() if name not in ("was", "result")} for each in whole]

    return {
        "scanned": found.scanned,
        "namespace": namespace,
        "own": found.own,
        "unsettled_count": found.unsettled_count,
        "given_back_count": found.given_back_count,
        "failing_count": found.failing_count,
        "permanent_count": found.permanent_count,
        "workflow_count": found.workflow_count,
        "unsettled": values(found.unsettled),
        "failing": values(found.failing),
        "permanent": values(found.permanent),
        "workflow": values(found.workflow),
    }


def findings_tables(values: dict[str, Any], options: Sequence[str]) -> RenderableType:
    """What a survey found, as a person reads it, and below each kind what becomes of it.

    With the `options`, a command means the same consumer.
    """
    summary = (
        f"{_own(values)}: {counted(values['unsettled_count'], 'claim')} that nobody settled, "
        f"{values['given_back_count']} given back and waiting, {counted(values['failing_count'], 'key')} failing, "
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


def _own(values: dict[str, Any]) -> str:
    records = counted(values["scanned"], "record")
    if values["namespace"] is None:
        return records
    return (
        f"{values['own']} of {records} {'is' if values['own'] == 1 else 'are'} in the namespace {values['namespace']}"
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
