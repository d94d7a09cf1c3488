"""What `dlq list` and `dlq redrive` say of dead letters: tables for people, plain values for scripts."""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from idempotent_receiver.operations.cli.terminal import clean, listing, moment, table_of
from idempotent_receiver.operations.dead_letters.run import Summary
from idempotent_receiver.operations.dead_letters.selection import Plan
from idempotent_receiver.operations.dead_letters.triage import ACTS, Decision, Verdict

SHOWN_OF_A_REASON = 20
NO_KEY = "(none)"

BEYOND = "BEYOND_LIMIT"
"""Stands among the verdicts for a dead letter that stays only because of the limit."""

DONE = {"moved": "moved", "dropped": "dropped as done"}
"""How a person reads what a run has done."""

REMEDIES = 'see docs/operating.md, "Verdicts"'
"""Where each verdict is explained; shown with each dead letter that stays by its own."""

WHAT: dict[str, str] = {
    Verdict.MOVE: "back to the queue",
    Verdict.DONE: "dropped: done already",
    Verdict.CONFLICT: "stays, in conflict: its key was used for another payload",
    Verdict.PERMANENT: "stays without --include-permanent: failed for good",
    Verdict.TOO_OLD: "stays without --force: older than records last",
    Verdict.NO_ROOM: "stays: no room for its key",
    Verdict.UNKEYED: "stays: no usable key",
    Verdict.UNREADABLE: "stays: its record could not be read",
    Verdict.FOREIGN: "stays: not known to have come from this queue",
    BEYOND: "stays for now: --limit allows no more",
}


def grouped(decisions: Sequence[Decision]) -> dict[str, list[Decision]]:
    """Dead letters by reason, apart from names and numbers in it; the largest group first."""
    groups: dict[str, list[Decision]] = defaultdict(list)
    for each in decisions:
        groups[re.sub(r"[^\s:;,()]*\d[^\s:;,()]*", "…", each.reason)].append(each)
    return dict(sorted(groups.items(), key=lambda pair: -len(pair[1])))


def group_values(reason: str, group: Sequence[Decision], *, bodies: bool) -> dict[str, Any]:
    """A group of dead letters as a script reads it."""
    since = [each.dead_letter.since_ms for each in group]
    return {
        "reason": reason,
        "count": len(group),
        "first_seen": moment(min(since)),
        "last_seen": moment(max(since)),
        "letters": [_values(each, bodies=bodies) for each in group],
    }


def _values(decision: Decision, *, bodies: bool) -> dict[str, Any]:
    of = decision.dead_letter
    values = {
        "message_id": of.id,
        "key": of.key or None,
        "group": of.message.group_id,
        "since": moment(of.since_ms),
        "source": of.source,
        "reason": decision.reason,
        "error_type": decision.error_type,
        "verdict": decision.verdict.value,
        "why": decision.why,
    }
    return {**values, "body": of.message.raw_body} if bodies else values


def group_tables(groups: Sequence[dict[str, Any]]) -> RenderableType:
    """The groups, and then the dead letters of each."""
    summary = table_of("count", "reason", "first seen", "last seen", wrapped="reason")
    shown: list[RenderableType] = [summary]
    for group in groups:
        summary.add_row(*map(clean, (group["count"], group["reason"], group["first_seen"], group["last_seen"])))
        rows = []
        for each in group["letters"]:
            reason = None if each["reason"] == group["reason"] else each["reason"]
            text = _below(each["message_id"], each["key"], reason, each["verdict"])
            rows.append(((each["key"] or NO_KEY, each["since"], each["verdict"]), (text, each.get("body"))))
        shown += [Text(""), Text(clean(group["reason"]), style="bold"), _listed(("key", "since", "verdict"), rows)]
    return Group(*shown)


def _listed(columns: Sequence[str], rows: Sequence[Any]) -> RenderableType:
    """The first rows, and how many more there are."""
    shown = listing(columns, rows[:SHOWN_OF_A_REASON])
    more = len(rows) - SHOWN_OF_A_REASON
    return Group(shown, Text(f"and {more} more: --json lists them all")) if more > 0 else shown


def _below(id: str, key: str | None, text: str | None, verdict: str) -> str:
    """The text below a dead letter's key: its id, if that is another; the reason; the remedy, if it stays."""
    remedy = None if verdict in ACTS else REMEDIES
    return "; ".join(part for part in (None if key == id else f"message {id}", text, remedy) if part)


def counts(plan: Plan) -> dict[str, int]:
    """How many dead letters have which verdict; those beyond the limit are counted apart."""
    found = Counter([each.verdict.value for each in (*plan.acting, *plan.staying)] + [BEYOND] * len(plan.beyond))
    return {str(name): found[name] for name in WHAT if found[name]}


def plan_tables(plan: Plan) -> RenderableType:
    """What would be done, and each dead letter that would stay by its verdict."""
    table = table_of("count", "verdict", "what becomes of it", wrapped="what becomes of it")
    for verdict, count in counts(plan).items():
        table.add_row(str(count), verdict, WHAT[verdict])
    return Group(table, Text(""), _staying(plan.staying)) if plan.staying else table


def _staying(left: Sequence[Decision]) -> RenderableType:
    rows = []
    for each in left:
        of = each.dead_letter
        rows.append(((of.key or NO_KEY, each.verdict), (_below(of.id, of.key, each.why, each.verdict),)))
    return _listed(("key of what stays", "verdict"), rows)


def summary_values(summary: Summary) -> dict[str, Any]:
    """What a redrive has done, as a script reads it."""

    def values(each: Decision) -> dict[str, Any]:
        of = each.dead_letter
        return {"id": of.id, "key": of.key, "verdict": each.verdict, "why": each.why, "reason": each.reason}

    stay = {name: [values(each) for each in getattr(summary, name)] for name in ("left", "undeleted")}
    return {**summary.done, "beyond_limit": summary.beyond_limit, "unseen": summary.unseen, **stay}


def summary_text(summary: Summary, plan: Plan) -> RenderableType:
    """What a redrive has done, as a person reads it, with the dead letters that stay against the plan."""
    undeleted, unseen = len(summary.undeleted), summary.unseen
    done = [f"{summary.done[name]} {said}" for name, said in DONE.items() if name in summary.done]
    lines = [f"{', '.join(done)}, {len(summary.left)} left in place."]
    if summary.beyond_limit:
        lines.append("The limit was reached before all was moved.")
    if unseen:
        lines.append(f"About {unseen} more were not given out: run again, or see what stays ahead of its group.")
    if undeleted:
        lines.append(f"{undeleted} not deleted, so still here too: run again once SQS lets them be deleted.")
    foreseen = {each.dead_letter.id for each in (*plan.staying, *plan.beyond)}
    left = [each for each in (*summary.left, *summary.undeleted) if each.dead_letter.id not in foreseen]
    return Group(*([_staying(left)] if left else []), Text("\n".join(lines)))
