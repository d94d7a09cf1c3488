"""`receiver local` sends what the sample events hold, to the function that is meant."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from io import BytesIO
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from idempotent_receiver.local import consumers, witness
from idempotent_receiver.local.cloud import NotInstalled, interpreter
from idempotent_receiver.local.consumers import MAX_RECEIVES, QueueConsumer, chosen_function, consumers_of
from idempotent_receiver.local.samples import Sample, TrialError, samples_in
from idempotent_receiver.local.trial import LEASE_MARGIN_SECONDS, QUIET_POLLS, Trial

if TYPE_CHECKING:
    from pathlib import Path


def test_the_messages_of_all_sqs_events_are_samples(tmp_path: Path) -> None:
    bodies = [{"messageId": "1", "body": "a"}, {"messageId": "2", "body": "b"}]
    for name, event in {
        "batch": {"Records": bodies},
        "one": {"Records": bodies[:1]},
        "http": {"httpMethod": "GET"},
        "number": {"Records": 5},
        "some": {"Records": [{"messageId": "1"}, *bodies[1:]]},
    }.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(event))
    (tmp_path / "folder.json").mkdir()
    assert [(each.name, each.record["body"]) for each in samples_in(tmp_path)] == [
        ("batch.json 1", "a"),
        ("batch.json 2", "b"),
        ("one.json", "a"),
        ("some.json", "b"),
    ]


def test_samples_that_cannot_be_read_are_told_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(TrialError, match="there is no SQS event in"):
        samples_in(tmp_path / "events")
    (tmp_path / "half.json").write_text("{")
    with pytest.raises(TrialError, match=r"half\.json is not JSON"):
        samples_in(tmp_path)


def test_a_sample_is_sent_with_its_attributes_and_group() -> None:
    attributes = {
        "a": {"stringValue": "x", "dataType": "String"},
        "b": {"binaryValue": "eQ==", "dataType": "Binary"},
        "n": {"stringValue": "5", "dataType": "Number"},
    }
    record = {"body": "{}", "messageAttributes": attributes, "attributes": {"MessageGroupId": "g"}}
    sent = Sample("one", record).sendable(fifo=True)
    assert sent["MessageAttributes"] == {
        "a": {"DataType": "String", "StringValue": "x"},
        "b": {"DataType": "Binary", "BinaryValue": b"y"},
        "n": {"DataType": "Number", "StringValue": "5"},
    }
    assert sent["MessageGroupId"] == "g"
    assert sent["MessageDeduplicationId"] != Sample("one", record).sendable(fifo=True)["MessageDeduplicationId"]
    assert "MessageGroupId" not in Sample("one", record).sendable(fifo=False)
    assert Sample("one", {"body": "{}"}).sendable(fifo=False) == {"MessageBody": "{}", "MessageAttributes": {}}


def test_which_consumer_is_meant_is_asked_where_there_are_several() -> None:
    several = ["Orders", "Returns"]
    assert chosen_function(several, "Returns") == "Returns"
    assert chosen_function(several[:1], None) == "Orders"
    for name in (None, "Refunds"):
        with pytest.raises(TrialError, match="use --function with one of: Orders, Returns"):
            chosen_function(several, name)


@pytest.mark.parametrize(
    ("said", "partial"),
    [
        ({}, False),
        ({"FunctionResponseTypes": []}, False),
        ({"FunctionResponseTypes": ["ReportBatchItemFailures"]}, True),
    ],
)
def test_only_a_mapping_that_says_so_reads_partial_responses(said: dict[str, Any], partial: bool) -> None:
    arn = "arn:aws:lambda:r:1:function:orders"
    mapping = {"UUID": "1", "EventSourceArn": "arn:aws:sqs:r:1:queue", "FunctionArn": arn, **said}
    alias = {**mapping, "UUID": "2", "FunctionArn": f"{arn}:live"}
    pages = [
        {"EventSourceMappings": [mapping, {**mapping, "EventSourceArn": "arn:aws:kinesis:r:1:stream/s"}]},
        {"EventSourceMappings": [alias]},
    ]
    client = SimpleNamespace(
        get_paginator=lambda operation: SimpleNamespace(paginate=lambda: pages),
        exceptions=SimpleNamespace(QueueDoesNotExist=ClientError),
        get_queue_url=lambda **asked: {"QueueUrl": "url"},
    )
    cloud: Any = SimpleNamespace(client=lambda service: client)
    stack: Any = SimpleNamespace(resources={"Orders": "orders"})
    wanted = QueueConsumer(name="Orders", function="orders", queue_url="url", mapping="1", partial=partial)
    assert consumers_of(cloud, stack) == [wanted, replace(wanted, mapping="2")]


@pytest.mark.parametrize(("name", "fifo"), [("o" * 80, {}), ("o" * 75 + ".fifo", {"FifoQueue": "true"})])
def test_a_queue_that_the_template_assumes_is_made_with_its_dead_letter_queue(name: str, fifo: dict[str, str]) -> None:
    """Of its own kind, under a name that SQS takes."""
    made: list[tuple[str, dict[str, str]]] = []

    def missing(**asked: object) -> Any:
        raise ClientError({"Error": {"Code": "QueueDoesNotExist"}}, "GetQueueUrl")

    def create_queue(*, QueueName: str, Attributes: dict[str, str]) -> Any:  # noqa: N803
        made.append((QueueName, Attributes))
        return {"QueueUrl": QueueName}

    client = SimpleNamespace(
        exceptions=SimpleNamespace(QueueDoesNotExist=ClientError),
        get_queue_url=missing,
        create_queue=create_queue,
        get_queue_attributes=lambda **asked: {"Attributes": {"QueueArn": f"arn:{asked['QueueUrl']}"}},
    )
    cloud: Any = SimpleNamespace(client=lambda service: client)

    assert consumers._queue_url(cloud, name) == name

    (dead, dead_attributes), (queue, attributes) = made
    assert (len(dead) <= 80, dead.endswith(".fifo"), dead_attributes) == (True, bool(fifo), fifo)
    policy = json.loads(attributes.get("RedrivePolicy", "{}"))
    assert (queue, policy) == (name, {"deadLetterTargetArn": f"arn:{dead}", "maxReceiveCount": MAX_RECEIVES})
    assert {**fifo, **attributes} == attributes


class Clients:
    """A cloud whose queue holds what it is told to hold, and which notes what is asked."""

    def __init__(self, *attributes: dict[str, str], timeout: int | str = 3) -> None:
        self.attributes = list(attributes)
        self.timeout = timeout
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.received: list[dict[str, Any]] = []
        self.exceptions = SimpleNamespace(ClientError=ClientError)

    def client(self, service: str) -> Any:
        return self

    def get_queue_attributes(self, **asked: object) -> Any:
        return {"Attributes": self.attributes.pop(0) if len(self.attributes) > 1 else self.attributes[0]}

    def get_queue_url(self, *, QueueName: str) -> Any:  # noqa: N803
        return {"QueueUrl": QueueName}

    def receive_message(self, **asked: object) -> Any:
        found, self.received = self.received, []
        return {"Messages": found} if found else {}

    def get_function_configuration(self, **asked: object) -> Any:
        return {
            "Timeout": self.timeout,
            "Handler": "app.handler",
            "Environment": {"Variables": {"TABLE": "orders"}},
        }

    def describe_stack_resources(self, **asked: object) -> Any:
        names = ("LogicalResourceId", "PhysicalResourceId")
        tables = [("Records", "records-1"), ("Orders", "orders-1")]
        kind = {"ResourceType": "AWS::DynamoDB::Table"}
        return {"StackResources": [{**kind, **dict(zip(names, each, strict=True))} for each in tables]}

    def describe_table(self, **asked: object) -> Any:
        return {"Table": {"KeySchema": [{"AttributeName": "id"}]}}

    def get_waiter(self, name: str) -> Any:
        return SimpleNamespace(wait=lambda **asked: None)

    def invoke(self, **asked: object) -> Any:
        return {"Payload": BytesIO(b'{"consumer": false, "named": ["orders"]}')}

    def get_paginator(self, operation: str) -> Any:
        def paginate(*, TableName: str, **asked: object) -> Any:  # noqa: N803
            return [{"Items": [{"id": {"S": TableName}}]}, {"Items": [{"id": {"S": "more"}}]}]

        return SimpleNamespace(paginate=paginate)

    def __getattr__(self, request: str) -> Any:
        def note(**asked: Any) -> Any:
            self.asked.append((request, asked))
            return {"MessageId": f"sent-{len(self.asked)}"}

        return note

    def all(self, request: str, argument: str) -> list[Any]:
        """What was asked for, request by request."""
        return [asked.get(argument) for one, asked in self.asked if one == request]


REFUNDS = QueueConsumer(name="Refunds", function="refunds", queue_url="refunds", mapping="2", partial=True)
"""Another function, to whose queue the one under trial may send."""
EMPTY = {"ApproximateNumberOfMessages": "0"}
DEAD = {"RedrivePolicy": json.dumps({"deadLetterTargetArn": "arn:aws:sqs:r:1:dead", "maxReceiveCount": 5})}


def trial_of(clients: Clients, folder: Path, *noted: dict[str, Any], faults: str = witness.NONE) -> Trial:
    """A trial of which the witness has noted this."""
    orders = QueueConsumer(name="Orders", function="orders", queue_url="orders", mapping="1", partial=True)
    (folder / "log.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in noted))
    stack = SimpleNamespace(name="trial")
    return Trial(clients, stack, [orders], orders, folder, faults, sent={"m": "a", "n": "b"})  # type: ignore[arg-type]


@pytest.mark.parametrize("hidden", ["", "NotVisible", "Delayed"])
def test_a_queue_is_empty_once_nothing_has_been_in_it_for_several_looks_in_a_row(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, hidden: str
) -> None:
    """A message that comes again is hidden meanwhile, and SQS's counts are approximate."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    looks = [0] * (QUIET_POLLS - 1) + [1] + [0] * QUIET_POLLS
    clients = Clients(*({f"ApproximateNumberOfMessages{hidden}": str(left)} for left in looks), EMPTY)
    seen: list[int] = []

    assert trial_of(clients, tmp_path).wait(60, lambda done, of: seen.append(of - done))

    assert seen == looks


@pytest.mark.parametrize(
    ("noted", "failed"),
    [
        ({"what": "raised", "ids": ["m"]}, True),
        ({"what": "answered", "ids": [], "failed": ["m"]}, True),
        ({"what": "answered", "ids": ["m"], "failed": []}, False),
    ],
)
def test_an_attempt_ends_with_an_answer_or_an_exception(tmp_path: Path, noted: dict[str, Any], failed: bool) -> None:
    trial = trial_of(Clients(EMPTY), tmp_path, noted)

    assert [trial.wait_for(name, 0.1) for name in "ab"] == [True, False]
    assert [trial.failed(name) for name in "ab"] == [failed, False]


def test_each_failure_is_offered_again_once_by_its_latest_receipt(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Offered for an earlier failure, a message would be taken from whoever has it now."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    noted: list[dict[str, Any]] = [
        {"what": "delivered", "handles": {"m": "m1", "n": "n1"}},
        {"what": "answered", "ids": [], "failed": ["m"]},
        {"what": "delivered", "handles": {"m": "m2"}},
        {"what": "raised", "ids": ["m"]},
    ]
    clients = Clients(EMPTY)
    trial = trial_of(clients, tmp_path, *noted[:2])
    for known in (2, 2, 4):
        (tmp_path / "log.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in noted[:known]))
        trial.wait(60)

    assert clients.all("change_message_visibility", "ReceiptHandle") == ["m1", "m2"]


def test_with_killed_workers_a_message_with_its_own_key_is_sent_once_more_and_no_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    clients = Clients(EMPTY)
    trial = trial_of(clients, tmp_path, {"what": "keyed", "id": "sent-1", "key": "k"}, faults=witness.KILLS)
    trial.send([Sample("c", {"body": "{}"})])

    trial.wait(60)

    assert clients.all("send_message", "MessageBody") == ["{}", "{}"]


def test_a_dead_letter_goes_by_the_id_under_which_it_was_sent(tmp_path: Path) -> None:
    """A consumer that sends its dead letters itself gives them new ones."""
    clients = Clients(DEAD)
    stamp = {"idempotent-receiver": {"StringValue": json.dumps({"key": "k", "original_id": "m"})}}
    receives = iter([[{"MessageId": "new", "MessageAttributes": stamp}, {"MessageId": "n"}], [{"MessageId": "o"}], []])
    clients.receive_message = lambda **asked: {"Messages": next(receives)}  # type: ignore[method-assign]

    assert [*trial_of(clients, tmp_path)._dead()] == ["m", "n", "o"]


def test_the_records_are_none_of_the_tables_that_are_compared(tmp_path: Path) -> None:
    trial = trial_of(Clients(EMPTY), tmp_path, {"what": "consumer", "table": "records-1"})

    assert trial.tables() == {"Orders": (("id",), [{"id": {"S": "orders-1"}}, {"id": {"S": "more"}}])}


@pytest.mark.parametrize(("timeout", "seconds"), [("900", 10), (3, 3)])
def test_a_lease_ends_within_the_trial_and_before_its_message_comes_again(
    tmp_path: Path, timeout: int | str, seconds: int
) -> None:
    clients = Clients(EMPTY, timeout=timeout)

    trial = trial_of(clients, tmp_path)
    assert trial.prepare() == seconds
    assert (trial.inside, trial.named) == (False, ["orders"])

    assert clients.all("update_function_configuration", "Timeout") == [seconds]
    hidden = {"VisibilityTimeout": str(seconds + LEASE_MARGIN_SECONDS)}
    assert clients.all("set_queue_attributes", "Attributes") == [hidden]


def test_without_the_extra_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ministack", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NotInstalled, match=r"pip install 'idempotent-receiver\[cli,local\]'"):
        interpreter()


def test_what_other_functions_received_is_read_with_their_consumers_keys(tmp_path: Path) -> None:
    """A delivery without a key of its own has none; the function's own queue is not among them."""
    trial = trial_of(Clients(EMPTY), tmp_path)
    trial.consumers = [trial.consumer, REFUNDS]
    trial.prepare()
    both = {
        "a": {"stringValue": "x", "dataType": "String"},
        "b": {"binaryValue": "eQ==", "dataType": "Binary"},
    }
    delivered = [{"messageId": id, "body": "{}", "messageAttributes": both} for id in "rs"]
    lines = [{"what": "keyed", "id": "r", "key": "order-1"}, {"what": "delivered", "messages": delivered}]
    (tmp_path / "refunds" / "log.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    message = {"Body": "{}", "MessageAttributes": {"a": {"StringValue": "x"}, "b": {"StringValue": "eQ=="}}}
    assert [*trial._delivered()] == [
        ("refunds", {**message, "MessageId": "r", "key": "order-1"}),
        ("refunds", {**message, "MessageId": "s", "key": None}),
    ]


def test_another_function_that_does_not_start_with_a_witness_stays_as_it_is(tmp_path: Path) -> None:
    """Such as one in another language."""
    clients = Clients(EMPTY)
    trial = trial_of(clients, tmp_path)
    trial.consumers = [trial.consumer, REFUNDS]
    answers = iter([{}, {"FunctionError": "Unhandled"}])
    clients.invoke = lambda **asked: {  # type: ignore[method-assign]
        "Payload": BytesIO(b'{"consumer": true, "named": []}'),
        **next(answers),
    }
    trial.prepare()
    wrapped = "receiver_local_witness.lambda_handler"
    assert clients.all("update_function_configuration", "Handler") == [wrapped, wrapped, "app.handler"]
    assert [*trial._delivered()] == []


def test_an_idempotency_key_goes_by_the_name_of_its_message(tmp_path: Path) -> None:
    """In every run, though messageIds differ."""
    noted = [
        {"what": "keyed", "id": "n", "key": "order-1"},
        {"what": "started", "key": "m", "idempotency_key": "k1"},
        {"what": "started", "key": "order-1", "idempotency_key": "k2"},
        {"what": "started", "key": "x", "idempotency_key": None},
    ]
    assert trial_of(Clients(EMPTY), tmp_path, *noted)._idempotency_keys() == {"k1": "key of a", "k2": "key of b"}


def test_functions_are_wrapped_with_their_own_settings_and_keep_their_environment(tmp_path: Path) -> None:
    """Faults are for the one under trial alone, and another keeps its time."""
    clients = Clients(EMPTY, timeout=60)
    trial = trial_of(clients, tmp_path, faults=witness.KILLS)
    trial.consumer = replace(trial.consumer, partial=False)
    second_queue = replace(trial.consumer, queue_url="returns", mapping="3")
    trial.consumers = [trial.consumer, second_queue, REFUNDS]
    trial.prepare()
    assert clients.all("update_function_configuration", "FunctionName") == ["orders", "refunds"]
    assert clients.all("update_function_configuration", "Timeout") == [10, 60]
    variables = [each["Variables"] for each in clients.all("update_function_configuration", "Environment")]
    assert [each.get("TABLE") for each in variables] == ["orders", "orders"]
    own = {"folder": str(tmp_path), "queue_url": "orders", "partial": False, "faults": "kills", "observed": False}
    other = {"queue_url": "refunds", "partial": True, "faults": "none", "observed": True}
    assert [json.loads(each[witness.VARIABLE]) for each in variables] == [
        {"handler": "app.handler", **own},
        {"handler": "app.handler", "folder": str(tmp_path / "refunds"), **other},
    ]


def test_what_is_sent_at_once_is_sent_while_nobody_polls(tmp_path: Path) -> None:
    clients = Clients(EMPTY)
    trial_of(clients, tmp_path).send_at_once([Sample("c", {"body": "1"}), Sample("d", {"body": "2"})])
    told = [asked.get("Enabled", asked.get("MessageBody")) for _, asked in clients.asked]
    assert told == [False, "1", "2", True]


def test_a_queue_that_does_not_become_empty_in_time_is_told(tmp_path: Path) -> None:
    assert not trial_of(Clients({"ApproximateNumberOfMessages": "1"}), tmp_path).wait(0)


def test_what_other_functions_still_have_to_do_is_counted_and_awaited(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They are given what the function sent; its own queue may hold a message that fails again and again."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    looks = [{"ApproximateNumberOfMessages": str(left)} for left in (2, 3, 1, 1)]
    clients = Clients(*looks, EMPTY)
    trial = trial_of(clients, tmp_path, {"what": "answered", "ids": ["m"], "failed": []})
    trial.consumers = [trial.consumer, REFUNDS]
    assert trial.left() == 5
    assert trial.wait_for("a", 60)
    assert clients.attributes == [EMPTY]


@pytest.mark.parametrize("partial", [True, False])
def test_failures_are_offered_again_though_one_is_gone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, partial: bool
) -> None:
    """Without partial responses, Lambda has deleted what an answer names, and an offer would keep it."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    clients, offered = Clients(EMPTY), list[str]()

    def change_message_visibility(*, ReceiptHandle: str, **asked: object) -> None:  # noqa: N803
        offered.append(ReceiptHandle)
        if ReceiptHandle.startswith("m"):
            raise ClientError({"Error": {"Code": "MessageNotInflight"}}, "ChangeMessageVisibility")

    clients.change_message_visibility = change_message_visibility  # type: ignore[attr-defined]
    trial = trial_of(
        clients,
        tmp_path,
        {"what": "delivered", "handles": {"m": "m1", "n": "n1"}},
        {"what": "answered", "ids": [], "failed": ["m", "n"]},
        {"what": "delivered", "handles": {"m": "m2", "n": "n2"}},
        {"what": "raised", "ids": ["m", "n"]},
    )
    trial.consumer = replace(trial.consumer, partial=partial)
    trial.wait(60)
    # The receipts are the latest, which the notes give by then.
    assert [each[0] for each in offered] == (["m", "n"] * (2 if partial else 1))


def test_in_a_fifo_queue_a_message_does_not_wait_for_the_lease_of_a_failing_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    clients = Clients(EMPTY)
    noted = [{"what": "delivered", "handles": {"m": "m1"}}, {"what": "answered", "ids": [], "failed": ["m"]}]
    trial = trial_of(clients, tmp_path, *noted)
    trial.consumer = replace(trial.consumer, queue_url="orders.fifo")
    assert not trial.wait_for("b", 0.01)
    assert clients.all("change_message_visibility", "ReceiptHandle") == ["m1"]


def test_the_records_of_all_messages_are_read_as_they_are_now(tmp_path: Path) -> None:
    """Also of one that was made to fail in place of its handler."""
    clients = Clients(EMPTY)
    noted = [{"what": "consumer", "table": "records-1"}, {"what": "spoiled", "record": "orders#m"}]
    trial = trial_of(clients, tmp_path, *noted, {"what": "started", "record": "orders#n"})
    assert [*trial._records(trial.lines())] == []
    asked = zip(clients.all("get_item", "Key"), clients.all("get_item", "ConsistentRead"), strict=True)
    assert sorted((key["id"]["S"], consistent) for key, consistent in asked) == [("orders#m", True), ("orders#n", True)]
