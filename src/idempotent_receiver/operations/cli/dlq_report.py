"""How `dlq list` and `dlq redrive` present dead letters: tables for people, plain values for scripts."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from idempotent_receiver.operations.cli.documentation import section
from idempotent_receiver.operations.cli.terminal import COLUMNS, clean, counted, listing, moment, table_of
from idempotent_receiver.operations.dead_letters.archive import document
from idempotent_receiver.operations.dead_letters.following import Fate, Following, ReturnedMessage
from idempotent_receiver.operations.dead_letters.history import ActOutcome, Verb
from idempotent_receiver.operations.dead_letters.run import DECLINED, UNFINISHED, DeadLetterResult, Summary
from idempotent_receiver.operations.dead_letters.selection import Plan, PlannedLetter
from idempotent_receiver.operations.dead_letters.triage import ACTS, Decision, Verdict
from idempotent_receiver.operations.dead_letters.verbs import Disposition
from idempotent_receiver.operations.records import charged_text

SHOWN_OF_A_GROUP = 20

COLUMNS_OF_GROUPS = COLUMNS - len("count  ")
LINES_OF_GROUPS = 21
LINES_OF_A_GROUP = 3
MOST_REASONS = 10
"""These make the groups fit on a 24-line terminal. A group takes three lines plus its reasons; when there are many
groups, the smaller ones take one line.
"""

NO_KEY = "(none)"

BEYOND = "BEYOND_LIMIT"
"""Counted like a verdict: a dead letter that stays only because of the limit."""

DONE: dict[str, str] = {Verb.DROPPED: "dropped as done", Verb.RESENT: "sent with another body"}
"""What a run did, where the verb alone is unclear."""

CHANGED = "CHANGED"
"""Counted like a verdict: a dead letter that stays because it has changed since the plan."""

STAYS: dict[str, str] = {
    Verdict.DONE: "stays: already completed",
    Verdict.RESENT: "stays: already sent again under another key",
    Verdict.RESENDING: "stays: its new body is being sent now",
    Verdict.UNSENT: "stays: its resend has not finished",
    Verdict.CONFLICT: "stays, in conflict: its key was used for another payload",
    Verdict.PERMANENT: "stays without --include-permanent: failed for good",
    Verdict.TOO_OLD: "stays without --force: older than the record retention",
    Verdict.NO_ROOM: "stays: no room in the message for its key",
    Verdict.UNKEYED: "stays: no usable key",
    Verdict.UNREADABLE: "stays: its record could not be read",
    Verdict.MALFORMED: "stays: it cannot be read",
    Verdict.FOREIGN: "stays: may not have come from this queue",
    Verdict.OTHER_QUEUE: "stays: it came from another queue",
    BEYOND: "stays for now: over --limit",
    CHANGED: "stays: it has changed since the plan",
}


def remedies() -> Text:
    """A pointer to the explanation of every verdict, shown below dead letters that stay."""
    return Text(f"For each verdict and its remedy, see {section('operating', 'Verdicts')}.")


PRIVATE = ("data", "input")
"""Record fields that hold a function's result or a workflow's input; omitted unless bodies are included."""


def whole_letter(decision: Decision, *, bodies: bool, max_attempts: int | None = None) -> dict[str, Any]:
    """A dead letter as the archive keeps it, plus its original id. Without `bodies`, everything that the producer or a
    function wrote is left out. The receipt handle, which would allow deletion, is never included.
    """
    of, values = decision.dead_letter, document(decision)
    message, record = values["message"], values["record"]
    if not bodies:
        message = {name: message[name] for name in ("messageId", "attributes")}
        record = record and {name: value for name, value in record.items() if name not in PRIVATE}
    message.pop("receiptHandle", None)
    first = of.id if of.stamp is None else of.stamp.original_id
    values |= {"charged": _charged(decision), "max_attempts": max_attempts}
    return {**values, "message": message, "record": record, "since": moment(of.since_ms), "original_id": first}


def _charged(decision: Decision) -> int | None:
    """The message's charged attempts, by its record or its stamp."""
    of = decision.dead_letter
    return of.charged or (None if of.stamp is None else of.stamp.charged)


def letter_values(decision: Decision, *, bodies: bool, max_attempts: int | None = None) -> dict[str, Any]:
    """One listed dead letter, for the JSON output."""
    of = decision.dead_letter
    values = {
        "message_id": of.id,
        "key": of.key or None,
        "group": decision.group,
        "message_group": of.message.group_id,
        "since": moment(of.since_ms),
        "source": of.source,
        "reason": decision.reason,
        "error_type": decision.error_type,
        "verdict": decision.verdict.value,
        "why": decision.why,
        "charged": _charged(decision),
        "max_attempts": max_attempts,
    }
    return {**values, "body": of.message.raw_body} if bodies else values


def grouped(letters: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Dead letters by group, newest last; the largest group comes first."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for each in sorted(letters, key=lambda each: str(each["since"])):
        groups[each["group"]].append(each)
    return [
        {
            "name": name,
            "count": len(group),
            "first_seen": group[0]["since"],
            "last_seen": group[-1]["since"],
            "verdicts": dict(Counter(each["verdict"] for each in group).most_common()),
            "reasons": dict(Counter(each["reason"] for each in group).most_common()),
            "letters": group,
        }
        for name, group in sorted(groups.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    ]


def group_tables(groups: Sequence[dict[str, Any]]) -> RenderableType:
    """The groups, on one screen."""
    count = len(groups)
    reasons = min(MOST_REASONS, LINES_OF_GROUPS // max(1, count) - LINES_OF_A_GROUP)
    whole = max(0, (LINES_OF_GROUPS - count) // (LINES_OF_A_GROUP - 1))
    table = table_of("group")
    for place, each in enumerate(groups[:LINES_OF_GROUPS]):
        name = Text(each["name"], style="bold")
        table.add_row(str(each["count"]), Group(name, *_details(each, max(0, reasons))) if place < whole else name)
    last = f"--group NAME lists a group's dead letters{'; ' + MATCHING if _several(groups) else '.'}"
    if others := groups[LINES_OF_GROUPS:]:
        letters = counted(sum(each["count"] for each in others), "dead letter")
        last = f"And {counted(len(others), 'smaller group')} with {letters}, which --json lists. {last}"
    return Group(table, Text(last))


def _details(group: dict[str, Any], reasons: int) -> list[RenderableType]:
    """The lines below a group's name."""
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in group["verdicts"].items())
    seen = " to ".join(dict.fromkeys((group["first_seen"], group["last_seen"])))
    latest = group["letters"][-1]  # Its log lines may still exist.
    example = clean(f"for example {latest['key'] or 'message ' + latest['message_id']}")
    if reasons == 0:
        example = _line(f"{example}: {latest['reason']}")[: max(len(example), COLUMNS_OF_GROUPS)]
    lines = [f"{seen}: {verdicts}", example, *([clean(latest["body"])] if "body" in latest else [])]
    return [*(Text(each, overflow="fold") for each in lines), *_reasons(group, reasons)]


def letter_tables(groups: Sequence[dict[str, Any]]) -> RenderableType:
    """The groups, each with its reasons and dead letters."""
    shown: list[RenderableType] = []
    for group in groups:
        rows = []
        for each in group["letters"]:
            reason = each["reason"] if len(group["reasons"]) > 1 else None
            told = charged_text(each)
            text = _below(each["message_id"], each["key"], reason, told and f"charged {told}")
            rows.append(((each["key"] or NO_KEY, each["since"], each["verdict"]), (text, each.get("body"))))
        shown += [Text(f"{group['name']}: {counted(group['count'], 'dead letter')}", style="bold")]
        shown += [*_reasons(group, MOST_REASONS), Text(), _listed(("key", "since", "verdict"), rows), Text()]
    last = [Text(MATCHING)] if _several(groups) else []
    stay = any(each["verdict"] not in ACTS for group in groups for each in group["letters"])
    last += [remedies()] if stay else []
    return Group(*shown, *last) if last else Group(*shown[:-1])


MATCHING = "--matching TEXT selects by reason."


def _several(groups: Sequence[dict[str, Any]]) -> bool:
    """Whether one group has several reasons."""
    return any(len(each["reasons"]) > 1 for each in groups)


def _reasons(group: dict[str, Any], most: int) -> list[RenderableType]:
    """A group's most common reasons, one per line, and the number of others."""
    reasons = list(group["reasons"].items())
    shown = reasons[: most if len(reasons) <= most or most < 2 else most - 1]
    wide = len(str(group["count"]))
    lines = [f"{count:>{wide}} x {reason}" for reason, count in shown]
    if len(shown) < min(most, len(reasons)):
        lines.append(f"and {counted(len(reasons) - len(shown), 'other reason')}")
    return [Text(_line(line), no_wrap=True, overflow="ellipsis") for line in lines]


def _line(text: str) -> str:
    return clean(text).replace("\n", " ")


def _listed(columns: Sequence[str], rows: Sequence[Any]) -> RenderableType:
    """The first rows, and the number of others."""
    shown = listing(columns, rows[:SHOWN_OF_A_GROUP])
    more = len(rows) - SHOWN_OF_A_GROUP
    return Group(shown, Text(f"and {more} more: --json lists them all")) if more > 0 else shown


def _below(id: str, key: str | None, *texts: str | None) -> str:
    """The text below a dead letter's key: its id if that differs, and these texts."""
    return "; ".join(part for part in (None if key == id else f"message {id}", *texts) if part)


def counts(plan: Plan) -> dict[str, int]:
    """The number of dead letters per verdict; those over the limit or changed count separately."""
    found = Counter(each.verdict.value for each in (*plan.acting, *plan.staying))
    found.update({BEYOND: len(plan.beyond), CHANGED: len(plan.changed)})
    return {str(name): found[name] for name in (*ACTS, *STAYS) if found[name]}


def plan_values(plan: Plan, dispositions: Mapping[Verdict, Disposition]) -> list[dict[str, Any]]:
    """The number of dead letters per verdict, and what would happen to them."""
    becomes = Counter((str(each.verdict), dispositions[each.verdict].becomes) for each in plan.acting)
    becomes.update((str(each.verdict), _stays(each, dispositions)) for each in plan.staying)
    becomes.update({(name, STAYS[name]): len(held) for name, held in ((BEYOND, plan.beyond), (CHANGED, plan.changed))})
    order = [*ACTS, *STAYS]
    rows = sorted((order.index(verdict), verdict, text, count) for (verdict, text), count in becomes.items() if count)
    return [{"verdict": verdict, "count": count, "becomes": text} for _, verdict, text, count in rows]


def _stays(each: Decision, dispositions: Mapping[Verdict, Disposition]) -> str:
    if each.unsent and each.verdict in dispositions:
        return "stays: what it sends has not all been sent"
    return STAYS[each.verdict]


def plan_tables(plan: Plan, dispositions: Mapping[Verdict, Disposition]) -> RenderableType:
    """What would be done, and every dead letter that would stay, by verdict."""
    table = table_of("verdict", "what happens")
    for each in plan_values(plan, dispositions):
        table.add_row(str(each["count"]), each["verdict"], each["becomes"])
    staying = [DeadLetterResult.of(each) for each in (*plan.changed, *plan.staying)]
    return Group(table, Text(), _staying(staying)) if staying else table


def _staying(left: Sequence[DeadLetterResult]) -> RenderableType:
    rows = [
        ((each.key or NO_KEY, each.verdict), (_below(each.message_id, each.key or None, each.why),)) for each in left
    ]
    table = _listed(("key of a dead letter that stays", "verdict"), rows)
    return Group(table, remedies()) if any(each.verdict not in ACTS for each in left) else table


def missing_table(missing: Sequence[PlannedLetter]) -> RenderableType:
    """The dead letters in the saved plan that SQS did not deliver."""
    rows = [((each.key or NO_KEY, each.verdict), (_below(each.message_id, each.key, None),)) for each in missing]
    title = (
        f"Not received: {len(missing)} from the plan. "
        "They are gone, in flight in another session, or blocked in their group."
    )
    return Group(Text(title), _listed(("key of a missing dead letter", "planned as"), rows))


def summary_values(summary: Summary) -> dict[str, Any]:
    """The result of a run, for the JSON output: dead letters acted on, and dead letters left."""

    def values(each: DeadLetterResult) -> dict[str, Any]:
        outcome = "left" if each.outcome is None else each.outcome
        return {**each._asdict(), "key": each.key or None, "outcome": outcome}

    return {
        **summary.done,
        "beyond_limit": summary.beyond_limit,
        "unseen": summary.unseen,
        "acted": [values(each) for each in summary.letters if each.outcome is ActOutcome.DONE],
        "left": [values(each) for each in summary.left],
    }


def summary_text(summary: Summary, told: Collection[str], *, confirmed: bool = True) -> RenderableType:
    """The result of a run in words, with the dead letters that stay but were not listed in the plan (`told` holds
    the ids listed there).
    """
    undeleted, unseen = summary.undeleted, summary.unseen
    rare = {Verb.RESENT} if len(summary.done) > 1 else set()  # of a redrive
    counts = {verb: summary.done[verb] for verb in Verb if verb in summary.done}
    done = [f"{count} {DONE.get(verb, verb)}" for verb, count in counts.items() if count or verb not in rare]
    lines = [f"{', '.join(done)}, {len(summary.left)} left in place."]
    if not confirmed:
        lines = [f"Nothing was done: {counted(len(summary.left), 'dead letter')} left in place."]
    if summary.beyond_limit:
        lines.append("The limit was reached: run again to act on the rest.")
    if unseen:
        lines.append(
            f"About {unseen} more were not received: run again, or check for dead letters that block their group."
        )
    if undeleted:
        lines.append(f"{len(undeleted)} not deleted, so still in the queue: run again once SQS permits deletion.")
    left = [each for each in summary.left if each.why not in (UNFINISHED, DECLINED)]
    left = [each for each in (*left, *undeleted) if each.outcome is not None or each.message_id not in told]
    return Group(*([_staying(left)] if left else []), Text("\n".join(lines)))


MEANING = {
    Fate.COMPLETED: "handled",
    Fate.DEAD: "back in the dead-letter queue: `dlq list` shows the cause",
    Fate.FAILED: "SQS will deliver it again",
    Fate.WAITING: "not handled yet",
}


def fates_values(followed: Following) -> dict[str, Any]:
    """What became of the moved messages, for the JSON output."""
    rest = [{"key": each.key, "fate": followed.fates[id].value} for id, each in _not_completed(followed)]
    return {**{fate.name.lower(): followed.counts[fate] for fate in Fate}, "not_completed": rest}


def fates_table(followed: Following) -> RenderableType:
    """What became of the moved messages, for people."""
    table = table_of("fate", "what it means")
    for fate, meaning in MEANING.items():
        if followed.counts[fate]:
            table.add_row(str(followed.counts[fate]), fate.value, meaning)
    rows = [((each.key, followed.fates[id].value), ()) for id, each in _not_completed(followed)]
    return Group(table, *([Text(), _listed(("key of a message not completed", "fate"), rows)] if rows else []))


def _not_completed(followed: Following) -> list[tuple[str, ReturnedMessage]]:
    return [(id, each) for id, each in followed.returned.items() if followed.fates[id] is not Fate.COMPLETED]
