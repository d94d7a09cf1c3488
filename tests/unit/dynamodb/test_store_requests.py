"""What `DynamoDBStore` sends, what it does not send, and its client."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from contextlib import closing
from threading import Barrier, Thread
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders

from idempotent_receiver import DynamoDBStore, sqs_consumer
from idempotent_receiver.dynamodb import client_config
from idempotent_receiver.local.server import free_port
from idempotent_receiver.protocol.record import Change, Record
from idempotent_receiver.protocol.store import Applied
from idempotent_receiver.testing import lambda_context, sqs_event
from tests.unit.dynamodb.wire import (
    NEVER,
    SECRET,
    TABLE,
    Raw,
    Reply,
    Wire,
    change,
    changes,
    effect_of,
    record,
    records,
    statements,
)


@pytest.mark.slow
@pytest.mark.parametrize("receive_count", [1, 2], ids=["delivered first", "delivered again"])
def test_where_nothing_listens_every_message_comes_again_and_the_log_names_the_endpoint(
    receive_count: int, caplog: pytest.LogCaptureFixture
) -> None:
    """As of a function under `sam local` with no cloud. It takes no longer than the refusals."""
    endpoint = f"http://127.0.0.1:{free_port()}"
    known = {"region_name": "us-east-1", "aws_access_key_id": "test", "aws_secret_access_key": "test"}
    with closing(boto3.client("dynamodb", endpoint_url=endpoint, config=client_config(), **known)) as client:

        @sqs_consumer(DynamoDBStore(TABLE, client=client), logger=logging.getLogger("consumer"))
        def handler(order: dict[str, Any]) -> None:
            raise AssertionError("nothing is claimed")

        began = time.monotonic()
        answer = handler(sqs_event({}, {}, {}, receive_count=receive_count), lambda_context())
    assert time.monotonic() - began < 5
    ids = ["message-1", "message-2", "message-3"]
    assert answer == {"batchItemFailures": [{"itemIdentifier": id} for id in ids]}
    told = {each.message_id: each.why for each in caplog.records if hasattr(each, "why")}
    assert [*told] == ids
    assert all("could not be reached" in why and why.endswith(f"(endpoint {endpoint}/)") for why in told.values()), told


# What is sent

UPDATE = {
    "TableName": TABLE,
    "Key": {"id": {"S": "key"}},
    "UpdateExpression": "SET #status = :status, #version = :version, #data = :data REMOVE #owner",
    "ConditionExpression": "attribute_exists(#id) AND #version = :expected_version",
    "ExpressionAttributeNames": {f"#{name}": name for name in ("id", "status", "version", "data", "owner")},
    "ExpressionAttributeValues": {
        ":status": {"S": "COMPLETED"},
        ":version": {"S": "v2"},
        ":data": {"S": f'"{SECRET}"'},
        ":expected_version": {"S": "v1"},
    },
    "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
}
"""What `change()` is."""


def test_one_insert_is_one_put() -> None:
    """One record goes out as a PutItem that is conditional on absence and asks for what is there."""
    wire = Wire({})

    assert wire.store.insert([record()]) == [Applied()]

    assert wire.sent == [
        (
            "PutItem",
            {
                "TableName": TABLE,
                "Item": {
                    "id": {"S": "key"},
                    "status": {"S": "INPROGRESS"},
                    "version": {"S": "v1"},
                    "owner": {"S": "worker"},
                    "expiration": {"N": "7"},
                },
                "ConditionExpression": "attribute_not_exists(#id)",
                "ExpressionAttributeNames": {"#id": "id"},
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            },
        )
    ]


def test_one_replace_is_one_update() -> None:
    """One change goes out as an UpdateItem: every attribute that differs, on condition of the version seen."""
    wire = Wire({})

    assert wire.store.replace([change()]) == [Applied()]

    assert wire.sent == [("UpdateItem", UPDATE)]


def test_the_text_of_an_insert() -> None:
    """Every name of an INSERT stands in single quotes, every value is a parameter."""
    wire = Wire(statements(None, None))

    wire.store.insert(records(2))

    first = wire.sent[0][1]["Statements"][0]
    names = "'id': ?, 'status': ?, 'version': ?, 'owner': ?, 'expiration': ?"
    assert first == {
        "Statement": f'INSERT INTO "{TABLE}" VALUE {{{names}}}',
        "Parameters": [{"S": "key-0"}, {"S": "INPROGRESS"}, {"S": "v1"}, {"S": "worker"}, {"N": "7"}],
    }


def test_the_text_of_an_update() -> None:
    """Every name of an UPDATE stands in double quotes in a clause of its own; unchanged attributes are left out."""
    wire = Wire(statements(None, None))

    wire.store.replace(changes(2))

    assert wire.sent[0][1]["Statements"][0] == {
        "Statement": (
            f'UPDATE "{TABLE}" SET "status"=? SET "version"=? SET "data"=? REMOVE "owner" WHERE "id"=? AND "version"=?'
        ),
        "Parameters": [
            {"S": "COMPLETED"},
            {"S": "v2"},
            {"S": f'"{SECRET}"'},
            {"S": "key-0"},
            {"S": "v1"},
        ],
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def test_the_text_of_an_update_of_a_record_without_a_version() -> None:
    """The condition says what a record of Powertools must still have, and what it must still lack."""
    wire = Wire(statements(None, None))
    seen = [record(id, version=None, owner=None) for id in "ab"]

    wire.store.replace([Change(record(old.id), old) for old in seen])

    removed = [
        *("data", "validation", "error", "execution", "input", "resent", "outbox", "charged"),
        "in_progress_expiration",
        "attempts",
    ]
    given = [{"S": "INPROGRESS"}, {"S": "v1"}, {"S": "worker"}, {"N": "7"}]
    assert wire.sent[0][1]["Statements"][0] == {
        "Statement": f'UPDATE "{TABLE}" SET "status"=? SET "version"=? SET "owner"=? SET "expiration"=? REMOVE "'
        + '" REMOVE "'.join(removed)
        + '"'
        ' WHERE "id"=? AND "status"=? AND "expiration"=?'
        ' AND "version" IS MISSING AND "in_progress_expiration" IS MISSING',
        "Parameters": [*given, {"S": "a"}, {"S": "INPROGRESS"}, {"N": "7"}],
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


@pytest.mark.scenario("S20", mutant="a request takes 26 statements")
@pytest.mark.parametrize(("count", "requests"), [(2, 1), (25, 1), (26, 2), (50, 2), (60, 3)])
def test_25_writes_are_one_request(count: int, requests: int) -> None:
    """Inserts and replaces of n records take n/25 requests, rounded up."""
    inserting, replacing = Wire(*batches(count)), Wire(*batches(count))

    assert inserting.store.insert(records(count)) == [Applied()] * count
    assert replacing.store.replace(changes(count)) == [Applied()] * count
    assert len(inserting.sent) == len(replacing.sent) == requests


def batches(count: int) -> list[Reply]:
    """The answers to `count` statements that all succeed; one left over is no batch."""
    sizes = [min(25, count - start) for start in range(0, count, 25)]
    return [{} if size == 1 else statements(*[None] * size) for size in sizes]


def test_nothing_to_do_is_no_request() -> None:
    """Empty sequences cost no request."""
    wire = Wire({})

    assert [wire.store.insert([]), wire.store.replace([]), wire.store.read([])] == [[], [], []]
    assert wire.sent == []


# What cannot be sent


UNSENDABLE = {
    "key with a lone surrogate": (record("a\ud800b"), "lone surrogate"),
    "value with a lone surrogate": (record(data='"\udfff"'), "lone surrogate"),
    "empty key": (record(""), "bytes"),
    "key of 2049 bytes": (record("ß" * 1024 + "k"), "2049 bytes"),
    "number of 39 digits": (record(expiration=10**38), "38 digits"),
}


@pytest.mark.scenario("S19", mutant="a key of any length is sent")
@pytest.mark.parametrize(("poison", "why"), UNSENDABLE.values(), ids=UNSENDABLE)
def test_what_dynamodb_cannot_store_sinks_nothing_else(poison: Record, why: str) -> None:
    """A record that would sink its whole batch, or be confused with another, is left out and answered by itself."""
    inserting, replacing, longest = Wire(statements(None, None)), Wire(statements(None, None)), "b" * 2048

    inserted = inserting.store.insert([record("a"), poison, record(longest)])
    replaced = replacing.store.replace([change("a"), Change(poison, record(poison.id)), change(longest)])

    for wire, written in ((inserting, inserted), (replacing, replaced)):
        assert [len(body["Statements"]) for _, body in wire.sent] == [2]
        assert [written[0], written[2]] == [Applied(), Applied()]
        assert effect_of(written[1]) == NEVER
        assert why in written[1].why


NOT_NAMES = ["a b", 'a"b', "arn:aws:dynamodb:us-east-1:123456789012:table/records", "x" * 256]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        *((name, r" \(an ARN is not accepted\)") for name in NOT_NAMES),
        *((name, r": is a variable not set\?") for name in ("", None)),
    ],
)
def test_what_is_not_a_table_s_name_is_refused_at_set_up(name: Any, told: str) -> None:
    """Before it becomes part of a statement, and not by an error of `re`."""
    with pytest.raises(ValueError, match=f"not a DynamoDB table name{told}$"):
        DynamoDBStore(name)


# The client


def test_a_client_is_built_once_on_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many threads start at once, they share one client, with time-outs that suit a function."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    built: list[Any] = []
    session, barrier = boto3.session.Session, Barrier(8)

    class Counting(session):  # type: ignore[misc, valid-type]  # a variable, but the class it is
        def client(self, *arguments: Any, **options: Any) -> Any:
            built.append(super().client(*arguments, **options))
            return built[-1]

    monkeypatch.setattr("boto3.session.Session", Counting)
    store = DynamoDBStore(TABLE)
    assert built == []

    def first_use() -> None:
        barrier.wait()
        assert store.client is not None

    threads = [Thread(target=first_use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(built) == 1
    with closing(store.client) as client:
        config: Any = client.meta.config
    assert (config.connect_timeout, config.read_timeout) == (1, 3)
    assert config.retries == {"mode": "standard", "total_max_attempts": 2}
    assert (config.max_pool_connections, config.tcp_keepalive) == (32, True)
    given: Any = client_config()
    assert given.parameter_validation is False


@pytest.mark.slow
def test_a_trail_shows_whose_requests_these_are() -> None:
    """The configured user agent is sent as it is; boto3 would build its own for each request."""
    sent: list[Any] = []

    def end(request: Any, **_: object) -> AWSResponse:
        sent.append(request.headers["User-Agent"])
        return AWSResponse(request.url, 200, HTTPHeaders(), Raw(b"{}"))

    session = boto3.session.Session(aws_access_key_id="unit", aws_secret_access_key="test", region_name="us-east-1")
    client: Any = session.client("dynamodb", config=client_config())
    client.meta.events.register("before-send.dynamodb", end)
    client.batch_execute_statement(Statements=[])
    (name,) = sent
    assert name.startswith(f"idempotent-receiver Boto3/{boto3.__version__}".encode())
    assert b"lang/" not in name, "it was built anew"


@pytest.mark.slow
def test_the_import_is_lean() -> None:
    """Importing the store loads neither boto3 nor a session's data; the first use does."""
    code = "import sys, idempotent_receiver.dynamodb.store; print({'boto3', 'botocore.session'} & sys.modules.keys())"

    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert told.stdout.strip() == "set()"
