"""What a fault does to a request and to its answer, and what the proxy reads off them."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest

from harness.dynamodb.in_process import client_of
from idempotent_receiver import DynamoDBStore
from idempotent_receiver.dynamodb import client_config
from idempotent_receiver.protocol import transitions
from idempotent_receiver.protocol.record import Change, Record
from idempotent_receiver.protocol.sending import TakeOver, mark, stop
from idempotent_receiver.protocol.transitions import Claim, Claimed
from idempotent_receiver.sqs.dead_letter import Stamp
from idempotent_receiver.transaction.action import Action
from idempotent_receiver.transaction.outbox import STAMP
from tests.chaos.network_faults import (
    EVERY_REQUEST_IN,
    OF_AN_OPERATION_IN,
    NetworkFault,
    NetworkFaults,
    ShuffleBag,
    answer_dropped,
    cancelled,
    failed_after,
    keys_unprocessed,
    refused,
    statements_failed,
    transaction_invalid,
)
from tests.chaos.wire import RecordWrite, Refused, fates_of, postings_of, stamps_of, writes_of
from tests.many_operations import commit_one

Json = dict[str, Any]
THREE: Json = {"Statements": [{"Statement": str(place)} for place in range(3)]}
OWNED = {"id": {"S": "key"}, "owner": {"S": "w2.1"}}
RECORD, OTHER = {"Put": {"TableName": "records", "Item": OWNED}}, {"Update": {"TableName": "accounts"}}


def keys(*places: int) -> Json:
    return {"records": {"Keys": [{"id": {"S": str(place)}} for place in places]}}


KEYS: Json = {"RequestItems": keys(0, 1, 2)}
REFUSED = {"Error": {"Code": "ThrottlingError", "Message": ""}}


def test_a_shuffle_bag_gives_each_token_once_in_so_many_draws() -> None:
    bag = ShuffleBag(random.Random(1), ["a", "b"], 10)
    for _ in range(5):
        assert Counter(bag.draw() for _ in range(10)) == {"a": 1, "b": 1, None: 8}
    bag.put_back("a")
    assert bag.draw() == "a"


@pytest.mark.parametrize(
    ("fault", "asked", "arrives", "answer", "told"),
    [
        (
            statements_failed(frozenset({1}), "ThrottlingError", applied=False),
            THREE,
            {"Statements": [THREE["Statements"][0], THREE["Statements"][2]]},
            {"Responses": [{"n": 0}, {"n": 2}]},
            {"Responses": [{"n": 0}, REFUSED, {"n": 2}]},
        ),
        (
            statements_failed(frozenset(range(3)), "ThrottlingError", applied=False),
            THREE,
            None,
            None,
            {"Responses": [REFUSED] * 3},
        ),
        (
            statements_failed(frozenset({2}), "ThrottlingError", applied=True),
            THREE,
            THREE,
            {"Responses": [{}, {}, {}]},
            {"Responses": [{}, {}, REFUSED]},
        ),
        (
            keys_unprocessed(frozenset({0})),
            KEYS,
            {"RequestItems": keys(1, 2)},
            {"Responses": {"records": [{}]}},
            {"Responses": {"records": [{}]}, "UnprocessedKeys": keys(0)},
        ),
    ],
)
def test_what_fails_in_part_never_arrives_or_is_in_doubt_and_the_rest_keeps_its_places(
    fault: NetworkFault, asked: Json, arrives: Json | None, answer: Json | None, told: Json
) -> None:
    assert fault.arriving(asked) == arrives
    assert fault.answering(asked, None if answer is None else (200, answer)) == (200, told)
    if answer is not None:
        assert fault.answering(asked, (400, {})) == (400, {}), "it failed as a whole"


@pytest.mark.parametrize(
    ("fault", "codes"),
    [
        (cancelled(1, "TransactionConflict"), ["None", "TransactionConflict", "None"]),
        (cancelled(None, "ValidationError"), ["ValidationError"]),
    ],
)
def test_a_cancelled_transaction_says_why_as_dynamodb_does_and_never_arrives(
    fault: NetworkFault, codes: list[str]
) -> None:
    """A reason for each action, or one for all."""
    asked: Json = {"TransactItems": [{}, {}, {}]}
    assert fault.arriving(asked) is None
    status, told = fault.answering(asked, None) or (0, {})
    assert status == 400
    assert told["__type"].endswith("#TransactionCanceledException")
    assert [reason["Code"] for reason in told["CancellationReasons"]] == codes
    assert told["Message"].endswith(f"[{', '.join(codes)}]")


@pytest.mark.parametrize(
    ("fault", "arrives", "status"),
    [
        (answer_dropped(), True, None),
        (failed_after(500), True, 500),
        (refused(503, "ServiceUnavailable"), False, 503),
        (transaction_invalid({"TransactItems": [RECORD, OTHER, RECORD, OTHER]}), False, 400),
    ],
)
def test_what_arrives_and_what_is_told_are_two_things(fault: NetworkFault, arrives: bool, status: int | None) -> None:
    assert (fault.arriving(THREE) is not None) == arrives
    told = fault.answering(THREE, (200, {}) if arrives else None)
    assert (None if told is None else told[0]) == status


def test_in_so_many_requests_every_fault_comes_up_and_most_requests_meet_none() -> None:
    faults, seen = NetworkFaults(1), Counter[str]()
    requests: Json = {
        "BatchExecuteStatement": THREE,
        "BatchGetItem": KEYS,
        "TransactWriteItems": {"TransactItems": [RECORD] * 2},
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
    assert transaction_invalid({"TransactItems": [RECORD, OTHER]}).name == "throttled", "alone it would rightly fail"
    assert 0.7 < seen["none"] / (rounds * len(requests)) < 0.9


# The wire, as the store really writes it.


CLAIM = Claim(id="key", fingerprint="f", owner="w1.1", lease_until_ms=9_000)
CLAIMED = Record(
    id="key",
    status="INPROGRESS",
    version="1",
    expiration=9_000,
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
    asked: list[tuple[str, Json]] = []

    def take(operation: str, body: bytes) -> tuple[int, bytes]:
        asked.append((operation, json.loads(body)))
        return 200, json.dumps({"Responses": [{} for _ in changes]}).encode()

    store = DynamoDBStore("records", client=client_of(take, client_config()))
    if actions:
        commit_one(store, changes[0], actions)
    elif changes[0].seen is None:
        store.insert([change.new for change in changes])
    else:
        store.replace(changes)
    ((operation, request),) = asked
    return writes_of(operation, request, "records")


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


def test_what_ends_a_run_is_read_off_the_wire() -> None:
    """With what the handler writes; and where nothing was claimed, when it puts the owner, too, as a claim does."""
    done = transitions.complete(HELD, None).change(5_000, "2")
    assert written(done, actions=(ACTION,)) == [RecordWrite("key", "complete", "2")]
    first = CLAIM.unclaimed(None, 5_000, "2")
    assert written(transitions.complete(first, "{}").change(5_000, "3")) == [RecordWrite("key", "complete", "3")]
    failed = transitions.fail(first, "{}").change(5_000, "3").new
    again = OTHER_CLAIM.unclaimed(failed, 20_000, "4")
    assert written(transitions.fail(again, "{}").change(20_000, "5")) == [RecordWrite("key", "fail", "5")]


@pytest.mark.parametrize("number", [1, 2])
def test_what_has_messages_to_send_ends_its_run_and_is_marked_later(number: int) -> None:
    """One alone, and in a batch. A mark ends no run."""
    sending = transitions.complete(HELD, "{}", outbox="[]").change(5_000, "2")
    marked = mark(Claimed(sending.new, CLAIM)).change(6_000, "3")
    for change, version, marks in ((sending, "2", False), (marked, "3", True)):
        writes = [RecordWrite("key", "complete", version, place, marks) for place in range(number)]
        assert written(*[change] * number) == writes
    taken = TakeOver(OTHER_CLAIM).step(sending.new, (), 20_000, "4")
    assert isinstance(taken, Change)
    left = stop(Claimed(taken.new, OTHER_CLAIM), "[null]", 21_000).change(21_000, "5")
    for change in (taken, left):
        assert all(write.marks for write in written(*[change] * number))


def test_each_record_of_a_transaction_is_read_off_the_wire_where_it_stands() -> None:
    """Between the writes of handlers, in the order of the messages."""
    put = {"TableName": "records", "Item": {"id": {"S": "a"}, "status": {"S": "COMPLETED"}, "version": {"S": "1"}}}
    values = {":status": {"S": "COMPLETED"}, ":version": {"S": "2"}, ":expected_version": {"S": "1"}}
    change = {"UpdateExpression": "SET #status = :status", "ExpressionAttributeValues": values}
    update = {"TableName": "records", "Key": {"id": {"S": "b"}}, **change}
    own = {"Update": {"TableName": "accounts"}}
    request = {"TransactItems": [{"Put": put}, own, own, {"Update": update}, own]}
    writes = writes_of("TransactWriteItems", request, "records")
    assert writes == [RecordWrite("a", "complete", "1", 0), RecordWrite("b", "complete", "2", 3)]
    reasons = [{"Code": "None"}, {"Code": "None"}, {"Code": "None"}, {"Code": "ConditionalCheckFailed", "Item": OWNED}]
    answer = {"CancellationReasons": [*reasons, {"Code": "None"}]}
    assert fates_of("TransactWriteItems", 400, answer, writes) == [False, Refused("w2.1")]
    assert fates_of("TransactWriteItems", 400, {"CancellationReasons": reasons[:1]}, writes) == [False, False]


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


def test_what_is_dead_or_redriven_is_read_off_the_wire_with_its_record_and_only_what_sqs_took() -> None:
    """Of one message, and of a batch, whose second message SQS has refused."""
    stamps = Stamp(key="k", original_id="k", reason="refused"), Stamp(key="k2", original_id="k2")
    dead, back = ({"MessageAttributes": {STAMP: {"StringValue": each.to_json()}}} for each in stamps)
    sent = stamps_of("SendMessage", {"QueueUrl": "http://sqs/1/copies-dead", **dead}, {"MessageId": "m"})
    assert list(sent) == [("m", "copies#k", "refused")]
    batch = {"QueueUrl": "http://sqs/1/transfers.fifo", "Entries": [{"Id": "0", **back}, {"Id": "1", **back}]}
    taken = {"Successful": [{"Id": "0", "MessageId": "m"}], "Failed": [{"Id": "1"}]}
    assert list(stamps_of("SendMessageBatch", batch, taken)) == [("m", "k2", None)]
    assert list(stamps_of("PutItem", {}, {})) == []


CHECK_FAILED = "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException"


@pytest.mark.parametrize(
    ("operation", "status", "answer", "fates"),
    [
        ("PutItem", 200, {}, [True]),
        ("UpdateItem", 400, {"__type": CHECK_FAILED, "Item": OWNED}, [Refused("w2.1")]),
        ("UpdateItem", 500, {"__type": "x#InternalServerError"}, [False]),
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
            [True, Refused("w2.1"), Refused(None), False],
        ),
    ],
)
def test_what_came_of_a_write_is_read_off_its_answer(
    operation: str, status: int, answer: dict[str, Any], fates: list[object]
) -> None:
    writes = [RecordWrite("key", "complete", place=place) for place in range(len(fates))]
    assert list(fates_of(operation, status, answer, writes)) == fates
