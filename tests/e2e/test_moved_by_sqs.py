"""What fails for good on the stack as it is shipped: a failure at each receive, until SQS itself moves the message."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from tests.e2e.deployed import EVENTS, eventually
from tests.e2e.test_redrive_deployed import dead_now, receiver

if TYPE_CHECKING:
    from tests.e2e.conftest import Deploy
    from tests.e2e.deployed import Deployed

RECEIVES = 5
"""The template's MaxReceiveCount."""


@pytest.fixture(scope="module")
def plain(deployed: Deploy) -> Deployed:
    """The consumer as it is shipped, with the books that events/ presupposes; nobody else's dead letters are there."""
    bank = deployed("plain")
    for table in ("accounts", "entries"):
        for item in json.loads((EVENTS / "given" / f"{table}.json").read_text()):
            bank.put(table.capitalize(), item)
    return bank


@pytest.mark.parametrize("name", ["bad-body", "permanent-failure"])
def test_it_is_among_the_failures_of_its_batch_and_its_neighbours_are_not(plain: Deployed, name: str) -> None:
    assert plain.invoke(plain.recorded(name)).payload == json.loads((EVENTS / "expected" / f"{name}.json").read_text())


def test_sqs_moves_it_after_its_receives_and_its_record_tells_the_operator_why(plain: Deployed) -> None:
    payer, payee = plain.new_account(10), plain.new_account(0)
    overdrawn = plain.transfer(payer, payee, 11)
    unknown = plain.transfer(payer, "nobody", 1)
    fraction = {**plain.transfer(payer, payee, 1), "amount": "0.5"}
    good = plain.transfer(payer, payee, 1)
    reasons = [
        f"account {payer} is unknown or cannot pay 11 USD",
        "account nobody is unknown or not in USD",
        "the body is not a Transfer: amount: int_type",
        "the body is not a Transfer: body: json_invalid",
    ]

    *dead, done = plain.send(*map(json.dumps, (overdrawn, unknown, fraction)), "{not JSON", good)

    plain.settled(done)
    eventually(lambda: dead_now(plain), lambda count: count == len(dead), what="SQS has moved them", seconds=60)
    plain.drained()
    _, listed = receiver(plain, "dlq", "list")
    letters = {each["message_id"]: each for group in listed["groups"] for each in group["letters"]}
    assert [letters[id]["reason"] for id in dead] == reasons, "each under the messageId that it was sent with"
    assert {each["verdict"] for each in letters.values()} == {"PERMANENT"}
    assert [letters[id]["error_type"] for id in dead] == ["PermanentError"] * 2 + ["InvalidBody"] * 2
    # Each receive was handled and refused again, and nothing of it has any effect.
    assert told(plain, dead) == {id: list(range(1, RECEIVES + 1)) for id in dead}
    assert {plain.status(id) for id in dead} == {"FAILED"}
    assert [plain.entries(each) for each in (overdrawn, unknown, fraction)] == [{}, {}, {}]
    assert (plain.balance(payer), plain.balance(payee)) == (9, 1)
    assert "sqs:SendMessage" not in {permission.action for permission in plain.asked()}

    code, planned = receiver(plain, "dlq", "redrive", "--yes")
    assert (code, planned["plan"], planned["moved"]) == (1, {"PERMANENT": len(dead)}, 0)
    plain.open_account(payer, 11)
    code, planned = receiver(plain, "dlq", "redrive", "--include-permanent", "--matching", "cannot pay", "--yes")
    assert (code, planned["moved"]) == (0, 1)
    assert plain.settled(dead[0])["attempts"] == RECEIVES + 1
    assert plain.entries(overdrawn) == {payer: -11, payee: +11}


def told(bank: Deployed, ids: list[str]) -> dict[str, list[int]]:
    """At which of its receives the log says of a message that it has failed for good."""

    def said() -> dict[str, list[int]]:
        found: dict[str, list[int]] = defaultdict(list)
        for line in bank.log_lines():
            if line.get("message") == "failed for good" and line["message_id"] in ids:
                found[line["message_id"]].append(line["receive_count"])
        return {id: sorted(receives) for id, receives in found.items()}

    return eventually(said, lambda found: all(len(found.get(id, [])) >= RECEIVES for id in ids), what="it is logged")
