"""Raw lists: which statements and actions are sent without botocore's serialiser, and that no other request changes.

`test_store.py` tests what the store sends, with a client that validates and one that does not.
"""

from __future__ import annotations

import json
from decimal import Decimal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import boto3
import botocore.session
import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.stub import Stubber

from idempotent_receiver import DynamoDBStore, Transaction, raw_requests
from idempotent_receiver.protocol.record import Change, Record
from idempotent_receiver.protocol.store import Commit, Unknown
from idempotent_receiver.raw_requests import RawList, accept_raw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from botocore.awsrequest import AWSPreparedRequest
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import BatchStatementRequestTypeDef, TransactWriteItemTypeDef


class Wire:
    """A client without a network: `sent` has the contents of its requests, and `bodies` those that were JSON."""

    def __init__(self, metadata: dict[str, Any] | None = None) -> None:
        core = botocore.session.Session()
        if metadata is not None:
            core.register_component("data_loader", Loader(core.get_component("data_loader"), metadata))
        session = boto3.session.Session("unit", "test", region_name="us-east-1", botocore_session=core)
        self.client: DynamoDBClient = session.client("dynamodb")
        self.bodies: list[Any] = []
        self.sent: list[bytes] = []
        self.status, self.answer = 200, b'{"Responses": []}'
        # The stubs have no type for a handler that answers.
        self.client.meta.events.register("before-send.dynamodb", cast("Any", self._answer))

    def _answer(self, request: AWSPreparedRequest, **_: object) -> AWSResponse:
        assert isinstance(request.body, bytes)
        assert request.headers["Content-Length"] == str(len(request.body))
        self.sent.append(request.body)
        cbor = request.headers["Content-Type"] == b"application/cbor"
        if not cbor:
            self.bodies.append(json.loads(request.body))
        answer: Any = AWSResponse(request.url, 200, HTTPHeaders(), None)
        answer.status_code = self.status
        answer._content = b"\xa0" if cbor else self.answer
        return cast("AWSResponse", answer)


class Loader:
    """botocore's loader, with a changed service model of DynamoDB."""

    def __init__(self, loader: Any, metadata: dict[str, Any]) -> None:
        self._loader = loader
        self._metadata = metadata

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def load_service_model(self, service_name: str, type_name: str, api_version: str | None = None) -> Any:
        model = self._loader.load_service_model(service_name, type_name, api_version)
        if (service_name, type_name) != ("dynamodb", "service-2"):
            return model
        stated = {name: value for name, value in (model["metadata"] | self._metadata).items() if value is not None}
        return model | {"metadata": stated}


def statements(count: int) -> list[BatchStatementRequestTypeDef]:
    return [{"Statement": f"SELECT {number}", "Parameters": [{"S": "é"}]} for number in range(count)]


@pytest.fixture
def wire() -> Wire:
    made = Wire()
    DynamoDBStore("t", client=made.client)
    return made


@pytest.mark.parametrize("count", [1, 2, 25])
def test_prepared_statements_are_sent_all_and_in_order(wire: Wire, count: int) -> None:
    wire.client.batch_execute_statement(Statements=RawList(statements(count)))
    assert wire.bodies == [{"Statements": statements(count)}]


def test_what_is_not_raw_is_serialised_by_botocore(wire: Wire) -> None:
    """A handler's own statements may have bytes, which JSON cannot hold."""
    own: list[BatchStatementRequestTypeDef] = [{"Statement": "SELECT 1", "Parameters": [{"B": b"\x00"}]}]
    wire.client.batch_execute_statement(Statements=own)
    assert wire.bodies == [{"Statements": [{"Statement": "SELECT 1", "Parameters": [{"B": "AA=="}]}]}]


@pytest.mark.parametrize("first", ["smithy-rpc-v2-cbor", "json"])
@pytest.mark.parametrize("count", [1, 25])
def test_a_client_of_another_protocol_serialises_the_statements_itself(count: int, first: str) -> None:
    """JSON in place of the protocol's own form would be refused. Of several, the one that botocore chooses counts."""
    ours, plain = (Wire({"protocol": first, "protocols": ["smithy-rpc-v2-cbor"]}) for _ in "ab")
    accept_raw(ours.client)

    ours.client.batch_execute_statement(Statements=RawList(statements(count)))
    plain.client.batch_execute_statement(Statements=statements(count))

    assert ours.sent == plain.sent
    assert ours.bodies == []
    assert ours.sent[0].count(b"SELECT ") == count


def test_a_model_that_states_only_one_protocol_is_read() -> None:
    """As earlier models did."""
    wire = Wire({"protocols": None})
    accept_raw(wire.client)

    wire.client.batch_execute_statement(Statements=RawList(statements(3)))

    assert wire.sent == [json.dumps({"Statements": statements(3)}, separators=(",", ":"), ensure_ascii=False).encode()]


@pytest.mark.parametrize(("protocol", "handlers"), [("json", 15), ("query", 0)])
def test_an_older_botocore_names_the_protocol_in_its_models_metadata_alone(protocol: str, handlers: int) -> None:
    learnt: list[str] = []
    events = SimpleNamespace(register=lambda event, handler, unique_id: learnt.append(event))
    model = SimpleNamespace(metadata={"protocol": protocol})
    accept_raw(cast("Any", SimpleNamespace(meta=SimpleNamespace(events=events, service_model=model))))
    assert len(learnt) == handlers


def test_a_client_that_several_stores_share_learns_it_once(wire: Wire) -> None:
    accept_raw(wire.client)
    wire.client.batch_execute_statement(Statements=RawList(statements(3)))
    assert wire.bodies == [{"Statements": statements(3)}]


def test_a_stubber_is_shown_every_statement(wire: Wire) -> None:
    """A test with botocore's Stubber sees what the store sends."""
    with Stubber(wire.client) as stubber:
        stubber.add_response("batch_execute_statement", {"Responses": []}, {"Statements": statements(3)})
        wire.client.batch_execute_statement(Statements=RawList(statements(3)))
        stubber.assert_no_pending_responses()


ANSWER = b'{"Responses": [{"Item": {"raw": {"B": "AA=="}, "id": {"S": "a"}}, "Unknown": 1}, {}]}'


def test_answers_to_raw_statements_are_taken_as_they_came_and_to_others_as_botocore_reads_them(wire: Wire) -> None:
    """Also on the same thread, one after the other."""
    wire.answer = ANSWER
    raw = wire.client.batch_execute_statement(Statements=RawList(statements(2)))
    read = wire.client.batch_execute_statement(Statements=statements(2))
    again = wire.client.batch_execute_statement(Statements=RawList(statements(2)))

    assert [len(body["Statements"]) for body in wire.bodies] == [2, 2, 2]
    assert raw["Responses"] == again["Responses"] == json.loads(ANSWER)["Responses"]
    assert raw["ResponseMetadata"]["HTTPStatusCode"] == 200
    wire.answer = ANSWER.replace(b"AA==", b"A")
    asked = wire.client.batch_execute_statement(Statements=RawList(statements(2)))
    assert asked["Responses"] == json.loads(wire.answer)["Responses"], "botocore would refuse it"
    assert read["Responses"] == [{"Item": {"raw": {"B": b"\x00"}, "id": {"S": "a"}}}, {}]


@pytest.mark.parametrize("answer", [b"<html>", b"[]", b"{}", b'{"Responses": null}', b'{"Responses": {}}'])
def test_an_answer_that_is_none_is_left_to_botocore(wire: Wire, answer: bytes) -> None:
    """The store finds that it is not complete."""
    wire.answer = answer
    store = DynamoDBStore("t", client=wire.client)

    written = store.insert([Record(id=str(number), status="COMPLETED") for number in range(2)])

    assert all(isinstance(one, Unknown) for one in written)


def test_an_error_is_botocores_to_raise(wire: Wire) -> None:
    wire.status, wire.answer = 400, b'{"__type": "x#ValidationException", "message": "no", "Responses": []}'

    with pytest.raises(wire.client.exceptions.ClientError, match="ValidationException"):
        wire.client.batch_execute_statement(Statements=RawList(statements(2)))


def test_without_the_event_that_boto3_does_not_document_all_is_sent_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are serialised as usual: a boto3 without the event would cost time, but lose nothing."""
    monkeypatch.delitem(raw_requests._HANDLERS, "before-parameter-build")
    wire = Wire()
    accept_raw(wire.client)
    wire.client.batch_execute_statement(Statements=RawList(statements(3)))
    assert wire.bodies == [{"Statements": statements(3)}]


# Actions


ACTIONS: list[TransactWriteItemTypeDef] = [
    {"Put": {"TableName": "t", "Item": {"id": {"S": "é"}, "raw": {"B": b"\x00"}}}},
    {"Delete": {"TableName": "t", "Key": {"id": {"S": "b"}}}},
]
TEXT = '[{"Put":{"TableName":"t","Item":{"id":{"S":"é"},"raw":{"B":"AA=="}}}},{"Delete":"as it is"}]'


def transact(wire: Wire, actions: Sequence[TransactWriteItemTypeDef], **more: Any) -> None:
    wire.client.transact_write_items(TransactItems=actions, ClientRequestToken="token", **more)


def raw_actions() -> RawList:
    """Actions with a text that says which of the two is sent."""
    return RawList(ACTIONS, TEXT.encode())


def test_actions_are_sent_as_their_text(wire: Wire) -> None:
    """With the token, and with what else a user's own event handler has added."""
    transact(wire, raw_actions(), ReturnConsumedCapacity="TOTAL")
    assert wire.sent == [
        f'{{"TransactItems":{TEXT},"ClientRequestToken":"token","ReturnConsumedCapacity":"TOTAL"}}'.encode()
    ]


def test_actions_that_are_not_raw_are_serialised_by_botocore(wire: Wire) -> None:
    """And nothing of a raw request is left behind for them."""
    plain = Wire()
    transact(wire, raw_actions())
    for each in (wire, plain):
        transact(each, ACTIONS)
    assert wire.sent[1:] == plain.sent


def test_a_client_of_another_protocol_serialises_the_actions_itself() -> None:
    ours, plain = (Wire({"protocol": "smithy-rpc-v2-cbor", "protocols": ["smithy-rpc-v2-cbor"]}) for _ in "ab")
    accept_raw(ours.client)
    transact(ours, raw_actions())
    transact(plain, ACTIONS)
    assert ours.sent == plain.sent


def test_a_stubber_is_shown_every_action(wire: Wire) -> None:
    with Stubber(wire.client) as stubber:
        shown = {"TransactItems": ACTIONS, "ClientRequestToken": "token"}
        stubber.add_response("transact_write_items", {}, shown)
        transact(wire, raw_actions())
        stubber.assert_no_pending_responses()


def test_what_a_store_commits_is_what_botocore_would_send() -> None:
    """Its own text of the actions is what the serialiser makes of them."""
    ours, plain = Wire(), Wire()
    sent: list[Any] = []
    event = "provide-client-params.dynamodb.TransactWriteItems"
    ours.client.meta.events.register(event, lambda params, **_: sent.append(dict(params)))
    commits = []
    for id in "ab":
        tx = Transaction()
        tx.put(
            TableName="t",
            Item={"id": "é", "all": [{"n": Decimal("1.50")}, None, True, {b"\xfb\xff"}]},
        )
        tx.delete(TableName="t", Key={"id": b"\xfb\xff"})
        commits.append(
            Commit(Change(Record(id=id, status="COMPLETED", version="v"), None), tx.actions[id == "b" :][:1])
        )

    DynamoDBStore("records", client=ours.client).commit(commits)
    assert len(sent) == 1
    plain.client.transact_write_items(**sent[0] | {"TransactItems": list(sent[0]["TransactItems"])})

    assert ours.bodies == plain.bodies
    assert len(ours.bodies[0]["TransactItems"]) == 4


@pytest.mark.parametrize("fake", [object(), SimpleNamespace(meta=SimpleNamespace(events=None))])
def test_a_fake_client_is_left_alone(fake: Any) -> None:
    """A fake in a user's tests acts like a client only as far as the test asks it."""
    accept_raw(fake)
