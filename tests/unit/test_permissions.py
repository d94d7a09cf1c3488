"""The verdict on permissions that the end-to-end tests rely on: which records' keys a request names, and who may."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from idempotent_receiver.protocol.store import Commit
from tests.e2e.permissions import Permission, allowed, needed
from tests.e2e.recorder import Call
from tests.unit.dynamodb.wire import TABLE, Wire, adding, change, record, statements

if TYPE_CHECKING:
    from collections.abc import Callable

    from idempotent_receiver import DynamoDBStore

ACCOUNT = "123456789012"
ACTIONS = ("PartiQLInsert", "PartiQLUpdate", "BatchGetItem", "PutItem", "UpdateItem")
OWN_RECORDS = {
    "Effect": "Allow",
    "Action": [f"dynamodb:{action}" for action in ACTIONS],
    "Resource": f"arn:aws:dynamodb:us-east-1:{ACCOUNT}:table/{TABLE}",
    "Condition": {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["refunds#*"]}},
}
OTHERS_RECORDS = {
    **OWN_RECORDS,
    "Condition": {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["orders#*"]}},
}
ACCOUNTS = {
    "Effect": "Allow",
    "Action": "dynamodb:PutItem",
    "Resource": f"arn:aws:dynamodb:us-east-1:{ACCOUNT}:table/accounts",
}
OWN, OTHERS = "refunds#1", "orders#1"

REQUESTS: dict[str, Callable[[DynamoDBStore, list[str]], object]] = {
    "PutItem": lambda store, ids: store.insert([record(ids[-1])]),
    "UpdateItem": lambda store, ids: store.replace([change(ids[-1])]),
    "BatchGetItem": lambda store, ids: store.read(ids),
    "PartiQLInsert": lambda store, ids: store.insert([record(id) for id in ids]),
    "PartiQLUpdate": lambda store, ids: store.replace([change(id) for id in ids]),
    "TransactWriteItems": lambda store, ids: store.commit([Commit(change(id), adding().actions) for id in ids]),
}


def asked(request: str, *ids: str) -> set[Permission]:
    """The permissions that the store's own request for these records takes."""
    wire = Wire({"Responses": {TABLE: []}} if request == "BatchGetItem" else statements(*[None] * len(ids)))
    REQUESTS[request](wire.store, list(ids))
    calls = [Call("dynamodb", operation, "us-east-1", arguments) for operation, arguments in wire.sent]
    return {permission for call in calls for permission in needed(call, ACCOUNT)}


def judged(request: str, *ids: str) -> bool:
    return all(allowed(each, [OWN_RECORDS, ACCOUNTS]) for each in asked(request, *ids))


@pytest.mark.parametrize("request_", REQUESTS)
def test_a_consumer_may_touch_its_own_records_and_no_other(request_: str) -> None:
    """One record of another among many denies the request."""
    assert judged(request_, OWN)
    assert judged(request_, OWN, "refunds#2", "refunds#3")
    assert not judged(request_, OTHERS)
    assert not judged(request_, OWN, "refunds#2", OTHERS)
    assert not judged(request_, OWN, "refunds")


@pytest.mark.parametrize("request_", REQUESTS)
def test_a_request_names_the_records_that_it_is_for(request_: str) -> None:
    ids = [OWN, OTHERS, "refunds#2"]
    found = {key for each in asked(request_, *ids) for key in each.keys}
    assert found == {*ids[-1:]} if request_ in ("PutItem", "UpdateItem") else {*ids}


def test_no_two_statements_share_one_batch() -> None:
    """IAM judges a request by one statement at a time, and a batch of reads is one request."""
    assert all(allowed(each, [OWN_RECORDS, OTHERS_RECORDS]) for each in asked("PartiQLInsert", OWN, OTHERS))
    assert not all(allowed(each, [OWN_RECORDS, OTHERS_RECORDS]) for each in asked("BatchGetItem", OWN, OTHERS))


def test_a_key_that_is_not_known_is_not_ones_own() -> None:
    """IAM would take a request without keys for one whose keys are all right."""
    (unknown,) = needed(Call("dynamodb", "BatchExecuteStatement", "us-east-1", {"Statements": [{
        "Statement": f'UPDATE "{TABLE}" SET "a"=? WHERE "other"=?', "Parameters": [{"S": OWN}, {"S": OWN}]
    }]}), ACCOUNT)  # fmt: skip
    assert unknown.keys == ()
    assert not allowed(unknown, [OWN_RECORDS])
    partly = {"RequestItems": {TABLE: {"Keys": [{"id": {"S": OWN}}, {"account": {"S": OWN}}]}}}
    (unknown,) = needed(Call("dynamodb", "BatchGetItem", "us-east-1", partly), ACCOUNT)
    assert not allowed(unknown, [OWN_RECORDS])


def test_a_condition_that_nobody_has_looked_up_is_refused() -> None:
    wrong = {**OWN_RECORDS, "Condition": {"StringLike": {"dynamodb:LeadingKeys": ["refunds#*"]}}}
    with pytest.raises(KeyError, match="knows nothing of the Condition"):
        allowed(Permission("dynamodb:PutItem", OWN_RECORDS["Resource"], (OWN,)), [wrong])  # type: ignore[arg-type]
