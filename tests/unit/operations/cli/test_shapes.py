"""What scripts read: every field of each command's JSON answer, and of the files that it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.operations.cli.stack import FLAKY, Receiver, client

if TYPE_CHECKING:
    from tests.unit.operations.cli.history import Kept


def shape(value: Any) -> str:
    """The names in a document, and those in the first of a list."""
    match value:
        case dict():
            return f"{{{' '.join(f'{name}{shape(held)}' for name, held in value.items())}}}"
        case [first, *_]:
            return f"[{shape(first)}]"
    return ""


SHAPES: dict[str, str] = {
    f"show {FLAKY}": (
        "{key id status was attempts owner lease_until lease_left_seconds error error_type error_at permanent "
        "written_about expires result unreadable}"
    ),
    "stuck --yes": (
        "{scanned namespace own given_back_count unsettled_count failing_count permanent_count workflow_count "
        "unreadable_count unsettled[{key id status attempts owner lease_until lease_left_seconds error "
        "error_type error_at permanent written_about expires unreadable}] failing[{key id status attempts "
        "owner lease_until lease_left_seconds error error_type error_at permanent written_about expires "
        "unreadable}] permanent[{key id status attempts owner lease_until lease_left_seconds error error_type "
        "error_at permanent written_about expires unreadable}] workflow unreadable confirmed complete}"
    ),
    f"trace {FLAKY}": "{key id events[{at source text}] unread}",
    "dlq list --bodies": (
        "{queue letters about sample held_elsewhere groups[{name count first_seen last_seen verdicts{MOVE} "
        "reasons{ConnectionError at app.ledger:7} letters[{message_id key group since source reason "
        "error_type verdict why body}]}]}"
    ),
    "dlq history": (
        "{history count not_confirmed acts[{at verb key id message_id outcome code ended may_have_happened "
        "operator why plan queue dead_letter_queue}]}"
    ),
    "dlq report page.html": "{file letters about sample held_elsewhere acts bodies}",
    "dlq export letters.jsonl": "{file letters unseen stopped}",
    "pause --yes": "{queue wanted waiting in_flight mappings[{id function state}] others confirmed}",
    "dlq redrive --yes --wait-seconds 1": (
        "{plan{MOVE DONE CONFLICT PERMANENT} about_seconds confirmed stopped dropped moved beyond_limit "
        "unseen left[{id key verdict why reason}] undeleted missing held_elsewhere followed{completed dead "
        "failed waiting not_completed[{key fate}]}}"
    ),
    "dlq redrive --save-plan plan.json": "{plan{MOVE DONE CONFLICT PERMANENT} saved}",
    "dlq archive --yes": (
        "{plan{MOVE DONE CONFLICT PERMANENT} about_seconds confirmed stopped archived beyond_limit unseen "
        "left undeleted missing held_elsewhere followed}"
    ),
    "dlq restore --yes": (
        "{plan{} about_seconds confirmed stopped restored beyond_limit unseen left undeleted missing "
        "held_elsewhere followed}"
    ),
    "dlq delete --all --reason test --yes": (
        "{plan{MOVE DONE CONFLICT PERMANENT} about_seconds confirmed stopped deleted beyond_limit unseen left "
        "undeleted missing held_elsewhere followed}"
    ),
    f"dlq resend --key {FLAKY} --body body.json --yes": (
        "{plan{MOVE} new_key about_seconds confirmed stopped resent beyond_limit unseen left undeleted "
        "missing held_elsewhere followed}"
    ),
}


@pytest.mark.parametrize("line", SHAPES)
def test_no_field_of_an_answer_changes_its_name(receiver: Receiver, kept: Kept, line: str) -> None:
    kept.done(20)
    assert shape(receiver.on(f"{line} --json").json) == SHAPES[line]


def test_no_field_of_a_file_changes_its_name(receiver: Receiver, kept: Kept) -> None:
    kept.done(20)
    receiver.on("dlq export letters.jsonl")
    receiver.on("dlq redrive --save-plan plan.json")
    receiver.on("dlq report page.html --bodies")
    receiver.on("dlq archive --yes --key", FLAKY)
    (archived,) = client("s3").list_objects_v2(Bucket="archive")["Contents"]
    texts = {
        "letters.jsonl": next(line for line in Path("letters.jsonl").read_text().splitlines() if FLAKY in line),
        "plan.json": Path("plan.json").read_text(),
        "page.html": Path("page.html").read_text().partition('id="data">')[2].partition("</script>")[0],
        "the archive": client("s3").get_object(Bucket="archive", Key=archived["Key"])["Body"].read(),
    }
    assert {name: shape(json.loads(text)) for name, text in texts.items()} == FILES


FILES: dict[str, str] = {
    "letters.jsonl": (
        "{message{messageId receiptHandle body attributes{SenderId SentTimestamp ApproximateReceiveCount "
        "ApproximateFirstReceiveTimestamp} messageAttributes{idempotent-receiver{stringValue dataType}} "
        "md5OfBody eventSource eventSourceARN awsRegion} key source verdict why reason error_type group "
        "record{id status version validation error expiration attempts}}"
    ),
    "plan.json": (
        "{id command made_at queue dead_letter_queue include_permanent force letters[{message_id key verdict "
        "reason body_sha256}]}"
    ),
    "page.html": (
        "{letters[{message{messageId body attributes{SenderId SentTimestamp ApproximateReceiveCount "
        "ApproximateFirstReceiveTimestamp} messageAttributes{idempotent-receiver{stringValue dataType}} "
        "md5OfBody eventSource eventSourceARN awsRegion} key source verdict why reason error_type group "
        "record{id status version data validation expiration attempts} since typed typed_key}] about sample "
        "held_elsewhere title dead_letter_queue made_at bodies options[] commands[{does begins verdicts[]}] "
        "plan[{verdict count becomes}] groups[{name count first_seen last_seen verdicts{MOVE} "
        "reasons{ConnectionError at app.ledger:7} typed}] acts[{at verb key id message_id outcome code ended "
        "may_have_happened operator why plan queue dead_letter_queue became}]}"
    ),
    "the archive": (
        "{message{messageId receiptHandle body attributes{SenderId SentTimestamp ApproximateReceiveCount "
        "ApproximateFirstReceiveTimestamp} messageAttributes{idempotent-receiver{stringValue dataType}} "
        "md5OfBody eventSource eventSourceARN awsRegion} key source verdict why reason error_type group "
        "record{id status version validation error expiration attempts} operator archived_at}"
    ),
}
