"""One run of a user's consumer: its sample events pass through a real queue on a local cloud, with faults.

The project is deployed unchanged. Then the handler is wrapped in a witness (witness.py), and the function and queue get
timeouts short enough for a lease to end during the run.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from idempotent_receiver.local import witness
from idempotent_receiver.local.cloud import Cloud
from idempotent_receiver.local.consumers import QueueConsumer
from idempotent_receiver.local.content import StackContent
from idempotent_receiver.local.deployment import DeployError, Stack
from idempotent_receiver.local.effects import ContentByTable, Reference
from idempotent_receiver.local.project import HANDLER
from idempotent_receiver.local.samples import Sample
from idempotent_receiver.local.sqlite import rows_of, tables_in
from idempotent_receiver.local.verdict import Evidence, WitnessLine

LONGEST_FUNCTION_SECONDS = 10
LEASE_MARGIN_SECONDS = 4
"""How much longer than the function's timeout messages stay invisible: a killed worker's lease has ended by then."""
QUEUE_POLL_SECONDS = 0.1
QUIET_POLLS = 6
MOST_DEAD_LETTER_RECEIVES = 50
Say = Callable[[int, int], None]
"""Called with the number of messages that have left the queue, and the total."""


@dataclass
class Trial:
    """One consumer wrapped in a witness. The witness writes its notes to `folder`, and injects `faults`."""

    cloud: Cloud
    stack: Stack
    consumers: Sequence[QueueConsumer]
    consumer: QueueConsumer
    folder: Path
    faults: str
    inside: bool = False
    """Whether the handler uses this library's consumer; known after `prepare`."""
    named: Sequence[str] = ()
    """If not, the consumers that its module has."""
    sent: dict[str, str] = field(default_factory=dict)
    _samples: dict[str, Sample] = field(default_factory=dict)
    _copied: set[str] = field(default_factory=set)
    _offered: int = 0
    _observed: dict[str, Path] = field(default_factory=dict)
    """For other functions' queues, the folder with the notes on what arrived."""

    def prepare(self) -> int:
        """Wrap the handler in a `Witness`; return the function's timeout. Raises DeployError if the handler does not
        start.
        """
        told, timeout = self._wrap(self.consumer, self.folder, faults=self.faults)
        if "errorMessage" in told:
            raise DeployError(f"{told['handler']} does not start: {told['errorMessage']}")
        self.cloud.client("sqs").set_queue_attributes(
            QueueUrl=self.consumer.queue_url, Attributes={"VisibilityTimeout": str(timeout + LEASE_MARGIN_SECONDS)}
        )
        self.inside, self.named = told["consumer"], told["named"]
        self._content.subscribe()
        for each in self.others:
            folder = self.folder / each.function
            folder.mkdir(exist_ok=True)
            if "errorMessage" not in self._wrap(each, folder, faults=witness.NONE)[0]:
                self._observed[each.queue_url] = folder
        return timeout

    @property
    def others(self) -> list[QueueConsumer]:
        """The consumers of other queues, to which the function may send."""
        return [
            each
            for each in self.consumers
            if each.queue_url != self.consumer.queue_url and each.function != self.consumer.function
        ]

    def _wrap(self, consumer: QueueConsumer, folder: Path, *, faults: str) -> tuple[dict[str, Any], int]:
        """Wrap a function in a witness. Returns what it answers to a ping, and its timeout; another function that does
        not start with a witness stays as it is.
        """
        functions, name, other = self.cloud.client("lambda"), consumer.function, consumer is not self.consumer
        was = functions.get_function_configuration(FunctionName=name)
        variables = was.get("Environment", {}).get("Variables", {})
        # The local cloud returns template parameters as strings.
        timeout = int(was["Timeout"]) if other else min(int(was["Timeout"]), LONGEST_FUNCTION_SECONDS)
        settings = {
            "handler": was["Handler"],
            "folder": str(folder),
            "queue_url": consumer.queue_url,
            "partial": consumer.partial,
            "faults": faults,
            "observed": other,
        }

        def configure(handler: str, variables: Mapping[str, str]) -> None:
            functions.update_function_configuration(
                FunctionName=name, Handler=handler, Timeout=timeout, Environment={"Variables": variables}
            )
            functions.get_waiter("function_updated_v2").wait(FunctionName=name, WaiterConfig={"Delay": 1})

        configure(f"{HANDLER}.lambda_handler", {**variables, witness.VARIABLE: json.dumps(settings)})
        answer = functions.invoke(FunctionName=name, Payload=json.dumps(witness.PING))
        told = json.loads(answer["Payload"].read())
        if "FunctionError" not in answer:
            return told, timeout
        if other:
            configure(was["Handler"], variables)
        return {"handler": was["Handler"], "errorMessage": str(told.get("errorMessage", told))}, timeout

    # Sending and waiting.

    def send(self, samples: Sequence[Sample]) -> None:
        """Send the samples, each as a new message."""
        for sample in samples:
            sent = self.cloud.client("sqs").send_message(
                QueueUrl=self.consumer.queue_url, **sample.sendable(fifo=self.fifo)
            )
            self.sent[sent["MessageId"]] = sample.name
            self._samples[sent["MessageId"]] = sample

    def send_at_once(self, samples: Sequence[Sample]) -> None:
        """Send the samples while the queue is not being polled, so that they arrive in one batch if they fit."""
        mappings = self.cloud.client("lambda")
        mappings.update_event_source_mapping(UUID=self.consumer.mapping, Enabled=False)
        self.send(samples)
        mappings.update_event_source_mapping(UUID=self.consumer.mapping, Enabled=True)

    def wait(self, seconds: float, say: Say = lambda done, of: None) -> bool:
        """Wait up to `seconds` until the queue is empty. Returns whether it is.

        If workers are killed, messages whose key is not the messageId are sent once more meanwhile. Otherwise, failed
        messages are redelivered at once, because there is no lease to wait for.
        """
        ends, quiet = time.monotonic() + seconds, 0
        while quiet < QUIET_POLLS and time.monotonic() < ends:
            time.sleep(QUEUE_POLL_SECONDS)
            if self.faults == witness.KILLS:
                self._copy()
            else:
                self._offer_again()
            left = self.left()
            say(len(self.sent) - left, len(self.sent))
            quiet = quiet + 1 if left == 0 else 0
        return quiet == QUIET_POLLS

    def wait_for(self, name: str, seconds: float) -> bool:
        """Wait up to `seconds` until an attempt for a message called `name` has ended. Returns whether one has.

        In a FIFO queue, the message may have to wait for a failing message in its group, which is redelivered at once.
        """
        ids, ends = {id for id, each in self.sent.items() if each == name}, time.monotonic() + seconds
        while time.monotonic() < ends:
            if any(
                ids & {*line["ids"], *line.get("failed", ())}
                for line in self.lines()
                if line["what"] in ("answered", "raised")
            ):
                return self._others_have_ended(ends)
            if self.fifo:
                self._offer_again()
            time.sleep(QUEUE_POLL_SECONDS)
        return False

    def _others_have_ended(self, ends: float) -> bool:
        """Wait until `ends`, or until other functions have handled what was sent to their queues. Returns True."""
        while any(map(self._left_in, {each.queue_url for each in self.others})) and time.monotonic() < ends:
            time.sleep(QUEUE_POLL_SECONDS)
        return True

    def _copy(self) -> None:
        """Send each message again, as its producer might, if its key comes from the body rather than the messageId."""
        keyed = {line["id"]: line["key"] for line in self.lines() if line["what"] == "keyed"}
        for id, key in keyed.items():
            if id in self.sent and key not in self._copied:
                self._copied.add(key)
                self.send([self._samples[id]])

    def _offer_again(self) -> None:
        lines, handles = self.lines(), dict[str, str]()
        for place, line in enumerate(lines):
            if line["what"] == "delivered":
                handles.update(line["handles"])
            failed = line["ids"] if line["what"] == "raised" else line.get("failed", ())
            # Without partial batch responses, Lambda deletes failed messages, and redelivery must not prevent that.
            if place >= self._offered and (line["what"] == "raised" or self.consumer.partial):
                for id in failed:
                    with contextlib.suppress(self.cloud.client("sqs").exceptions.ClientError):
                        self.cloud.client("sqs").change_message_visibility(
                            QueueUrl=self.consumer.queue_url, ReceiptHandle=handles[id], VisibilityTimeout=0
                        )
        self._offered = len(lines)

    # Evidence.

    @property
    def fifo(self) -> bool:
        """Whether the queue is a FIFO queue."""
        return self.consumer.queue_url.endswith(".fifo")

    def failed(self, name: str) -> bool:
        """Whether an attempt for a message with this name has failed."""
        ids = {id for id, each in self.sent.items() if each == name}
        return any(
            ids & {*line["ids"]} if line["what"] == "raised" else ids & {*line.get("failed", ())}
            for line in self.lines()
        )

    def lines(self) -> list[WitnessLine]:
        """The witness's notes."""
        return notes_in(self.folder)

    def left(self) -> int:
        """The number of messages in the queue, and in other functions' queues, to which the function may send."""
        return sum(map(self._left_in, {each.queue_url for each in self.consumers}))

    def _left_in(self, queue_url: str) -> int:
        counts = ("", "NotVisible", "Delayed")
        found = self._attributes(queue_url)
        return sum(int(found.get(f"ApproximateNumberOfMessages{each}", 0)) for each in counts)

    def tables(self) -> ContentByTable:
        """The stack's content, except the consumer's records."""
        apart = {line["table"] for line in self.lines() if line["what"] == "consumer"}
        found = self._content.read(apart=apart, keys=self._idempotency_keys(), delivered=[*self._delivered()])
        return {**found, **self._relational()}

    def _relational(self) -> ContentByTable:
        """The tables of the consumers' SQLite databases, except records."""
        notes = [line for folder in (self.folder, *self._observed.values()) for line in notes_in(folder)]
        databases: dict[str, set[str]] = {}
        for each in (line["database"] for line in notes if line["what"] == "consumer" and line.get("database")):
            databases.setdefault(each["file"], set()).add(each["table"])
        return {name: each for file, apart in databases.items() for name, each in tables_in(file, apart=apart).items()}

    @cached_property
    def _content(self) -> StackContent:
        consumed = frozenset(each.queue_url for each in self.others)
        return StackContent(self.cloud, self.stack, self.consumer.queue_url, consumed)

    def _idempotency_keys(self) -> dict[str, str]:
        """A name for each message's idempotency key that is the same in every run."""
        lines = self.lines()
        ids = {line["key"]: line["id"] for line in lines if line["what"] == "keyed"}
        keys = {line["idempotency_key"]: line["key"] for line in lines if line.get("idempotency_key")}
        return {found: f"key of {self.sent.get(ids.get(key, key), key)}" for found, key in keys.items()}

    def _delivered(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The messages that other functions received, each with its queue's URL."""
        for url, folder in self._observed.items():
            lines = notes_in(folder)
            keys = {line["id"]: line["key"] for line in lines if line["what"] == "keyed"}
            for each in (message for line in lines if line["what"] == "delivered" for message in line["messages"]):
                attributes = {
                    name: {"StringValue": value.get("stringValue") or value.get("binaryValue")}
                    for name, value in (each.get("messageAttributes") or {}).items()
                }
                id = each["messageId"]
                yield url, {"MessageId": id, "Body": each["body"], "MessageAttributes": attributes, "key": keys.get(id)}

    def _attributes(self, queue_url: str) -> dict[str, str]:
        sqs = self.cloud.client("sqs")
        found: dict[str, str] = sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["All"])["Attributes"]
        return found

    @cached_property
    def redrive_policy(self) -> Mapping[str, Any]:
        """The queue's redrive policy; empty if it has none."""
        found: dict[str, Any] = json.loads(self._attributes(self.consumer.queue_url).get("RedrivePolicy", "{}"))
        return found

    def evidence(self, reference: Reference | None = None) -> Evidence:
        """The evidence that this run leaves for a verdict."""
        lines = self.lines()
        return Evidence(
            sent=self.sent,
            lines=lines,
            records={item["id"]: item for item in self._records(lines)},
            dead=frozenset(self._dead()),
            left=self.left(),
            partial=self.consumer.partial,
            tables=self.tables(),
            reference=reference,
        )

    def _records(self, lines: Sequence[WitnessLine]) -> Iterator[Mapping[str, Any]]:
        tables = {line["table"] for line in lines if line["what"] == "consumer"} - {None}
        ids = {line["record"] for line in lines if line["what"] in ("started", "spoiled")} - {None}
        for table in tables:
            for id in ids:
                found = self.cloud.client("dynamodb").get_item(
                    TableName=table, Key={"id": {"S": id}}, ConsistentRead=True
                )
                if "Item" in found:
                    yield _plain(found["Item"])
        for each in {line["database"]["file"]: line["database"] for line in lines if line.get("database")}.values():
            yield from rows_of(each["file"], each["table"])

    def _dead(self) -> Iterator[str]:
        """The messageIds under which the dead letters were originally sent."""
        if not self.redrive_policy:
            return
        sqs = self.cloud.client("sqs")
        url = sqs.get_queue_url(QueueName=self.redrive_policy["deadLetterTargetArn"].rpartition(":")[2])["QueueUrl"]
        for _ in range(MOST_DEAD_LETTER_RECEIVES):
            asked = {"QueueUrl": url, "MaxNumberOfMessages": 10, "MessageAttributeNames": ["All"]}
            messages = sqs.receive_message(**asked).get("Messages", [])
            for each in messages:
                stamp = each.get("MessageAttributes", {}).get("idempotent-receiver", {}).get("StringValue", "{}")
                yield json.loads(stamp).get("original_id", each["MessageId"])
            if not messages:
                return


def notes_in(folder: Path) -> list[WitnessLine]:
    """A witness's notes."""
    path = folder / "log.jsonl"
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def _plain(item: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {name: next(iter(value.values())) for name, value in item.items()}
