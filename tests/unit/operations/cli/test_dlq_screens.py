"""What people see of many dead letters, line by line; words are left out, so that they may change."""

from __future__ import annotations

import io
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from idempotent_receiver import message_id
from idempotent_receiver.operations.cli import dlq_report as report
from idempotent_receiver.operations.dead_letters.dead_letter import Reader
from idempotent_receiver.operations.dead_letters.history import ActOutcome, Verb
from idempotent_receiver.operations.dead_letters.run import DECLINED, UNFINISHED, DeadLetterResult, Summary
from idempotent_receiver.operations.dead_letters.selection import PlannedLetter, Selection
from idempotent_receiver.operations.dead_letters.triage import Decision, Rules, triage
from idempotent_receiver.operations.dead_letters.verbs import (
    delete_dispositions,
    redrive_dispositions,
)
from idempotent_receiver.sqs.dead_letter import Stamp
from idempotent_receiver.sqs.keys import UnusableKey
from idempotent_receiver.transaction.outbox import STAMP
from tests.unit.operations.cli.stack import ARN, LONG_AGO_MS
from tests.unit.operations.cli.transcript import figures

if TYPE_CHECKING:
    from rich.console import RenderableType

ENDS = redrive_dispositions("url")


MOVED_BY_SQS = {"DeadLetterQueueSourceArn": f"{ARN}:transfers"}


def key_of(message: Any) -> str:
    if message.raw_body == "unkeyed":
        raise UnusableKey("no id")
    return str(message_id(message))


def decision(number: int, body: str = "", **stamped: Any) -> Decision:
    """A dead letter that was sent so many minutes after the first."""
    reader = Reader(queue_arn=f"{ARN}:transfers", key=key_of, record_id=str)
    stamp = Stamp(key=f"k-{number}", original_id=f"k-{number}", **stamped).to_json()
    raw = {
        "MessageId": f"m-{number}",
        "ReceiptHandle": "r",
        "Body": body or f"body-{number}",
        "Attributes": {"SentTimestamp": str(LONG_AGO_MS + number * 60_000), **({} if stamped else MOVED_BY_SQS)},
        "MessageAttributes": {STAMP: {"DataType": "String", "StringValue": stamp}} if stamped else {},
    }
    return triage(reader.read(raw, LONG_AGO_MS), None, LONG_AGO_MS, Rules(queue_arn=reader.queue_arn))


MANY = [
    decision(number, reason=f"cause-{number % 12}\nnext line", error_type="E", queue=f"{ARN}:transfers")
    for number in (*range(11, 23), *range(11))
]
"""More than are listed, of more reasons."""
FEW = [decision(30, "unkeyed"), decision(31), decision(32, queue=f"{ARN}:transfers")]
"""One has no key, one only its messageId, and one may go."""


def screen(told: RenderableType) -> list[str]:
    console = Console(width=80, file=io.StringIO())
    console.print(told)
    return figures(console.file.getvalue())  # type: ignore[attr-defined]


def groups(*, bodies: bool) -> list[dict[str, Any]]:
    return report.grouped([report.letter_values(each, bodies=bodies) for each in (*FEW, *MANY)])


ROWS = [
    (f"k-{number} 2023-11-14T22:{13 + number}:20Z PERMANENT", f"m-{number} cause-{number % 12}") for number in range(20)
]
STAY = "docs/operating.md"


def test_a_screen_of_groups_has_their_times_verdicts_latest_letters_and_commonest_reasons() -> None:
    many = ["23", "2023-11-14T22:13:20Z 2023-11-14T22:35:20Z 23 PERMANENT", "k-22", "body-22"]
    few = ["2", "2023-11-14T22:44:20Z 2023-11-14T22:45:20Z 2 MOVE", "k-32", "body-32", "2 t…"]
    keyless = ["1 UnusableKey", "2023-11-14T22:43:20Z 1 UNKEYED", "m-30", "1", "--group NAME --matching TEXT"]
    reasons = ["2 cause-0", "2 cause-1", "2 cause-2", "9"]
    assert screen(report.group_tables(groups(bodies=True))) == [*many, *reasons, *few, *keyless]
    assert screen(report.group_tables(groups(bodies=False)[:1])) == [
        *many[:3],
        *(f"2 cause-{number}" for number in range(9)),
        "3",
        "--group NAME --matching TEXT",
    ]


def test_where_there_is_no_line_for_reasons_the_example_has_its_own() -> None:
    """As much of it as fits, but for a key that does not."""
    few, keyless = groups(bodies=False)[1:]
    long = {**few, "name": "n1" * 45, "letters": [{**few["letters"][0], "key": "k1" * 45}]}
    told = screen(report.group_tables([long, *[keyless] * 6]))
    assert told[:5] == [
        *(f"2 {'n1' * 36}n", "1" + "n1" * 8, "2023-11-14T22:44:20Z 2023-11-14T22:45:20Z 2 MOVE"),
        *("k1" * 36 + "k", "1" + "k1" * 8),
    ]


def test_a_list_of_letters_has_the_first_twenty_of_each_group() -> None:
    many, few, keyless = groups(bodies=False)
    reasons = [f"2 cause-{number}" for number in range(9)]
    listed = ["23", *reasons, "3", *(line for row in ROWS for line in row), "3 --json", "--matching TEXT", STAY]
    assert screen(report.letter_tables([many])) == listed
    letters = [["m-31 2023-11-14T22:44:20Z MOVE"], ["k-32 2023-11-14T22:45:20Z MOVE", "m-32"]]
    rest = ["UnusableKey 1", "1", "2023-11-14T22:43:20Z UNKEYED", "m-30"]
    assert screen(report.letter_tables([few, keyless])) == ["2", "2 throttle…", *letters[0], *letters[1], *rest, STAY]
    bodies = groups(bodies=True)[1:2]
    assert screen(report.letter_tables(bodies)) == ["2", "2 throttle…", *letters[0], "body-31", *letters[1], "body-32"]
    (two,) = report.grouped([report.letter_values(each, bodies=False) for each in MANY[:2]])
    assert screen(report.letter_tables([two]))[3:-2] == [*ROWS[11], *ROWS[12]]
    same = report.grouped([report.letter_values(MANY[place], bodies=False) for place in (1, 12)])
    assert screen(report.letter_tables(same))[2:-1] == [ROWS[0][0], "m-0", ROWS[12][0], "m-12"]


@pytest.mark.parametrize(("count", "more"), [(20, []), (21, ["1 --json"])])
def test_twenty_letters_are_listed_without_a_rest(count: int, more: list[str]) -> None:
    told = screen(
        report.letter_tables(report.grouped([report.letter_values(each, bodies=False) for each in MANY[:count]]))
    )
    assert [line for line in told if "--json" in line] == more


def test_the_last_line_for_reasons_counts_the_others_only_if_there_are_more() -> None:
    many = groups(bodies=False)[0]
    assert [line for line in screen(report.group_tables([many] * 4)) if "cause-" in line or line == "11"] == [
        "2 cause-0",
        "11",
    ] * 4
    ten = report.grouped([report.letter_values(each, bodies=False) for each in MANY[:10]])
    assert [line.split("-")[0] for line in screen(report.letter_tables(ten))[1:11]] == ["1 cause"] * 10


def test_a_plan_has_a_line_for_each_verdict_and_for_each_letter_that_stays() -> None:
    plan = Selection(limit=1).plan([*FEW, *MANY[:1]], 0, ENDS)
    permanent = ["k-11 PERMANENT", "m-11 cause-11", "--include-permanent"]
    counts = ["1 MOVE", "1 PERMANENT --include-permanent", "1 UNKEYED", "1 BEYOND_LIMIT --limit"]
    assert screen(report.plan_tables(plan, ENDS)) == [*counts, "UNKEYED", "m-30", *permanent, STAY]
    assert screen(report.plan_tables(Selection().plan(FEW[2:], 0, ENDS), ENDS)) == ["1 MOVE"]
    missing = [PlannedLetter.of(each) for each in FEW]
    assert screen(report.missing_table(missing)) == ["3", "UNKEYED", "m-30", "m-31 MOVE", "k-32 MOVE", "m-32"]


def test_a_plan_says_what_stays_where_the_verb_acts_on_others_of_its_verdict() -> None:
    """A foreign one has to be named."""
    dispositions = delete_dispositions()
    plan = Selection().plan([decision(40, function="f")], 0, dispositions)
    (row,), (stays,) = report.plan_values(plan, dispositions), plan.staying
    assert row["becomes"].startswith("stays: ")
    assert "--include-permanent" not in stays.why, "it is not for this verb"


def test_a_summary_names_what_stays_against_the_plan() -> None:
    """What stays by the plan was told with it, and what was not confirmed or finished needs no line for each."""
    plan = Selection(limit=2).plan([*FEW, *MANY[:1]], 0, ENDS)
    told = {each.dead_letter.id for each in plan.decisions}
    refused = {"outcome": ActOutcome.REFUSED, "verb": Verb.MOVED}
    letters = [DeadLetterResult.of(each) for each in (*plan.staying, *plan.beyond)]
    letters += [DeadLetterResult.of(MANY[5], why) for why in (UNFINISHED, DECLINED)]
    letters += [DeadLetterResult.of(MANY[1], "SQS refused its copy: NoRoom", **refused)]
    letters += [DeadLetterResult.of(MANY[2], "it could not be deleted: Busy", outcome=ActOutcome.DONE, verb=Verb.MOVED)]
    done = Counter({str(Verb.DROPPED): 5, str(Verb.MOVED): 2})
    summary = Summary(done=done, letters=letters, beyond_limit=True, unseen=7)
    rows = ["k-12 PERMANENT", "m-12 SQS NoRoom", "k-13 PERMANENT", "m-13", STAY]
    counts = ["2 5 5", "7", "1 SQS"]
    assert screen(report.summary_text(summary, told)) == [*rows, *counts]
    assert screen(report.summary_text(Summary(letters=letters[:3]), told, confirmed=False)) == ["3"]
