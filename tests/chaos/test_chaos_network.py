"""What a fault does to a request and to its answer, and what the proxy reads off them."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import DynamoDBStore
from idempotent_receiver.protocol import transitions
from idempotent_receiver.protocol.record import Change, Record
from idempotent_receiver.protocol.transaction import Action
from idempotent_receiver.protocol.transitions import Claim, Claimed
from tests.chaos.network_faults import (
    EVERY_REQUEST_IN,
    OF_AN_OPERATION_IN,
    NetworkFault,
    NetworkFaults,
    answer_dropped,
    cancelled,
    cancelled_in_short,
    failed_after,
    keys_unprocessed,
    refused,
    statements_in_doubt,
    statements_refused,
    transaction_invalid,
)
from tests.chaos.shuffle_bag import ShuffleBag
from tests.chaos.wire import Applied, Failed, RecordWrite, Refused, fates_of, postings_of, writes_of
from tests.many_operations import commit_one

if TYPE_CHECKING:
    from collections.abc import Callable

THREE = {"Statements": [{"Statement": str(place)} for place in range(3)]}
OWNED = {"id": {"S": "key"}, "owner": {"S": "w2.1"}}
KEYS = {"RequestItems": {"records": {"Keys": [{"id": {"S": str(place)}} for place in range(3)]}}}


def test_a_shuffle_bag_gives_each_token_once_in_so_many_draws() -> None:
    bag = ShuffleBag(random.Random(1), ["a", "b"], 10)
    for _ in range(5):
        assert Counter(bag.draw() for _ in range(10)) == {"a": 1, "b": 1, None: 8}


def test_a_token_that_is_put_back_is_drawn_next() -> None:
    bag = ShuffleBag(random.Random(1), ["a"], 10)
    bag.put_back("a")
    assert bag.draw() == "a"


def test_a_statement_that_is_refused_never_arrives_and_the_others_keep_their_places() -> None:
    fault = statements_refused(frozenset({1}), "ThrottlingError")
    assert fault.arriving(THREE) == {"Statements": [{"Statement": "0"}, {"Statement": "2"}]}
    status, told = fault.answering(THREE, (200, {"Responses": [{"n": 0}, {"n": 2}]})) or (0, {})
    assert status == 200
    assert told["Responses"] == [{"n": 0}, {"Error": {"Code": "ThrottlingError", "Message": ""}}, {"n": 2}]


def test_where_all_statements_are_refused_nothing_arrives() -> None:
    fault = statements_refused(frozenset({0, 1, 2}), "ThrottlingError")
    assert fault.arriving(THREE) is None
    assert len((fault.answering(THREE, None) or (0, {}))[1]["Responses"]) == 3


def test_a_statement_in_doubt_arrives_all_the_same() -> None:
    fault = statements_in_doubt(frozenset({2}))
    assert fault.arriving(THREE) == THREE
    _, told = fault.answering(THREE, (200, {"Responses": [{}, {}, {}]})) or (0, {})
    assert [response.get("Error", {}).get("Code") for response in told["Responses"]] == [
        None,
        None,
        "InternalServerError",
    ]


def test_keys_that_are_not_processed_are_returned() -> None:
    fault = keys_unprocessed(frozenset({0}))
    assert fault.arriving(KEYS) == {"RequestItems": {"records": {"Keys": [{"id": {"S": "1"}}, {"id": {"S": "2"}}]}}}
    _, told = fault.answering(KEYS, (200, {"Responses": {"records": [{}]}})) or (0, {})
    assert told == {
        "Responses": {"records": [{}]},
        "UnprocessedKeys": {"records": {"Keys": [{"id": {"S": "0"}}]}},
    }


@pytest.mark.parametrize(
    ("fault", "codes"),
    [
        (cancelled(1, "TransactionConflict"), ["None", "TransactionConflict", "None"]),
        (cancelled_in_short("ValidationError"), ["ValidationError"]),
    ],
)
def test_a_cancelled_transaction_says_why_as_dynamodb_does_and_never_arrives(
    fault: NetworkFault, codes: list[str]
) -> None:
    """A reason for each action, or one for all."""
    asked: dict[str, Any] = {"TransactItems": [{}, {}, {}]}
    assert fault.arriving(asked) is None
    status, told = fault.answering(asked, None) or (0, {})
    assert status == 400
    assert told["__type"].endswith("#TransactionCanceledException")
    assert [reason["Code"] for reason in told["CancellationReasons"]] == codes
    assert told["Message"].endswith(f"[{', '.join(codes)}]")


def test_only_a_transaction_of_several_messages_is_called_invalid() -> None:
    """One that is alone would rightly fail for good."""
    record, other = {"Put": {"TableName": "records", "Item": OWNED}}, {"Update": {"TableName": "accounts"}}
    alone, pack = [record, other], [record, other, record, other]
    chance = random.Random(1)
    names = [transaction_invalid(chance, {"TransactItems": items}).name for items in (alone, pack)]
    assert names == ["throttled", "transaction invalid"]


@pytest.mark.parametrize(
    ("fault", "arrives", "status"),
    [
        (answer_dropped(), True, None),
        (failed_after(500), True, 500),
        (refused(503, "ServiceUnavailable"), False, 503),
    ],
)
def test_what_arrives_and_what_is_told_are_two_things(fault: NetworkFault, arrives: bool, status: int | None) -> None:
    assert (fault.arriving(THREE) is not None) == arrives
    told = fault.answering(THREE, (200, {}) if arrives else None)
    assert (None if told is None else told[0]) == status


def test_in_so_many_requests_every_fault_comes_up_and_most_requests_meet_none() -> None:
    faults, seen = NetworkFaults(1), Counter[str]()
    requests: dict[str, Any] = {
        "BatchExecuteStatement": THREE,
        "BatchGetItem": KEYS,
        "TransactWriteItems": {"TransactItems": [{"Put": {"TableName": "records", "Item": OWNED}}] * 2},
        "PutItem": {},
    }
    rounds = EVERY_REQUEST_IN * OF_AN_OPERATION_IN
    for _ in range(rounds):
        for operation, asked in requests.items():
            fault = faults.choose(operation, asked)
            seen[fault.name if fault is not None else "none"] += 1
    assert set(seen) == {
        *("slow", "delayed", "answer dropped", "5xx, applied", "5xx, not applied", "statement refused, not applied"),
        *("statement in doubt, applied", "keys unprocessed", "throttled", "none"),
        *("transaction cancelled", "transaction cancelled, one reason", "transaction invalid"),
        *("transaction's answer dropped", "transaction delayed"),
    }
    assert 0.7 < seen["none"] / (rounds * len(requests)) < 0.9


# The wire, as the store really writes it.


class Client:
    """DynamoDB's client, as far as it is asked; it keeps the question."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Callable[..., dict[str, Any]]:
        operation = "".join(part.title() for part in name.split("_"))

        def ask(**request: Any) -> dict[str, Any]:
            self.asked.append((operation, request))
            return {"Responses": [{} for _ in request.get("Statements", [])]}

        return ask


CLAIM = Claim(id="key", fingerprint="f", owner="w1.1", lease_until_ms=9_000)
CLAIMED = Record(
    id="key",
    status="INPROGRESS",
    version="1",
    expiration=9,
    in_progress_expiration=9_000,
    attempts=1,
    validation="f",
    owner="w1.1",
)
HELD = Claimed(CLAIMED, CLAIM)
OTHER_CLAIM = Claim(id="key", fingerprint="f", owner="w2.1", lease_until_ms=20_000)
TAKE_OVER = OTHER_CLAIM.step(CLAIMED, (), 10_000, "2")
ACTION = Action("Put", {"TableName": "entries", "Item": {"id": "e"}})


def written(*changes: Change, actions: tuple[Action, ...] = ()) -> list[RecordWrite]:
    """What the proxy reads off the request that these changes become."""
    client = Client()
    store = DynamoDBStore("records", client=client)  # type: ignore[arg-type]  # it asks like one
    if actions:
        commit_one(store, changes[0], actions)
    elif changes[0].seen is None:
        store.insert([change.new for change in changes])
    else:
        store.replace(changes)
    ((operation, asked),) = client.asked
    return writes_of(operation, asked, "records")


@pytest.mark.parametrize("number", [1, 2])
def test_what_a_write_is_for_is_read_off_the_wire(number: int) -> None:
    """One alone, and in a batch."""
    assert isinstance(TAKE_OVER, Change)
    moves = {
        "claim": [Change(CLAIMED, None), TAKE_OVER],
        "complete": [transitions.complete(HELD, "{}").change(5_000, "2")],
        "fail": [transitions.fail(HELD, "{}").change(5_000, "2")],
        "release": [transitions.release(HELD, 5_000).change(5_000, "2")],
    }
    for move, changes in moves.items():
        for change in changes:
            writes = [RecordWrite("key", move, change.new.version, place) for place in range(number)]  # type: ignore[arg-type]  # the names
            assert written(*[change] * number) == writes


def test_a_commit_is_read_off_the_wire() -> None:
    assert written(transitions.complete(HELD, None).change(5_000, "2"), actions=(ACTION,)) == [
        RecordWrite("key", "complete", "2")
    ]


def test_what_ends_a_run_that_claimed_nothing_is_read_off_the_wire() -> None:
    """It puts the owner, too, as a claim does."""
    first = CLAIM.unwritten(None, 5_000, "2")
    assert written(transitions.complete(first, "{}").change(5_000, "3")) == [RecordWrite("key", "complete", "3")]
    failed = transitions.fail(first, "{}").change(5_000, "3").new
    again = OTHER_CLAIM.unwritten(failed, 20_000, "4")
    assert written(transitions.fail(again, "{}").change(20_000, "5")) == [RecordWrite("key", "fail", "5")]


def test_each_record_of_a_transaction_is_read_off_the_wire_where_it_stands() -> None:
    """Between the writes of handlers, in the order of the messages."""
    put = {"TableName": "records", "Item": {"id": {"S": "a"}, "status": {"S": "COMPLETED"}, "version": {"S": "1"}}}
    values = {":status": {"S": "COMPLETED"}, ":version": {"S": "2"}, ":expected_version": {"S": "1"}}
    update = {"TableName": "records", "Key": {"id": {"S": "b"}}, "ExpressionAttributeValues": values}
    own = {"Update": {"TableName": "accounts"}}
    request = {"TransactItems": [{"Put": put}, own, own, {"Update": update}, own]}
    writes = writes_of("TransactWriteItems", request, "records")
    assert writes == [RecordWrite("a", "complete", "1", 0), RecordWrite("b", "complete", "2", 3)]
    reasons = [{"Code": "None"}, {"Code": "None"}, {"Code": "None"}, {"Code": "ConditionalCheckFailed", "Item": OWNED}]
    answer = {"CancellationReasons": [*reasons, {"Code": "None"}]}
    assert fates_of("TransactWriteItems", 400, answer, writes) == [Failed(), Refused("w2.1")]
    assert fates_of("TransactWriteItems", 400, {"CancellationReasons": reasons[:1]}, writes) == [Failed(), Failed()]


def test_what_a_request_adds_to_the_ledger_is_read_off_the_wire() -> None:
    """Transfer by transfer, all its legs; nothing of the records and of the accounts."""

    def leg(transfer: str, account: str, amount: int) -> dict[str, Any]:
        values = {":transfer": {"S": transfer}, ":account": {"S": account}, ":amount": {"N": str(amount)}}
        return {"Update": {"TableName": "entries", "ExpressionAttributeValues": values}}

    others = [{"Put": {"TableName": "records"}}, {"Update": {"TableName": "accounts"}}]
    request = {"TransactItems": [*others, leg("t1", "a", -1), leg("t2", "a", -2), leg("t1", "b", 1)]}
    assert postings_of("TransactWriteItems", request, "entries") == {"t1": (("a", -1), ("b", 1)), "t2": (("a", -2),)}
    assert postings_of("PutItem", {"TableName": "entries"}, "entries") == {}


def test_what_is_written_to_other_tables_is_no_record() -> None:
    assert writes_of("PutItem", {"TableName": "entries", "Item": {"id": {"S": "e"}}}, "records") == []
    assert writes_of("SendMessage", {"QueueUrl": "q"}, "records") == []


CHECK_FAILED = "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException"


@pytest.mark.parametrize(
    ("operation", "status", "answer", "fates"),
    [
        ("PutItem", 200, {}, [Applied()]),
        ("UpdateItem", 400, {"__type": CHECK_FAILED, "Item": OWNED}, [Refused("w2.1")]),
        ("UpdateItem", 500, {"__type": "x#InternalServerError"}, [Failed()]),
        (
            "TransactWriteItems",
            400,
            {"CancellationReasons": [{"Code": "ConditionalCheckFailed", "Item": OWNED}, {"Code": "None"}]},
            [Refused("w2.1")],
        ),
        (
            "BatchExecuteStatement",
            200,
            {
                "Responses": [
                    {},
                    {"Error": {"Code": "ConditionalCheckFailed", "Item": OWNED}},
                    {"Error": {"Code": "DuplicateItem"}},
                    {"Error": {"Code": "ThrottlingError"}},
                ]
            },
            [Applied(), Refused("w2.1"), Refused(None), Failed()],
        ),
    ],
)
def test_what_came_of_a_write_is_read_off_its_answer(
    operation: str, status: int, answer: dict[str, Any], fates: list[object]
) -> None:
    writes = [RecordWrite("key", "complete", place=place) for place in range(len(fates))]
    assert list(fates_of(operation, status, answer, writes)) == fates
