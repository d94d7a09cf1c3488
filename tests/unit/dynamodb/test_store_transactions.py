"""The transactions that `DynamoDBStore` sends, and whose fault it is when one is cancelled."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pytest

from idempotent_receiver.dynamodb.errors import ApiCall, write_failed
from idempotent_receiver.protocol.limits import MOST_ITEM_BYTES, MOST_TRANSACTION_BYTES
from idempotent_receiver.protocol.record import Change
from idempotent_receiver.protocol.store import ActionFailed, Applied, Conflict, NotApplied
from idempotent_receiver.transaction.action import Action
from tests.many_operations import commit_one
from tests.unit.dynamodb.test_store_requests import UPDATE
from tests.unit.dynamodb.wire import (
    CONTENDED,
    LATER,
    NEVER,
    SECRET,
    TABLE,
    UNKNOWN,
    Refusal,
    Wire,
    adding,
    cancelled,
    change,
    effect_of,
    record,
    why,
)


@pytest.mark.scenario("S30", mutant="a transaction's token is drawn at each sending")
def test_a_transaction_is_sent_the_same_each_time() -> None:
    """The record's update comes first, and the token is the same, and at most 36 characters, for the same claim."""
    wire, tx = Wire({}), adding()
    tx.check(TableName="accounts", Key={"account": "b"}, ConditionExpression="attribute_exists(account)")

    assert [commit_one(wire.store, change(), tx.actions) for _ in range(2)] == [Applied(), Applied()]

    (operation, body), again = wire.sent
    assert again == (operation, body)
    assert operation == "TransactWriteItems"
    account = {"S": "b"}
    check = {"TableName": "accounts", "Key": {"account": account}, "ConditionExpression": "attribute_exists(account)"}
    put = {"Put": {"TableName": "accounts", "Item": {"account": {"S": SECRET}}}}
    assert body.pop("TransactItems") == [{"Update": UPDATE}, put, {"ConditionCheck": check}]
    assert 1 <= len(body.pop("ClientRequestToken")) <= 36
    assert body == {}


@pytest.mark.scenario("S30", mutant="a transaction's token is used again by the next claim")
def test_another_claim_has_another_token() -> None:
    """The tokens of two claims differ, whether of one key or of two keys with the same version."""
    wire = Wire({})
    other = Change(record(version="v3"), record(version="v2"))

    for each in (change("a"), change("b"), change(), other):
        commit_one(wire.store, each, ())

    assert len({body["ClientRequestToken"] for _, body in wire.sent}) == 4


@pytest.mark.scenario("S31", mutant="a transaction's lost claim is a condition like any other")
@pytest.mark.scenario("S32", mutant="contention is refused for good")
@pytest.mark.parametrize(
    ("reasons", "answer"),
    [
        ("TransactionConflict None", CONTENDED),
        ("None TransactionConflict", CONTENDED),
        ("ThrottlingError None", LATER),
        ("None ProvisionedThroughputExceeded", LATER),
        ("None ValidationError", NEVER),
        ("ConditionalCheckFailed ConditionalCheckFailed None", Conflict(None)),
        ("ConditionalCheckFailed TransactionConflict None", Conflict(None)),
        ("None ConditionalCheckFailed None", ActionFailed(0)),
        ("- ConditionalCheckFailed -", ActionFailed(0)),
        ("- ValidationError", NEVER),
        # What is in the way may hide that a read no longer stands, so the condition must wait.
        ("None TransactionConflict ConditionalCheckFailed", CONTENDED),
        ("None ConditionalCheckFailed ThrottlingError", CONTENDED),
        ("None ConditionalCheckFailed ProvisionedThroughputExceeded", CONTENDED),
        ("None ValidationError ConditionalCheckFailed TransactionConflict", CONTENDED),
        ("None ValidationError TransactionConflict", CONTENDED),
        ("None ConditionalCheckFailed ValidationError", NEVER),
        ("None ConditionalCheckFailed AccessDenied", NEVER),
        # The claim's owner is unknown as yet, so the handler's condition must wait.
        ("TransactionConflict ConditionalCheckFailed", CONTENDED),
        # Nothing is proved.
        ("", UNKNOWN),
        ("None None", UNKNOWN),
        ("ConditionalCheckFailed", UNKNOWN),
        (None, UNKNOWN),
    ],
)
def test_the_reason_that_counts(reasons: str | None, answer: str | Conflict | ActionFailed) -> None:
    """The record's own refusal comes first, then what may be retried, then what is refused. A failed condition of the
    handler's own counts only if nothing else was in the way.
    """
    codes = (reasons or "").split()
    refusal = Refusal("TransactionCanceledException") if reasons is None else cancelled(*codes)
    told = commit_one(Wire(refusal).store, change(), adding().actions * max(1, len(codes) - 1))

    assert (effect_of(told) if isinstance(answer, str) else told) == answer
    if answer == UNKNOWN:
        assert why(told).startswith("TransactionCanceledException from ")
    if isinstance(told, NotApplied):
        assert told.own is (codes[0] in ("None", "-"))
        assert (", the record itself: table records" in why(told)) is not told.own


@pytest.mark.parametrize("operation", ["TransactWriteItems", "PutItem", "BatchExecuteStatement"])
def test_of_what_is_invalid_only_a_transaction_may_be_at_fault_itself(operation: str) -> None:
    """A record's own request has nothing of a handler's."""
    told = write_failed("ValidationException", ApiCall(operation, "records"))

    assert isinstance(told, NotApplied)
    assert told.own is (operation == "TransactWriteItems")


def test_an_invalid_expression_is_shown() -> None:
    """AWS's message about an expression shows only the developer's own text, and is passed on."""
    message = "Invalid UpdateExpression: Attribute name is a reserved keyword; reserved keyword: status"

    written = commit_one(Wire(Refusal("ValidationException", message)).store, change(), adding().actions)

    assert effect_of(written) == NEVER
    assert why(written).startswith("ValidationException from TransactWriteItems: table records or accounts ")
    assert message in why(written)


def test_a_value_that_aws_quotes_is_not_shown() -> None:
    """DynamoDB's message about the bounds of BETWEEN has both."""
    rule = "Invalid ConditionExpression: The BETWEEN operator requires same data type for lower and upper bounds"
    values = f"lower bound operand: AttributeValue: {{N:4111}}, upper bound operand: AttributeValue: {{S:{SECRET}}}"

    written = commit_one(Wire(Refusal("ValidationException", f"{rule}; {values}")).store, change(), adding().actions)

    assert rule in why(written)
    assert "4111" not in why(written)


INVALID = "One or more parameter values were invalid:"


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("The provided expression refers to an attribute that does not exist in the item", True),
        ("An operand in the update expression has an incorrect data type", True),
        ("The document path provided in the update expression is invalid for update", True),
        ("Item size to update has exceeded the maximum allowed size", True),
        ("Item size has exceeded the maximum allowed size", True),
        ("The provided key element does not match the schema", True),
        ("Transaction request cannot include multiple operations on one item", True),
        (f"{INVALID} Missing the key account in the item", True),
        (f"{INVALID} Type mismatch for key account expected: S actual: N", True),
        (f"{INVALID} Cannot update attribute account. This attribute is part of the key", True),
        (f"{INVALID} Input collection [{SECRET}, {SECRET}] contains duplicates", False),
        (f"1 validation error detected: Value '{SECRET}' failed to satisfy constraint", False),
    ],
)
def test_what_is_wrong_with_a_transaction_is_shown_unless_it_may_hold_a_value(message: str, shown: bool) -> None:
    """Whether DynamoDB says it of the request or of an action: nobody finds a wrong item by "check the sizes"."""
    reasons = [{"Code": "None"}, {"Code": "ValidationError", "Message": message}]
    whole = Refusal("ValidationException", message)
    single = Refusal("TransactionCanceledException", CancellationReasons=reasons)

    for refusal in (whole, single):
        assert (message in why(commit_one(Wire(refusal).store, change(), adding().actions[:1]))) is shown


def put(table: str, **item: Any) -> Action:
    return Action("Put", {"TableName": table, "Item": item})


def delete(table: str, **key: Any) -> Action:
    return Action("Delete", {"TableName": table, "Key": key})


def large(size: int) -> dict[str, Any]:
    """Values of every type, of so many bytes with their names, by DynamoDB's rule."""
    small = {
        "account": "a",
        "list": ["é", {"n": 1}],
        "set": {"b"},
        "none": None,
        "true": True,
        "number": Decimal("-12.50"),
    }
    return small | {"blob": b"x" * (size - 53)}


ARN = f"arn:aws:dynamodb:us-east-1:123456789012:table/{TABLE}"
REFUSED_ACTIONS = {
    "the record put": (
        [put("accounts", account="a"), put(TABLE, id="key")],
        r"action 2 \(Put on records\) .* own record",
    ),
    "the record deleted": ([delete(TABLE, id="key")], "own record"),
    "the record by ARN": ([delete(ARN, id="key")], "own record"),
    "one item twice": (
        [delete("accounts", account="a"), put("accounts", account="a", n=1)],
        "1 and 2 are on the same item",
    ),
    "one item twice, after others": (
        [put("lines", n=1), put("lines", n=1), delete("accounts", account="a"), put("accounts", account="a", n=1)],
        "3 and 4 are on the same item",
    ),
    "one record twice": ([put(TABLE, id="other"), put(TABLE, id="other", n=1)], "the same item"),
    "two numbers that are one": ([delete("lines", line=1), delete("lines", line=Decimal("1.0"))], "the same item"),
    "39 digits": (
        [put("accounts", account="a"), put("accounts", account="b", balance=10**38 + 1)],
        r"^the transaction was not sent: action 2 \(Put on accounts\) holds a value .* 38 digits",
    ),
    "a number too large": ([put("accounts", account="a", balance=Decimal("1E+127"))], r"1E\+126"),
    "a lone surrogate": ([put("accounts", account=f"{SECRET}\ud800")], "lone surrogates"),
    "a misspelt argument": (
        [Action("Put", {"TableName": "accounts", "Item": {"account": "a"}, "ConditionExpresion": SECRET})],
        "^ParamValidationError from TransactWriteItems: table accounts ",
    ),
    "400 KB": (
        [put("accounts", account="b"), put("accounts", **large(MOST_ITEM_BYTES + 1))],
        rf"action 2 \(Put on accounts\): its item has {MOST_ITEM_BYTES + 1} bytes; .*400 KB",
    ),
    "4 MB": ([put("accounts", **large(390_000)) for _ in range(11)], r"have 4290000 bytes; .* 4 MB"),
    "a long key": (
        [put("accounts", account="a"), delete("lines", line="é" * 1025)],
        r"action 2 \(Delete on lines\): its key 'line' has 2050 bytes: DynamoDB allows 1 to 2048; hash it",
    ),
    "a long key of a record": ([put(TABLE, id="x" * 2049)], "its key 'id' has 2049 bytes"),
    "an empty key of a record": ([put(TABLE, id="")], "its key 'id' has 0 bytes"),
    "a record without an id": (
        [put(TABLE, key="other")],
        r"action 1 \(Put on records\) .* whose only key is the string 'id'",
    ),
    "a record's id of bytes": ([delete(ARN, id=b"other")], "whose only key is the string 'id'"),
    "a record with a sort key": ([delete(TABLE, id="other", line=1)], "whose only key is the string 'id'"),
}


@pytest.mark.scenario("S33", mutant="a handler may write its own record")
@pytest.mark.parametrize(("actions", "reason"), REFUSED_ACTIONS.values(), ids=REFUSED_ACTIONS)
def test_actions_that_no_transaction_may_hold(actions: list[Action], reason: str) -> None:
    """What DynamoDB would refuse, or must not be sent, is refused for good before anything is sent."""
    wire = Wire({})

    written = commit_one(wire.store, change(), actions)

    assert isinstance(written, NotApplied)
    assert (written.retry, written.own) == (False, True)
    assert re.search(reason, why(written))
    assert wire.sent == []


def test_actions_at_the_limits() -> None:
    """99 actions, other records of the same table, equal keys in two tables, an item of 400 KB, a key of 2 KB, and 4 MB
    in all are allowed.
    """
    wire = Wire({})
    others = [delete("accounts", id="key"), put("lines", id="key"), delete(TABLE, id="other")]
    actions = [*others, *(put("entries", entry=str(number), blob=b"x" * 42_000) for number in range(96))]

    assert commit_one(wire.store, change(), actions) == Applied()
    assert commit_one(wire.store, change(), [put("accounts", **large(MOST_ITEM_BYTES))]) == Applied()
    assert commit_one(wire.store, change(), [delete("lines", line="é" * 1024), put(TABLE, id="x" * 2048)]) == Applied()
    whole = [put("accounts", **large(MOST_ITEM_BYTES)) for _ in range(10)]
    assert (
        commit_one(wire.store, change(), [*whole, put("accounts", **large(MOST_TRANSACTION_BYTES % MOST_ITEM_BYTES))])
        == Applied()
    )


def test_a_record_that_cannot_be_stored_is_not_committed() -> None:
    """A result that DynamoDB cannot store as a string is refused for good, with the handler's writes."""
    wire = Wire({})
    unsendable = Change(record(data="\ud800", version="v2"), record())

    written = commit_one(wire.store, unsendable, adding().actions)
    assert effect_of(written) == NEVER
    assert "lone surrogate" in why(written)
    assert wire.sent == []
