"""Statements that go over the wire as they are: which ones do, and that nobody else's request is touched.

What the store sends as a whole is in `test_dynamodb.py`, with a client that validates and one that does not.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.stub import Stubber

from idempotent_receiver.stores import prepared
from idempotent_receiver.stores.prepared import Prepared, accept_prepared

if TYPE_CHECKING:
    from botocore.awsrequest import AWSPreparedRequest
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import BatchStatementRequestTypeDef


class Wire:
    """A client whose requests end here; `bodies` are what they carried."""

    def __init__(self) -> None:
        session = boto3.session.Session(aws_access_key_id="unit", aws_secret_access_key="test", region_name="us-east-1")
        self.client: DynamoDBClient = session.client("dynamodb")
        self.bodies: list[Any] = []
        # The stubs know of no handler that answers.
        self.client.meta.events.register("before-send.dynamodb", cast("Any", self._answer))

    def _answer(self, request: AWSPreparedRequest, **_: object) -> AWSResponse:
        assert isinstance(request.body, bytes)
        assert request.headers["Content-Length"] == str(len(request.body))
        self.bodies.append(json.loads(request.body))
        answer: Any = AWSResponse(request.url, 200, HTTPHeaders(), None)
        answer._content = b'{"Responses": []}'
        return cast("AWSResponse", answer)


def statements(count: int) -> list[BatchStatementRequestTypeDef]:
    return [{"Statement": f"SELECT {number}", "Parameters": [{"S": "é"}]} for number in range(count)]


@pytest.fixture
def wire() -> Wire:
    made = Wire()
    accept_prepared(made.client)
    return made


@pytest.mark.parametrize("count", [1, 2, 25])
def test_prepared_statements_are_sent_all_and_in_order(wire: Wire, count: int) -> None:
    wire.client.batch_execute_statement(Statements=Prepared(statements(count)))
    assert wire.bodies == [{"Statements": statements(count)}]


def test_what_is_not_prepared_is_botocores_to_serialise(wire: Wire) -> None:
    """A handler's own statements may hold bytes, which JSON has not."""
    own: list[BatchStatementRequestTypeDef] = [{"Statement": "SELECT 1", "Parameters": [{"B": b"\x00"}]}]
    wire.client.batch_execute_statement(Statements=own)
    assert wire.bodies == [{"Statements": [{"Statement": "SELECT 1", "Parameters": [{"B": "AA=="}]}]}]


def test_one_request_leaves_nothing_behind_for_the_next(wire: Wire) -> None:
    wire.client.batch_execute_statement(Statements=Prepared(statements(3)))
    wire.client.batch_execute_statement(Statements=statements(2))
    assert [len(body["Statements"]) for body in wire.bodies] == [3, 2]


def test_a_client_that_several_stores_share_learns_it_once(wire: Wire) -> None:
    accept_prepared(wire.client)
    wire.client.batch_execute_statement(Statements=Prepared(statements(3)))
    assert wire.bodies == [{"Statements": statements(3)}]


def test_a_stubber_is_shown_every_statement(wire: Wire) -> None:
    """Whoever tests with botocore's Stubber sees what the store asks for."""
    with Stubber(wire.client) as stubber:
        stubber.add_response("batch_execute_statement", {"Responses": []}, {"Statements": statements(3)})
        wire.client.batch_execute_statement(Statements=Prepared(statements(3)))
        stubber.assert_no_pending_responses()


def test_without_the_event_that_boto3_does_not_document_all_is_sent_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Serialised as ever: a boto3 that no longer emitted it would cost time, and no statement."""
    monkeypatch.setattr(prepared, "_set_aside", lambda **event: None)
    wire = Wire()
    accept_prepared(wire.client)
    wire.client.batch_execute_statement(Statements=Prepared(statements(3)))
    assert wire.bodies == [{"Statements": statements(3)}]


def test_what_only_acts_like_a_client_is_left_alone() -> None:
    """A stand-in of somebody's tests, which has no events."""
    accept_prepared(object())  # type: ignore[arg-type]  # it acts like one, as far as it is asked
