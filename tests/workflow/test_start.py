"""The shipped start in front of the shipped machine: from a request to its answer."""

from __future__ import annotations

import json
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver.workflow import name_of
from tests.contexts import Context
from tests.workflow.conftest import TRANSFER

if TYPE_CHECKING:
    from tests.workflow.conftest import Bank

CONTEXT = Context(seconds=10)
ALICE, BOB = "arn:aws:iam::123456789012:user/alice", "arn:aws:iam::123456789012:user/bob"


def ask(method: str, path: str, body: Any = None, caller: str | None = ALICE) -> tuple[int, Any]:
    event = {
        "httpMethod": method,
        "path": path,
        "headers": {"Idempotency-Key": "k1"},
        "body": None if body is None else json.dumps(body),
        "requestContext": {"identity": {"userArn": caller}},
    }
    answer = import_module("app.workflow.start").lambda_handler(event, CONTEXT)
    return answer["statusCode"], json.loads(answer["body"])


def post(body: Any = TRANSFER, caller: str | None = ALICE) -> tuple[int, Any]:
    return ask("POST", "/workflows/transfers", body, caller)


def test_a_transfer_is_asked_for_and_asked_for_again(bank: Bank) -> None:
    bank.create()
    status, told = post()
    assert status == 202
    assert told["location"].rpartition("/")[2] == name_of("k1", ALICE), "as docs/workflow.md looks at a key"
    bank.ended(told["execution"])
    started = bank.machines.describe_execution(executionArn=told["execution"])["input"]
    assert json.loads(started)["payload"] == TRANSFER
    assert bank.balances() == {"alice": 70, "bob": 30}
    (message,) = bank.messages()
    done = {"transfer_id": "t1", "message_id": message["MessageId"]}
    assert post() == (200, done)
    assert ask("GET", f"/workflows/{told['location']}") == (200, done)
    assert bank.functions.calls == ["debit", "credit", "receipt"]


def test_a_refusal_is_told_with_its_reason_and_status(bank: Bank) -> None:
    bank.create()
    _, told = post({**TRANSFER, "amount": 101})
    bank.ended(told["execution"])
    again, problem = post({**TRANSFER, "amount": 101})
    assert (again, problem["title"]) == (422, "PermanentError")
    assert problem["detail"] == "account alice is unknown or cannot pay 101 USD"


@pytest.mark.parametrize(
    "body",
    [
        None,
        {},
        {**TRANSFER, "amount": "30"},
        {**TRANSFER, "to_account": "alice"},
        {**TRANSFER, "receipt": True},
    ],
)
def test_what_is_no_transfer_is_refused_and_nothing_is_stored(bank: Bank, body: Any) -> None:
    status, problem = post(body)
    assert status == 400
    assert "30" not in problem["detail"]
    assert problem["detail"].startswith("a request cannot be a receipt") is ("receipt" in (body or {}))
    assert bank.table("workflows").scan()["Items"] == []


def test_a_key_belongs_to_its_caller(bank: Bank) -> None:
    bank.create()
    mine = post()
    bank.ended(mine[1]["execution"])  # moto's transactions are not isolated from one another
    theirs = post({**TRANSFER, "transfer_id": "t2"}, caller=BOB)
    assert (mine[0], theirs[0]) == (202, 202)
    assert mine[1]["execution"] != theirs[1]["execution"]
    assert post(caller=None)[0] == 400
    bank.ended(theirs[1]["execution"])
    assert bank.balances() == {"alice": 40, "bob": 60}


def test_a_keys_record_holds_neither_the_key_nor_the_transfer_once_it_is_handed_over(bank: Bank) -> None:
    bank.create()
    bank.ended(post({**TRANSFER, "amount": 101})[1]["execution"])
    (item,) = bank.table("workflows").scan()["Items"]
    assert "k1" not in item["id"]
    assert set(item) == {
        *("id", "status", "version", "validation", "expiration", "attempts", "owner", "execution", "error"),
    }
