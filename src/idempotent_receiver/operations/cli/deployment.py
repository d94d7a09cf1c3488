"""The deployed consumer that a command works on: its queue, dead-letter queue, table and description.

Options take precedence; the stack's outputs supply the rest. If a name is in neither, the command fails rather than
guess.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from idempotent_receiver.dynamodb.store import DynamoDBStore
from idempotent_receiver.handler.lending import LendingStore
from idempotent_receiver.operations.account import (
    NO_QUEUE,
    UsageError,
    client_of,
    is_gone,
    named,
    require_bucket,
    require_table,
    stack_outputs,
)
from idempotent_receiver.operations.cli.common_options import Options, not_both
from idempotent_receiver.operations.cli.describe import description_of
from idempotent_receiver.operations.cli.terminal import Terminal, flag, typed
from idempotent_receiver.operations.dead_letters.dead_letter import Reader
from idempotent_receiver.operations.dead_letters.history import History
from idempotent_receiver.operations.description import OUTPUT, Description, InCode, differences, stated
from idempotent_receiver.payload import EVERYTHING
from idempotent_receiver.protocol.record import DEFAULT_RETENTION_SECONDS, record_id
from idempotent_receiver.sqs.keys import envelope_opener, message_id

MOST_OTHER_QUEUES = 100
"""Anyone can write a queue's name into a message: no more of them are looked up."""

IN_DATABASE = "its records are in a relational database, where trace, stuck and dlq read them"

IN_CODE = "which a document cannot hold: give --consumer module:function to import the handler"


@dataclass(frozen=True, slots=True)
class Queue:
    """An existing queue, with the ARN of the dead-letter queue in its redrive policy."""

    url: str
    arn: str
    sends_to: str | None = None


@dataclass(frozen=True)
class Deployment:
    """A deployed consumer. Each property is looked up on first use.

    Every property raises UsageError if an option is missing or wrong.
    """

    options: Options
    _clients: dict[str, Any] = field(default_factory=dict)
    _gone: dict[str, bool] = field(default_factory=dict)

    @cached_property
    def typed(self) -> list[str]:
        """The options that make a `dlq` command select this consumer.

        A required option without a value gets its name in capitals as a placeholder.
        """
        needed = {"queue": "QueueUrl", "consumer": OUTPUT}
        missing = {name: name.upper() for name, output in needed.items() if output not in self.outputs}
        given = {name: value for name, value in asdict(self.options).items() if value is not None and name != "json"}
        return typed(**{**missing, **given})

    def client(self, service: str) -> Any:
        """The client of a service, created once."""
        if service not in self._clients:
            self._clients[service] = client_of(service, **self.options.account)
        return self._clients[service]

    @cached_property
    def outputs(self) -> Mapping[str, str]:
        """The stack's outputs; empty without a stack."""
        return {} if self.options.stack is None else stack_outputs(self.client, self.options.stack)

    @cached_property
    def queue(self) -> Queue:
        """The consumer's queue. Raises UsageError if the stack has a different queue: it describes another consumer."""
        found = self._queue(self._given("queue", "QueueUrl"), self._correction("queue"))
        own = self.outputs.get("QueueUrl")
        if own is not None and _name(own) != _name(found.arn):
            stack = self.options.stack
            raise UsageError(f"{found.arn} is not the queue of stack {stack}: {not_both('--stack', '--queue')}")
        return found

    @property
    def names_queue(self) -> bool:
        """Whether an option or the stack names the consumer's queue."""
        return self.options.queue is not None or "QueueUrl" in self.outputs

    @cached_property
    def has_dead_letters(self) -> bool:
        """Whether a redrive policy, an option or the stack names a dead-letter queue."""
        return any((self.options.dlq, self.outputs.get("DeadLetterQueueUrl"), self.queue.sends_to))

    @cached_property
    def dead_letter_queue(self) -> Queue:
        """The dead-letter queue, as given or from the queue's redrive policy.

        Raises UsageError if no redrive policy names the queue given, because its messages may be live; or if it has a
        redrive policy itself, because SQS would move away what is only read too often.
        """
        found = self._dead_letter_queue()
        if found.sends_to is not None:
            raise UsageError(
                f"{found.arn} has a redrive policy of its own: each look counts as a receive, and SQS moves what was "
                f"received too often to {found.sends_to}. Remove that policy first"
            )
        return found

    def _dead_letter_queue(self) -> Queue:
        own = self.queue.sends_to
        given = self.options.dlq or self.outputs.get("DeadLetterQueueUrl")
        if given is None:
            if own is None:
                raise UsageError(f"{self.queue.url} has no redrive policy: name the dead-letter queue with --dlq")
            return self._queue(
                own, f"the redrive policy of {self.queue.url} names it: correct the policy or give --dlq"
            )
        correction = self._correction("dlq")
        found = self._queue(given, correction)
        if found.arn == self.queue.arn:
            raise UsageError(f"{found.arn} is the consumer's queue itself: {correction}")
        if found.arn != own and not self._sources(found):
            theirs = "there is none" if own is None else f"it names {own}"
            raise UsageError(
                f"{found.arn} may hold live messages: SQS lists no queue that uses it as a dead-letter queue. "
                f"The redrive policy of {self.queue.arn} does not name it ({theirs}): {correction}"
            )
        return found

    def is_gone(self, arn: str) -> bool:
        """Whether SQS says that a queue beside this one does not exist."""
        if arn not in self._gone and len(self._gone) < MOST_OTHER_QUEUES:
            self._gone[arn] = is_gone(self.client, arn, beside=self.queue.arn)
        return self._gone.get(arn, False)

    def _sources(self, dead_letter_queue: Queue) -> list[str] | None:
        """The URLs of the queues whose redrive policy names `dead_letter_queue`; None if SQS refuses to list them."""
        pages = self.client("sqs").get_paginator("list_dead_letter_source_queues")
        try:
            return list(pages.paginate(QueueUrl=dead_letter_queue.url).search("queueUrls[]"))
        except (ClientError, BotoCoreError):
            return None

    @cached_property
    def table(self) -> str:
        """The name of the records table. Raises UsageError if the records are in a relational database."""
        if self.given is not None and self.given.store is not None:
            raise UsageError(f"--consumer {self.options.consumer}: {IN_DATABASE}")
        return self._given("table", "RecordsTable")

    @cached_property
    def stated(self) -> Description | None:
        """The consumer's description according to the stack."""
        return stated(self.outputs, self.options.stack)

    @cached_property
    def given(self) -> Description | None:
        """The consumer's description according to --consumer."""
        given = self.options.consumer
        return None if given is None else description_of(given)

    @cached_property
    def description(self) -> Description:
        """The consumer's description, from --consumer or else the stack; empty if neither has one.

        Raises UsageError if the two contradict each other: under another key, a completed message would run again.
        """
        given, stack = self.given, None
        if given is None:
            return self.stated or Description()
        with suppress(UsageError):  # --consumer replaces a description that cannot be read
            stack = self.stated
        for name, (ours, theirs) in ({} if stack is None else differences(given, stack)).items():
            raise UsageError(
                f"--consumer has {name} {ours}, and stack {self.options.stack} has {theirs}: leave out --consumer, or "
                "deploy the code that it names (see receiver doctor)"
            )
        return given

    @property
    def described(self) -> bool:
        """Whether the payload is known: the part of the body that must stay the same for a key. With messageId keys it
        is the whole body.
        """
        return self.description.payload is not None or self.description.key is message_id

    @property
    def namespace(self) -> str | None:
        """The prefix that separates this consumer's keys from those of other consumers."""
        return self.description.namespace

    @property
    def prefix(self) -> str:
        """The namespace prefix of record ids. Keys do not have it."""
        return "" if self.namespace is None else f"{self.namespace}#"

    def key_of(self, id: str) -> str:
        """The key of a record id, as commands print and accept it."""
        return id.removeprefix(self.prefix)

    def ids_of(self, key: str) -> list[str]:
        """The record ids that a key entered by the user may mean: the key with the prefix and, if it already has the
        prefix, the key as is.
        """
        if self.namespace is None:
            return [key]  # The key may be a whole record id: the namespace is not known.
        own = record_id(self.namespace, key)
        return [own, key] if key.startswith(self.prefix) else [own]

    @cached_property
    def store(self) -> DynamoDBStore | LendingStore:
        """The record store: the imported handler's own, if its records are in a relational database."""
        if (own := self.description.store) is None:
            return self.store_in(self.table)
        self.options.refuse(f"--consumer {self.options.consumer}", table=IN_DATABASE)
        return own

    def store_in(self, table: str) -> DynamoDBStore:
        """The record store for a table."""
        try:
            found = DynamoDBStore(table, self.namespace, self.client("dynamodb"))
        except ValueError as error:
            raise UsageError(f"table {table}: {error}") from None
        require_table(self.client, table)
        return found

    @property
    def archive_bucket(self) -> str:
        """The name of the archive bucket."""
        found = self._given("archive", "ArchiveBucket")
        require_bucket(self.client, found)
        return found

    @cached_property
    def history_table(self) -> str | None:
        """The name of the history table; None if no history is kept."""
        return self.options.history or self.outputs.get("HistoryTable")

    @property
    def kept_history_table(self) -> str:
        """The name of the history table. Raises UsageError if there is none."""
        return self._given("history", "HistoryTable")

    def history(self, terminal: Terminal) -> History:
        """The history. Prints a note if none is kept."""
        if self.history_table is None:
            terminal.note("No history is kept: name a table with --history, or update the stack to create one.")
        return History(self.client("dynamodb"), self.history_table, terminal.clock)

    @cached_property
    def operator(self) -> str:
        """The caller's ARN, for the history. GetCallerIdentity needs no permission."""
        return str(self.client("sts").get_caller_identity()["Arn"])

    @property
    def retention_seconds(self) -> int:
        """Record retention in seconds."""
        return self.description.retention_seconds or DEFAULT_RETENTION_SECONDS

    def known_retention(self, id: str) -> int | None:
        """The retention in seconds of the record with this id. None if the consumer's description does not say, or the
        record is not the consumer's: an endpoint or a function with the same table keeps its records for another time.
        """
        own = "#" not in id if self.namespace is None else id.startswith(self.prefix)
        return self.description.retention_seconds if own else None

    def reader(self) -> Reader:
        """A reader that reads dead letters as the consumer does."""
        key, payload = self.description.key, self.description.payload
        if key is None:
            raise UsageError(self._missing("consumer", OUTPUT))
        if isinstance(key, InCode):
            raise UsageError(f"the key is {key.name}, {IN_CODE}")
        if isinstance(payload, InCode):
            raise UsageError(f"the payload is {payload.name}, {IN_CODE}")
        envelope = self.description.envelope
        if isinstance(envelope, InCode):
            raise UsageError(f"the envelope is {envelope.name}, {IN_CODE}")
        return Reader(
            queue_arn=self.queue.arn,
            key=key,
            record_id=partial(record_id, self.namespace),
            open_envelope=envelope_opener(envelope),
            payload=EVERYTHING if payload is None else payload,
        )

    def _given(self, name: str, output: str) -> str:
        given: str | None = getattr(self.options, name) or self.outputs.get(output)
        if given is None:
            raise UsageError(self._missing(name, output))
        return given

    def _missing(self, name: str, output: str) -> str:
        stack = self.options.stack
        where = "give --stack or" if stack is None else f"stack {stack} has no output {output}: give"
        relational = "; for records in a relational database, give --consumer module:handler" if name == "table" else ""
        return f"{where} {flag(name)}{relational}"

    def _correction(self, name: str) -> str:
        """How to correct a wrong name."""
        if getattr(self.options, name):
            return f"correct {flag(name)}"
        return f"stack {self.options.stack} names it: correct the stack or give {flag(name)}"

    def _queue(self, given: str, correction: str) -> Queue:
        """The queue with this URL, ARN or name."""
        name: Any = {"QueueName": given}
        if given.startswith("arn:"):
            *_, account, queue = given.split(":")
            name = {"QueueName": queue, "QueueOwnerAWSAccountId": account}
        with named(f"queue {given}", correction, *NO_QUEUE):
            url = given if "://" in given else self.client("sqs").get_queue_url(**name)["QueueUrl"]
            names = ["QueueArn", "RedrivePolicy"]
            found = self.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=names).get("Attributes", {})
        policy = re.search(r'"deadLetterTargetArn"\s*:\s*"([^"]+)"', found.get("RedrivePolicy", ""))
        return Queue(url, found.get("QueueArn", ""), None if policy is None else policy[1])


def _name(queue: str) -> str:
    """A queue's name, from its URL, ARN or name."""
    return re.split("[/:]", queue)[-1]
