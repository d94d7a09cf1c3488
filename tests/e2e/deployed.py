"""What the end-to-end tests use: the cloud, a stack that is deployed on it, and waiting with a limit."""

from __future__ import annotations

import base64
import json
import time
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from http.client import HTTPConnection
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import pytest
from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from botocore.config import Config
from botocore.credentials import Credentials
from localstack_client.session import Session

from harness.caller import Caller, api_url
from harness.cloud import ACCOUNT, REGION, ROOT
from harness.workload.stack_client import LEGS
from tests.e2e.permissions import allowed, needed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harness.deploy import Stack
    from tests.e2e.permissions import Permission
    from tests.e2e.recorder import Call

EVENTS = ROOT / "events"
POLL_SECONDS = 0.05

Seen = TypeVar("Seen")


def eventually(
    look: Callable[[], Seen], until: Callable[[Seen], object] = bool, *, what: str, seconds: float = 20.0
) -> Seen:
    """Poll until it is as it should be; return what was seen then, or fail with what was seen last."""
    deadline = time.monotonic() + seconds
    while not until(seen := look()):
        if time.monotonic() > deadline:
            pytest.fail(f"within {seconds:g} s it did not come to pass that {what}; last seen: {seen!r}")
        time.sleep(POLL_SECONDS)
    return seen


class Aws:
    """The clients of all end-to-end tests, by `localstack-client`, so that its settings say which cloud is meant."""

    def __init__(self, localstack_host: str | None) -> None:
        self._session = Session(
            aws_access_key_id=ACCOUNT,
            aws_secret_access_key="test",
            aws_session_token=None,
            region_name=REGION,
            localstack_host=localstack_host,
        )
        self._clients: dict[str, Any] = {}

    def client(self, service: str) -> Any:
        """The one client of this service; threads may share it."""
        if service not in self._clients:
            config = Config(retries={"mode": "standard", "total_max_attempts": 2}, max_pool_connections=32, proxies={})
            self._clients[service] = self._session.client(service, config=config)
        return self._clients[service]

    @property
    def endpoint_url(self) -> str:
        """Where the cloud is."""
        return str(self.client("sqs").meta.endpoint_url)

    @cached_property
    def functions_are_processes(self) -> bool:
        """Whether functions run as processes of this machine, as ministack has it; otherwise in containers, which
        cannot reach our loopback.
        """
        connection = HTTPConnection(urlsplit(self.endpoint_url).netloc, timeout=10)
        with closing(connection):
            connection.request("GET", "/_ministack/ready")
            return connection.getresponse().status == HTTPStatus.OK

    def close(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            client.close()


@dataclass(frozen=True)
class Answer:
    """What a direct invocation of the function came to."""

    payload: Any
    log: str

    @property
    def failed(self) -> list[str]:
        """The messages that it wants redelivered."""
        assert set(self.payload) == {"batchItemFailures"}, f"{self.payload}\n{self.log}"
        return [failure["itemIdentifier"] for failure in self.payload["batchItemFailures"]]


class Deployed:
    """A deployed stack, with what a producer, an operator and a bookkeeper do to it. `calls`: what its consumer asked
    of AWS; `api_calls`: what its API did.
    """

    _numbers = count(1)

    def __init__(self, aws: Aws, stack: Stack, calls: list[Call], api_calls: list[Call]) -> None:
        self.aws = aws
        self.stack = stack
        self.calls = calls
        self.api_calls = api_calls
        self._letters: dict[str, dict[str, Any]] = {}

    # What it asks of AWS, and what it may.

    def statements(self, function: str = "Consumer") -> list[dict[str, Any]]:
        """What the policies of a function's role say."""
        configuration = self.aws.client("lambda").get_function_configuration(
            FunctionName=self.stack.resources[function]
        )
        role = configuration["Role"].rpartition("/")[2]
        iam = self.aws.client("iam")
        assert iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"] == [], "all of it is written out"
        names = iam.list_role_policies(RoleName=role)["PolicyNames"]
        documents = [iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"] for name in names]
        return [statement for document in documents for statement in document["Statement"]]

    def asked(self, function: str = "Consumer") -> set[Permission]:
        """The permissions that a function's calls take."""
        account = self.stack.outputs["QueueArn"].split(":")[4]
        calls = {"Consumer": self.calls, "Api": self.api_calls}[function]
        return {permission for call in calls for permission in needed(call, account)}

    def denied(self) -> set[tuple[str, Permission]]:
        """What its functions have asked for that their policies do not allow. A local cloud lets it pass."""
        return {
            (function, permission)
            for function in ("Consumer", "Api")
            if (asked := self.asked(function))
            for statements in [self.statements(function)]
            for permission in asked
            if not allowed(permission, statements)
        }

    # The producer.

    def transfer(self, payer: str, payee: str, amount: int, *, kind: str = "transfer") -> dict[str, Any]:
        """A transfer with an id that no other has."""
        id = f"{kind}-{next(self._numbers)}"
        return {"transfer_id": id, "from_account": payer, "to_account": payee, "amount": amount, "currency": "USD"}

    def send(self, *bodies: Mapping[str, Any] | str, group: str | None = None) -> list[str]:
        """Send messages to the queue, in one request as far as SQS takes them; return their messageIds."""
        assert len(bodies) <= 10, "SQS takes ten"
        entries = [
            {"Id": str(place), "MessageBody": body if isinstance(body, str) else json.dumps(body)}
            | ({} if group is None else self._in(group))
            for place, body in enumerate(bodies)
        ]
        sent = self.aws.client("sqs").send_message_batch(QueueUrl=self.stack.outputs["QueueUrl"], Entries=entries)
        assert not sent.get("Failed"), sent["Failed"]
        return [one["MessageId"] for one in sorted(sent["Successful"], key=lambda one: int(one["Id"]))]

    def _in(self, group: str) -> dict[str, str]:
        return {"MessageGroupId": group, "MessageDeduplicationId": f"{group}-{next(self._numbers)}"}

    # Lambda's part, by hand.

    def invoke(self, event: Any) -> Answer:
        """Invoke the deployed function with this event."""
        answer = self.aws.client("lambda").invoke(
            FunctionName=self.stack.outputs["ConsumerName"], Payload=json.dumps(event), LogType="Tail"
        )
        payload = json.loads(answer["Payload"].read())
        log = base64.b64decode(answer.get("LogResult", "")).decode()
        return Answer(payload, log)

    def recorded(self, name: str) -> Any:
        """An event from events/, as if it came from this stack's queue."""
        event = json.loads((EVENTS / f"{name}.json").read_text())
        for record in event["Records"]:
            record["eventSourceARN"] = self.stack.outputs["QueueArn"]
        return event

    def delivered(self, transfer: Mapping[str, Any], receives: int = 1) -> dict[str, Any]:
        """A transfer as Lambda hands it over; its message has the same name."""
        (record,) = self.recorded("eventbridge")["Records"]
        attributes = {**record["attributes"], "ApproximateReceiveCount": str(receives)}
        return {**record, "messageId": transfer["transfer_id"], "body": json.dumps(transfer), "attributes": attributes}

    def log_lines(self, log: str = "ConsumerLogGroup") -> list[dict[str, Any]]:
        """What a function has said in JSON."""
        pages = self.aws.client("logs").get_paginator("filter_log_events")
        said = pages.paginate(logGroupName=self.stack.outputs[log]).search("events[].message")
        return [json.loads(each) for each in said if each.startswith("{")]

    def operators_statements(self) -> list[dict[str, Any]]:
        """What the operators' policy says."""
        iam, arn = self.aws.client("iam"), self.stack.outputs["OperatorPolicyArn"]
        version = iam.get_policy(PolicyArn=arn)["Policy"]["DefaultVersionId"]
        document = iam.get_policy_version(PolicyArn=arn, VersionId=version)["PolicyVersion"]["Document"]
        return list(document["Statement"])

    def pause(self) -> None:
        """Let the queue hold its messages back from the function."""
        self._map(enabled=False)

    def resume(self) -> None:
        """Let the queue deliver again."""
        self._map(enabled=True)

    def _map(self, *, enabled: bool) -> None:
        mapping = self.stack.resources["ConsumerMessages"]
        client = self.aws.client("lambda")
        client.update_event_source_mapping(UUID=mapping, Enabled=enabled)
        state = "Enabled" if enabled else "Disabled"
        eventually(
            lambda: client.get_event_source_mapping(UUID=mapping)["State"],
            lambda seen: seen == state,
            what=f"the mapping is {state}",
            seconds=60,
        )

    # The books.

    def open_account(self, account: str, balance: int, currency: str = "USD") -> str:
        """Open an account, or open it anew; return its name."""
        self.put("Accounts", {"account_id": account, "balance": balance, "currency": currency})
        return account

    def new_account(self, balance: int) -> str:
        """Open an account that no other test knows."""
        return self.open_account(f"account-{next(self._numbers)}", balance)

    def balance(self, account: str) -> int:
        """What an account holds."""
        found = self.get("Accounts", {"account_id": account})
        assert found is not None, f"there is no account {account}"
        return int(found["balance"])

    def entries(self, transfer: Mapping[str, Any]) -> dict[str, int]:
        """What was posted for a transfer: amounts by account."""
        found = [self.get("Entries", {"entry_id": f"{transfer['transfer_id']}{leg}"}) for leg in LEGS]
        return {entry["account_id"]: int(entry["amount"]) for entry in found if entry is not None}

    # The records.

    def record(self, key: str) -> dict[str, Any] | None:
        """The record of a key."""
        return self._item(self.stack.outputs["RecordsTable"], {"id": key})

    def status(self, key: str) -> str | None:
        """What the record of a key says of it."""
        found = self.record(key)
        return None if found is None else str(found["status"])

    def settled(self, key: str, status: str = "COMPLETED", *, seconds: float = 20.0) -> dict[str, Any]:
        """Wait until a message's record has this status, and return it."""
        found = eventually(
            lambda: self.record(key),
            lambda record: record is not None and record["status"] == status,
            what=f"the record of {key} is {status}",
            seconds=seconds,
        )
        assert found is not None, "awaited"
        return found

    def drained(self, *, seconds: float = 20.0) -> None:
        """Wait until the queue is empty: everything sent has been acknowledged."""
        names = [f"ApproximateNumberOfMessages{which}" for which in ("", "NotVisible", "Delayed")]
        eventually(
            lambda: self.aws.client("sqs").get_queue_attributes(
                QueueUrl=self.stack.outputs["QueueUrl"], AttributeNames=names
            )["Attributes"],
            lambda numbers: not any(int(number) for number in numbers.values()),
            what="the queue is empty",
            seconds=seconds,
        )

    # The dead letters.

    def dead_letter(self, message_id: str, *, seconds: float = 20.0) -> DeadLetter:
        """Wait for the dead letter of a message, and take it out of its queue."""
        found = eventually(
            lambda: self._dead_letters().get(message_id), what=f"{message_id} is dead-lettered", seconds=seconds
        )
        assert found is not None, "awaited"
        return DeadLetter(found)

    def dead_letters(self) -> list[str]:
        """The ids of the messages that have been dead-lettered so far."""
        return list(self._dead_letters())

    def _dead_letters(self) -> dict[str, dict[str, Any]]:
        url = self.stack.outputs["DeadLetterQueueUrl"]
        received = self.aws.client("sqs").receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"], MessageAttributeNames=["All"]
        )
        for message in received.get("Messages", []):
            letter = DeadLetter(message)
            self._letters[letter.stamp.get("original_id", message["MessageId"])] = message
            self.aws.client("sqs").delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return self._letters

    # Tables, in plain values.

    def get(self, table: str, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """The item under a key of the table with this logical id."""
        return self._item(self.stack.resources[table], key)

    def _item(self, table: str, key: Mapping[str, Any]) -> dict[str, Any] | None:
        found = self.aws.client("dynamodb").get_item(TableName=table, Key=_typed(key), ConsistentRead=True)
        item = found.get("Item")
        return None if item is None else {name: TypeDeserializer().deserialize(held) for name, held in item.items()}

    def put(self, table: str, item: Mapping[str, Any]) -> None:
        """Put an item into the table with this logical id."""
        self.aws.client("dynamodb").put_item(TableName=self.stack.resources[table], Item=_typed(item))


@dataclass(frozen=True)
class DeadLetter:
    """A message in the dead-letter queue."""

    message: dict[str, Any]

    @property
    def stamp(self) -> dict[str, Any]:
        """What the consumer says of it; empty where SQS has moved it."""
        attribute = self.message.get("MessageAttributes", {}).get("idempotent-receiver")
        return {} if attribute is None else dict(json.loads(attribute["StringValue"]))


def _typed(item: Mapping[str, Any]) -> dict[str, Any]:
    return {name: TypeSerializer().serialize(value) for name, value in item.items()}


def at(bank: Deployed) -> Caller:
    """Somebody who may call a stack's API."""
    url = api_url(bank.stack, bank.aws.endpoint_url)
    assert url is not None, "it has an API"
    return Caller(url=url, credentials=Credentials(ACCOUNT, "test"), region=REGION)
