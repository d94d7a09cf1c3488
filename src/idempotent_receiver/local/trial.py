"""A trial of somebody's consumer: its template on a local cloud, its sample events through the real queue, and faults.

The template is deployed as it stands. Then the handler is put behind a witness (witness.py), and function and queue get
times that are short enough to see a lease end.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from idempotent_receiver.local import witness
from idempotent_receiver.local.build import build
from idempotent_receiver.local.cloud import Cloud
from idempotent_receiver.local.deployment import DeployError, Stack, create, packaged, upload
from idempotent_receiver.local.samples import Sample, TrialError
from idempotent_receiver.local.verdict import Evidence, Line

STACK = "trial"
LONGEST_TIMEOUT_SECONDS = 10
LEASE_MARGIN_SECONDS = 4
"""How much longer than the function's time-out a killed worker's messages stay invisible: its lease is over then."""
POLL_SECONDS = 0.25
QUIET_POLLS = 4
HANDLER = "receiver_local_witness"
MOST_RECEIVES = 50


def deployed(cloud: Cloud, template: Path, folder: Path, parameters: Mapping[str, str]) -> Stack:
    """The template on the cloud, its code built below this folder. Raises DeployError or TrialError."""
    text = template.read_text()
    if "BuildMethod: makefile" in text:
        raise TrialError(
            f"{template} builds by a Makefile: run `sam build`, and try what it made: "
            "receiver local .aws-sam/build/template.yaml --events events"
        )
    overlay = {f"{HANDLER}.py": Path(witness.__file__).read_bytes()}

    def uri_of(path: Path) -> str:
        return upload(cloud, path) if path.is_file() else upload(cloud, build(path, folder, template.parent), overlay)

    return create(cloud, STACK, packaged(cloud, text, template.parent, uri_of), parameters)


@dataclass(frozen=True, kw_only=True)
class Consumer:
    """A function that consumes a queue."""

    name: str
    function: str
    queue_url: str
    partial: bool
    """Whether its mapping takes partial batch responses."""


def consumers_of(cloud: Cloud, stack: Stack) -> list[Consumer]:
    """The functions that consume a queue; everything on the cloud is the stack's."""
    names = {physical: logical for logical, physical in stack.resources.items()}
    pages = cloud.client("lambda").get_paginator("list_event_source_mappings").paginate()
    found = []
    for each in (mapping for page in pages for mapping in page["EventSourceMappings"]):
        _, _, service, *_, queue = each["EventSourceArn"].split(":")
        if service == "sqs":
            function = each["FunctionArn"].split(":")[6]
            found.append(
                Consumer(
                    name=names.get(function, function),
                    function=function,
                    queue_url=_queue_url(cloud, queue),
                    partial="ReportBatchItemFailures" in each.get("FunctionResponseTypes", []),
                )
            )
    return found


def _queue_url(cloud: Cloud, name: str) -> str:
    sqs = cloud.client("sqs")
    try:
        return str(sqs.get_queue_url(QueueName=name)["QueueUrl"])
    except sqs.exceptions.QueueDoesNotExist:
        raise TrialError(f"the queue {name} is not the template's own: let a --parameter of it make one") from None


def chosen(consumers: Sequence[Consumer], name: str | None) -> Consumer:
    """The consumer of this name, or the only one. Raises TrialError."""
    names = ", ".join(each.name for each in consumers)
    if not consumers:
        raise TrialError("no function of the template consumes a queue: give one an event of type SQS")
    matching = [each for each in consumers if name in (None, each.name)]
    if len(matching) != 1:
        raise TrialError(
            f"{'which function?' if name is None else f'{name} consumes no queue:'} use --function: {names}"
        )
    return matching[0]


@dataclass
class Trial:
    """One consumer behind its witness. `folder` is where that notes what happens."""

    cloud: Cloud
    consumer: Consumer
    folder: Path
    sent: dict[str, str] = field(default_factory=dict)
    _samples: dict[str, Sample] = field(default_factory=dict)
    _copied: set[str] = field(default_factory=set)

    def prepare(self) -> int:
        """Put the witness before the handler; return the function's time-out. Raises DeployError if that fails."""
        functions, name = self.cloud.client("lambda"), self.consumer.function
        was = functions.get_function_configuration(FunctionName=name)
        timeout = min(int(was["Timeout"]), LONGEST_TIMEOUT_SECONDS)  # a template's parameter stays a text there
        settings = {
            "handler": was["Handler"],
            "folder": str(self.folder),
            "queue_url": self.consumer.queue_url,
            "partial": self.consumer.partial,
        }
        variables = was.get("Environment", {}).get("Variables", {}) | {witness.VARIABLE: json.dumps(settings)}
        functions.update_function_configuration(
            FunctionName=name,
            Handler=f"{HANDLER}.lambda_handler",
            Timeout=timeout,
            Environment={"Variables": variables},
        )
        functions.get_waiter("function_updated_v2").wait(FunctionName=name, WaiterConfig={"Delay": 1})
        self.cloud.client("sqs").set_queue_attributes(
            QueueUrl=self.consumer.queue_url, Attributes={"VisibilityTimeout": str(timeout + LEASE_MARGIN_SECONDS)}
        )
        answer = functions.invoke(FunctionName=name, Payload=json.dumps(witness.PING))
        if "FunctionError" in answer:
            told = json.loads(answer["Payload"].read())
            raise DeployError(f"{was['Handler']} does not start: {told.get('errorMessage', told)}")
        return int(timeout)

    def send(self, samples: Sequence[Sample]) -> None:
        """Send the samples, each as a new message."""
        for sample in samples:
            sent = self.cloud.client("sqs").send_message(
                QueueUrl=self.consumer.queue_url, **sample.sendable(fifo=self.consumer.queue_url.endswith(".fifo"))
            )
            self.sent[sent["MessageId"]] = sample.name
            self._samples[sent["MessageId"]] = sample

    def wait(self, seconds: float, say: Callable[[int, int], None]) -> bool:
        """Wait until the queue is empty; whether it is. Meanwhile, what has a key of its own is sent once more."""
        ends, quiet = time.monotonic() + seconds, 0
        while quiet < QUIET_POLLS and time.monotonic() < ends:
            time.sleep(POLL_SECONDS)
            self._copy()
            left = self.left()
            say(len(self.sent) - left, len(self.sent))
            quiet = quiet + 1 if left == 0 else 0
        return quiet == QUIET_POLLS

    def _copy(self) -> None:
        """Send a message's body again, as its producer might, where not its messageId but the body says what it is."""
        keyed = {line["id"]: line["key"] for line in self.lines() if line["what"] == "keyed"}
        for id, key in keyed.items():
            if id in self.sent and key not in self._copied:
                self._copied.add(key)
                self.send([self._samples[id]])

    def lines(self) -> list[Line]:
        """What the witness has noted."""
        path = self.folder / "log.jsonl"
        return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []

    def left(self) -> int:
        """How many messages are in the queue."""
        counts = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
        found = self._attributes(self.consumer.queue_url)
        return sum(int(found.get(each, 0)) for each in (*counts, "ApproximateNumberOfMessagesDelayed"))

    def _attributes(self, queue_url: str) -> dict[str, str]:
        sqs = self.cloud.client("sqs")
        found: dict[str, str] = sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["All"])["Attributes"]
        return found

    def evidence(self) -> Evidence:
        """What there is to judge by."""
        lines = self.lines()
        return Evidence(
            sent=self.sent,
            lines=lines,
            records={item["id"]["S"]: _plain(item) for item in self._records(lines)},
            dead=frozenset(self._dead()),
            left=self.left(),
        )

    def _records(self, lines: Sequence[Line]) -> Iterator[Mapping[str, Any]]:
        tables = {line["table"] for line in lines if line["what"] == "consumer"} - {None}
        ids = {line["record"] for line in lines if line["what"] == "started"} - {None}
        for table in tables:
            for id in ids:
                found = self.cloud.client("dynamodb").get_item(
                    TableName=table, Key={"id": {"S": id}}, ConsistentRead=True
                )
                if "Item" in found:
                    yield found["Item"]

    def _dead(self) -> Iterator[str]:
        """The ids under which dead letters were sent."""
        policy = json.loads(self._attributes(self.consumer.queue_url).get("RedrivePolicy", "{}"))
        if not policy:
            return
        sqs = self.cloud.client("sqs")
        url = sqs.get_queue_url(QueueName=policy["deadLetterTargetArn"].rpartition(":")[2])["QueueUrl"]
        for _ in range(MOST_RECEIVES):
            asked = {"QueueUrl": url, "MaxNumberOfMessages": 10, "MessageAttributeNames": ["All"]}
            messages = sqs.receive_message(**asked).get("Messages", [])
            for each in messages:
                stamp = each.get("MessageAttributes", {}).get("idempotent-receiver", {}).get("StringValue", "{}")
                yield json.loads(stamp).get("original_id", each["MessageId"])
            if not messages:
                return


def _plain(item: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {name: next(iter(value.values())) for name, value in item.items()}
