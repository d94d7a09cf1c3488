"""What a worker asks of SQS through a real client: the same requests and answers as botocore's, for less CPU time."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import boto3
import pytest
from botocore import parsers, validate
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.config import Config
from botocore.exceptions import ClientError, ParamValidationError, ReadTimeoutError
from botocore.stub import Stubber

from idempotent_receiver.worker import __main__ as main
from idempotent_receiver.worker.polling import PolledQueue, error_name

if TYPE_CHECKING:
    from botocore.awsrequest import AWSPreparedRequest
    from mypy_boto3_sqs import SQSClient

URL = "https://sqs.us-east-1.amazonaws.com/123456789012/orders"
ARN = "arn:aws:sqs:us-east-1:123456789012:orders"
MESSAGE = {
    "MessageId": "m",
    "ReceiptHandle": "handle",
    "Body": '{"é": 1}',
    "MD5OfBody": "digest",
    "MD5OfMessageAttributes": "digest",
    "Attributes": {"ApproximateReceiveCount": "2", "SentTimestamp": "1"},
    "MessageAttributes": {
        "text": {"DataType": "String", "StringValue": "a"},
        "bytes": {"DataType": "Binary", "BinaryValue": "AP8="},
    },
}
FOUND = {"Attributes": {"QueueArn": ARN}}


class Wire:
    """SQS behind a real client without a network: `sent` has each request, and `answers` what it gets in turn, the last
    one again and again.
    """

    def __init__(self, *, endpoint_url: str | None = None, region: str = "us-east-1", **config: Any) -> None:
        session = boto3.session.Session("unit", "test", region_name=region)
        config = {"retries": {"mode": "standard", "total_max_attempts": 2}} | config
        self.client: SQSClient = session.client("sqs", endpoint_url=endpoint_url, config=Config(**config))
        self.requests: list[AWSPreparedRequest] = []
        self.sent: list[tuple[str, Any]] = []
        self.answers: list[Any] = [FOUND]
        self.client.meta.events.register("before-send.sqs", cast("Any", self._answer))

    def _answer(self, request: AWSPreparedRequest, **_: object) -> AWSResponse:
        assert isinstance(request.body, bytes)
        assert request.headers["Content-Length"] == str(len(request.body))
        self.requests.append(request)
        self.sent.append((cast("Any", request.headers["X-Amz-Target"]).decode(), json.loads(request.body)))
        given = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(given, Exception):
            raise given
        status, headers, content = given if isinstance(given, tuple) else (200, {}, given)
        answer: Any = AWSResponse(request.url, status, HTTPHeaders.from_dict(headers), None)
        answer._content = content if isinstance(content, bytes) else json.dumps(content).encode()
        return cast("AWSResponse", answer)

    def queue(self, *answers: Any) -> PolledQueue:
        """The queue that the client finds, after which these are the answers."""
        self.answers = [FOUND]
        queue = PolledQueue.at(self.client, URL)
        self.sent.clear()
        self.requests.clear()
        self.answers = list(answers)
        return queue


def receive(queue: PolledQueue) -> list[dict[str, Any]]:
    return queue.receive(7, wait_seconds=3, visibility_seconds=60)


def use(queue: PolledQueue) -> tuple[Any, Any, Any]:
    return receive(queue), queue.delete([*"abc"]), queue.change([("a", 0), ("b", 7)])


BATCH = {
    "Successful": [{"Id": "1"}, {"Id": "0"}],
    "Failed": [{"Id": "2", "Code": "InternalError", "SenderFault": False}],
}
ANSWERS = ({"Messages": [MESSAGE]}, BATCH, BATCH)


def plain(wire: Wire) -> PolledQueue:
    """A queue whose client has not been changed."""
    return PolledQueue(wire.client, URL, ARN)


@pytest.mark.parametrize("validated", [False, True])
def test_requests_and_answers_are_what_botocore_makes_of_them(validated: bool) -> None:
    ours, theirs = (Wire(parameter_validation=validated) for _ in "ab")
    queue, theirs.answers = ours.queue(*ANSWERS), list(ANSWERS)

    assert use(queue) == use(plain(theirs))
    assert ours.sent == theirs.sent
    assert [target for target, _ in ours.sent] == [
        "AmazonSQS.ReceiveMessage",
        "AmazonSQS.DeleteMessageBatch",
        "AmazonSQS.ChangeMessageVisibilityBatch",
    ]
    (record,) = receive(ours.queue(*ANSWERS))
    assert record["messageAttributes"]["bytes"] == {"dataType": "Binary", "binaryValue": "AP8="}


def test_botocore_neither_checks_ten_entries_nor_reads_ten_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would visit each value, to find that it is a string."""
    visited: list[str] = []
    for visitor, name in ((validate.ParamValidator, "_validate"), (parsers.ResponseParser, "_parse_shape")):
        one = getattr(visitor, name)

        def visit(self: Any, *given: Any, one: Any = one, **named: Any) -> Any:
            visited.extend(shape.name for shape in [*given, *named.values()] if hasattr(shape, "type_name"))
            return one(self, *given, **named)

        monkeypatch.setattr(visitor, name, visit)
    ten = {"Successful": [{"Id": str(place)} for place in range(10)], "Failed": []}
    queue = Wire().queue({"Messages": [MESSAGE] * 10}, ten, ten)
    visited.clear()

    assert len(receive(queue)) == 10
    assert queue.delete([*"abcdefghij"]) == queue.change([(handle, 1) for handle in "abcdefghij"]) == []

    assert (
        visited.count("DeleteMessageBatchRequestEntry")
        == visited.count("ChangeMessageVisibilityBatchRequestEntry")
        == 1
    )
    assert not {"Message", "DeleteMessageBatchResultEntry", "ChangeMessageVisibilityBatchResultEntry"} & {*visited}


def test_a_queue_without_messages_answers_with_none() -> None:
    """SQS then leaves the list out."""
    assert receive(Wire().queue({})) == []
    assert receive(Wire().queue({"Messages": []})) == []


def test_an_error_has_the_code_that_sqs_had_before_it_spoke_json() -> None:
    """Botocore takes it from a header: callers compare with it, and the log names it."""
    header = {
        "x-amzn-query-error": "AWS.SimpleQueueService.NonExistentQueue;Sender",
        "content-type": "application/json",
    }
    body = {"__type": "com.amazonaws.sqs#QueueDoesNotExist", "message": "no", "Messages": [MESSAGE]}
    wire = Wire()

    with pytest.raises(ClientError) as raised:
        receive(wire.queue((400, header, body)))

    assert error_name(raised.value) == "AWS.SimpleQueueService.NonExistentQueue"
    assert raised.value.response["Error"]["Message"] == "no"
    assert isinstance(raised.value, wire.client.exceptions.QueueDoesNotExist)
    with pytest.raises(ClientError, match="NonExistentQueue"):
        Wire().queue((400, header, body)).delete(["a"])


@pytest.mark.parametrize(
    "first", [(503, {}, b"<html>"), (400, {}, {"__type": "#RequestThrottled"}), ReadTimeoutError(endpoint_url=URL)]
)
def test_requests_are_sent_again_as_botocore_would(first: Any) -> None:
    wire = Wire()
    queue = wire.queue(first, {"Messages": [MESSAGE]})

    assert [record["messageId"] for record in receive(queue)] == ["m"]
    assert len(wire.sent) == 2
    assert wire.sent[0] == wire.sent[1]
    signatures = {cast("Any", request.headers["amz-sdk-request"]) for request in wire.requests}
    assert len(signatures) == 2


@pytest.mark.parametrize("answer", [b"<html>", b'{"Messages": {}}', b'{"Successful": null}'])
def test_an_answer_that_is_not_sqs_s_confirms_nothing(answer: bytes) -> None:
    assert Wire().queue(answer).delete(["a", "b"]) == ["a", "b"]


def test_event_handlers_and_stubs_see_the_whole_call() -> None:
    """A tracer reads parameters and answers, and may add a header; a test may stub the client."""
    wire, seen = Wire(), list[Any]()
    queue = wire.queue(*ANSWERS)
    events = cast("Any", wire.client.meta.events)
    events.register("provide-client-params.sqs.*", lambda params, **_: seen.append(json.loads(json.dumps(params))))
    events.register("before-send.sqs.*", lambda request, **_: seen.append(request.headers["traced"].decode()))
    events.register("request-created.sqs.*", lambda request, **_: request.headers.add_header("traced", "yes"))
    events.register("after-call.sqs.*", lambda parsed, **_: seen.append(len(parsed.get("Messages", []))))

    use(queue)

    entries = [{"Id": str(place), "ReceiptHandle": handle} for place, handle in enumerate("abc")]
    assert seen[0]["MessageAttributeNames"] == ["All"]
    assert seen[1:] == [
        *("yes", 1),
        *({"QueueUrl": URL, "Entries": entries}, "yes", 0),
        *(wire.sent[2][1], "yes", 0),
    ]
    with Stubber(wire.client) as stubber:
        stubber.add_response("delete_message_batch", cast("Any", BATCH), {"QueueUrl": URL, "Entries": entries})
        assert queue.delete([*"abc"]) == ["c"]


def test_an_endpoint_and_a_region_of_the_clients_own_are_used() -> None:
    wire = Wire(endpoint_url="https://queues.example.com:8443/base", region="eu-west-1")
    queue = wire.queue(*ANSWERS)

    use(queue)

    assert {request.url for request in wire.requests} == {"https://queues.example.com:8443/base"}
    assert all("/eu-west-1/sqs/" in str(request.headers["Authorization"]) for request in wire.requests)


def test_without_a_client_a_worker_makes_one_that_need_not_check_its_own_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It polls for longer than a store's client would wait."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setattr(PolledQueue, "at", lambda sqs, url: sqs)
    consumer: Any = SimpleNamespace(options=SimpleNamespace(sqs=None))

    client: Any = main.queue_of(consumer, URL)

    config = client.meta.config
    assert config.user_agent.startswith("idempotent-receiver Boto3/")
    assert config.read_timeout > 11
    assert config.retries == {"mode": "standard", "total_max_attempts": 5}
    client.meta.events.register("before-call.sqs", lambda **_: (AWSResponse("", 200, {}, None), {"sent": True}))
    try:
        client.change_message_visibility(QueueUrl=URL, ReceiptHandle="a", VisibilityTimeout="not a number")
    except ParamValidationError as checked:
        pytest.fail(f"it checks what it sends: {checked}")
