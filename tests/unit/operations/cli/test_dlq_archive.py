"""`receiver dlq archive`, and back with `dlq redrive --from-archive`."""

from __future__ import annotations

import json

import pytest

from idempotent_receiver.operations.cli.terminal import Exit
from tests.unit.operations.cli.stack import CLOSED, CONFLICT, DEAD, FLAKY, Receiver, Stack, client

STRAY = "transfers-dead/notes.json"


@pytest.fixture
def archived(receiver: Receiver, stack: Stack) -> Stack:
    """The stack once all of its dead letters are in the archive."""
    assert receiver.on("dlq archive --yes").code == Exit.OK
    assert stack.keys_in(stack.dead) == set()
    return stack


def names() -> list[str]:
    return [each["Key"] for each in client("s3").list_objects_v2(Bucket="archive").get("Contents", [])]


@pytest.mark.parametrize(
    ("options", "code", "where"),
    [
        ("--from-archive", Exit.LEFT, ({FLAKY}, set())),
        ("--from-archive --include-permanent", Exit.LEFT, ({FLAKY, CLOSED}, set())),
        (f"--from-archive --key {CLOSED} --include-permanent", Exit.OK, ({CLOSED}, set())),
        ("--from-archive --to-dlq", Exit.OK, (set(), DEAD)),
        (f"--from-archive --to-dlq --key {CONFLICT}", Exit.OK, (set(), {CONFLICT})),
    ],
)
def test_what_was_archived_comes_back_under_its_old_key_or_is_dropped_as_done(
    receiver: Receiver, archived: Stack, options: str, code: Exit, where: tuple[set[str], set[str]]
) -> None:
    ran = receiver.on(f"dlq redrive {options} --yes --json")
    assert (ran.code, ran.json["stray"]) == (code, [])
    dropped = ran.json.get("dropped", 0)
    assert dropped == ("--key" not in options and "--to-dlq" not in options)
    assert (archived.keys_in(archived.queue), archived.keys_in(archived.dead)) == where
    assert len(names()) == 4 - sum(map(len, where)) - dropped
    assert {each["dead_letter_queue"] for each in archived.acts} == {archived.dead_arn, "s3://archive/transfers-dead/"}


def test_a_stray_object_stops_nothing_and_is_named_and_what_others_keep_in_the_bucket_is_let_be(
    receiver: Receiver, archived: Stack
) -> None:
    for name in (STRAY, "transfers-dead-2/notes.json"):
        client("s3").put_object(Bucket="archive", Key=name, Body=b"not mine")
    ran = receiver.on("dlq redrive --from-archive --to-dlq --yes --json")
    assert (ran.code, ran.json["restored"], ran.json["stray"]) == (Exit.OK, 4, [f"s3://archive/{STRAY}"])
    assert f"not archived dead letters: s3://archive/{STRAY}" in receiver.on("dlq redrive --from-archive --yes").out
    assert (archived.keys_in(archived.dead), len(names())) == (DEAD, 2)


def test_what_a_queue_left_that_is_gone_is_named_by_its_dlq_and_comes_to_another_stack_with_force_alone(
    receiver: Receiver, archived: Stack
) -> None:
    """The table here does not know what was done there."""
    for name in names():
        s3 = client("s3")
        told = json.loads(s3.get_object(Bucket="archive", Key=name)["Body"].read())
        stamp = told["message"]["messageAttributes"]["idempotent-receiver"]
        stamp["stringValue"] = stamp["stringValue"].replace(":transfers", ":gone")
        s3.put_object(Bucket="archive", Key=name.replace("transfers-dead", "gone-dead"), Body=json.dumps(told).encode())
        s3.delete_object(Bucket="archive", Key=name)
    line = f"dlq redrive --from-archive --dlq gone-dead --key {FLAKY} --yes --json"
    assert receiver.on(line.replace("--dlq gone-dead ", "")).json["left"] == []

    refused = receiver.on(line)

    assert (refused.code, refused.json["plan"]) == (Exit.LEFT, {"OTHER_QUEUE": 1})
    assert "--force" in refused.json["left"][0]["why"]
    assert receiver.on(f"{line} --force").code == Exit.OK
    assert (archived.keys_in(archived.queue), len(names())) == ({FLAKY}, 3)
