"""`receiver describe`, and commands that take a consumer from what it prints, from its code, and from the stack."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from idempotent_receiver.operations.cli.terminal import EXIT_CODES, Exit
from idempotent_receiver.operations.doctor.asking import NotAnswered
from idempotent_receiver.payload import Document, Payload
from tests.consumer_facts import facts
from tests.unit.operations.cli.stack import ACTING, FLAKY, Receiver, Stack

if TYPE_CHECKING:
    from collections.abc import Iterator

CODE = """
from idempotent_receiver import DynamoDBStore, Payload, body_field, sqs_consumer

print("imported")

def by_id(message):
    return body_field("id")(message)

def undecorated(body: dict): ...

def consumer(namespace, **given):
    return sqs_consumer(DynamoDBStore("records", namespace), payload=Payload(without=("sent_at",)), **given)

@consumer("bank", key=body_field("id"))
def handler(body: dict): ...

@consumer("bank.own", key=by_id)
def own(body: dict): ...
"""
DOCUMENT = {
    "key": {"body_field": "id"},
    "payload": {"without": ["sent_at"]},
    "envelope": None,
    "namespace": "bank",
    "retention_days": 30,
    "effects": "any",
    "max_attempts": None,
    "max_age_seconds": 259_200,
}


@pytest.fixture
def shop(receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    """A consumer's code in the current folder, and a dead letter of each end that its producer sent once more. The
    stack does not describe it.
    """
    del stack.outputs["ConsumerDescription"]
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("shop_code.py").write_text(CODE)
    Path("shop_broken.py").write_text("import os\nos.environ['NO_SUCH_TABLE']\n")
    for namespace in ("bank", "bank.own"):
        for id, status in (("o-1", "FAILED"), ("o-2", "COMPLETED")):
            first, again = (json.dumps({"id": id, "sent_at": minute}) for minute in (1, 2))
            fingerprint = Payload(without=("sent_at",)).fingerprint(Document.of_text(first))
            stack.record(f"{namespace}#{id}", status, validation=fingerprint)
            if namespace == "bank":
                stack.bury(id, again)
    yield stack
    sys.modules.pop("shop_code", None)


def verdicts(receiver: Receiver, options: str) -> dict[str, str]:
    """What is to become of the two that the shop's consumer has left."""
    groups = receiver.on(f"dlq list {options} --json").json["groups"]
    found = {each["key"]: each["verdict"] for group in groups for each in group["letters"]}
    return {key: verdict for key, verdict in found.items() if key in ("o-1", "o-2")}


@pytest.mark.parametrize("given", ["file", "output", "shop_code:handler", "shop_code:own"])
def test_what_the_payload_leaves_out_makes_no_conflict(receiver: Receiver, shop: Stack, given: str) -> None:
    """However the command knows the consumer; of one whose key is a callable, by its handler."""
    options = f"--consumer {given}"
    if ":" not in given:
        described = receiver("describe shop_code:handler")
        assert (described.code, described.json) == (Exit.OK, DOCUMENT)
        Path("file").write_text(described.out)
        if given == "output":
            shop.outputs["ConsumerDescription"], options = described.out, ""
    assert verdicts(receiver, options) == {"o-1": "MOVE", "o-2": "DONE"}


def test_without_its_payload_both_are_conflicts(receiver: Receiver, shop: Stack) -> None:
    assert verdicts(receiver, "--consumer orders.json") == {"o-1": "CONFLICT", "o-2": "CONFLICT"}


def test_it_says_that_it_imports_the_code_and_what_that_prints_is_no_answer(receiver: Receiver, shop: Stack) -> None:
    for line, option in (
        ("describe shop_code:handler", "HANDLER"),
        ("dlq list --stack transfers --json --consumer shop_code:handler", "--consumer"),
    ):
        ran = receiver(line)
        assert ran.json
        assert f"{option} shop_code:handler: this imports your code." in ran.err
        assert "imported" in ran.err
        sys.modules.pop("shop_code")


def test_a_callable_is_named_with_the_option_that_reads_it(receiver: Receiver, shop: Stack) -> None:
    ran = receiver("describe shop_code:own")
    assert ran.json == {**DOCUMENT, "key": {"callable": "shop_code:by_id"}, "namespace": "bank.own"}
    assert "The document has only a name for key: pass --consumer shop_code:own to other commands" in ran.err
    shop.outputs["ConsumerDescription"] = ran.out
    refused = receiver.on("dlq list")
    assert (refused.code, refused.out) == (Exit.USAGE, "")
    assert "the key is shop_code:by_id" in refused.err
    assert "--consumer module:function" in refused.err
    assert receiver.on("trace o-1 --json").json["status"] == "FAILED", "a command without a key needs none"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("describe shop_code", "HANDLER: there is no handler 'shop_code'"),
        ("describe shop_code:nothing", "name it as module:function"),
        (
            "describe shop_code:undecorated",
            "HANDLER: 'shop_code:undecorated' is not decorated with @sqs_consumer: decorate",
        ),
        ("stuck --consumer nowhere:handler", "--consumer: there is no handler 'nowhere:handler'"),
        ("stuck --consumer shop_broken:handler", "cannot be imported: KeyError: 'NO_SUCH_TABLE'"),
        ("stuck --consumer nowhere.json", "--consumer nowhere.json: no such file; give a file written by"),
        ("stuck --consumer .", "--consumer .: Is a directory"),
        ("stuck --consumer shop_code.py", "--consumer shop_code.py: it is not JSON"),
    ],
)
def test_a_consumer_that_is_not_there_is_refused_with_the_remedy(
    receiver: Receiver, shop: Stack, line: str, says: str
) -> None:
    ran = receiver(line if "describe" in line else f"{line} --stack transfers --yes")
    assert (ran.code, ran.out) == (Exit.USAGE, "")
    assert says in ran.said
    assert "Traceback" not in ran.err


def test_an_output_that_cannot_be_read_is_named(receiver: Receiver, stack: Stack) -> None:
    stack.outputs["ConsumerDescription"] = '{"key": "guess"}'
    ran = receiver.on("dlq list")
    assert (ran.code, ran.out) == (Exit.USAGE, "")
    assert receiver.on("dlq list --consumer ids.json").code == 0, "what is given goes first"


def test_doctor_checks_what_is_given_where_no_stack_says_it(receiver: Receiver) -> None:
    workers = "doctor --queue transfers --table records --json"
    unknown, known = (receiver(f"{workers} {given}").json for given in ("", "--consumer week.json"))
    assert "record-retention" in {each["check"] for each in unknown["unchecked"]}
    assert "record-retention" not in {each["check"] for each in known["unchecked"]}


def test_doctor_has_an_exit_code_of_its_own_where_a_promise_could_not_be_checked(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is found counts for more, and what only its operators need is no promise."""
    refused = NotAnswered("AccessDenied")
    in_order = facts()
    for known, code in (
        (in_order, Exit.OK),
        (replace(in_order, alarms=refused), Exit.OK),
        (replace(in_order, table=refused), Exit.UNKNOWN),
        (replace(in_order, table=refused, readers=["Consumer", "audit"]), Exit.LEFT),
    ):
        monkeypatch.setattr("idempotent_receiver.operations.cli.doctor.gather", lambda *given, known=known: known)
        assert receiver("doctor --function consumer").code == code
    assert "5 what a promise needs could not be checked" in " ".join(EXIT_CODES.split())


def test_a_pause_needs_no_consumer(receiver: Receiver, stack: Stack) -> None:
    del stack.outputs["ConsumerDescription"]
    assert receiver.on("pause --yes").code == 0


@pytest.mark.parametrize("line", [*ACTING, "dlq list", "stuck --yes", f"trace {FLAKY}"])
def test_a_consumer_that_contradicts_the_stack_is_refused(receiver: Receiver, stack: Stack, line: str) -> None:
    """By the key of another consumer, a letter that is done would run again."""
    ran = receiver.on(f"{line} --consumer orders.json")
    assert (ran.code, ran.out) == (Exit.USAGE, "")
    assert stack.untouched()


def test_a_consumer_that_says_what_the_stack_says_is_taken(receiver: Receiver, stack: Stack) -> None:
    assert receiver.on("dlq list --consumer ids.json").code == Exit.OK
    stack.outputs["ConsumerDescription"] = json.dumps({"key": "message_id", "retention_days": 30})
    assert receiver.on("dlq list --consumer week.json").code == Exit.USAGE
