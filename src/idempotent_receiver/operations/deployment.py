"""A deployed consumer as an operator points at it: its queue, dead-letter queue, table, namespace and key strategy.

What is not given by a flag is looked up in the outputs of the stack; what nobody says is refused, not guessed.
"""

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, NoRegionError, ProfileNotFound

from idempotent_receiver.dynamodb.store import DynamoDBStore
from idempotent_receiver.operations.letters import Reader, other_sources
from idempotent_receiver.protocol.namespaces import checked
from idempotent_receiver.protocol.record import DEFAULT_RETENTION_SECONDS
from idempotent_receiver.protocol.store import record_id
from idempotent_receiver.sqs import keys

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_sqs import SQSClient

STRATEGIES = "message_id, body_field:PATH or message_attribute:NAME"


NO_QUEUE = ("NonExistentQueue", "QueueDoesNotExist", "InvalidAddress")
"""How the codes end by which SQS says that a name, or a URL, is no queue's."""


class Refused(Exception):
    """The operator has to say something else; the text says what."""


@dataclass(frozen=True, kw_only=True)
class Account:
    """The AWS account to work in, named as every AWS tool has it named."""

    region: str | None = None
    profile: str | None = None
    endpoint_url: str | None = None
    _clients: dict[str, Any] = field(default_factory=dict)

    def client(self, service: str) -> Any:
        """The one client of this service."""
        if service not in self._clients:
            session = self._session()
            config = Config(connect_timeout=5, read_timeout=30, retries={"mode": "standard", "total_max_attempts": 5})
            try:
                self._clients[service] = session.client(service, endpoint_url=self.endpoint_url, config=config)
            except NoRegionError:
                raise Refused("no AWS region: give --region, or set AWS_DEFAULT_REGION") from None
            except ValueError as error:
                raise Refused(f"--endpoint-url {self.endpoint_url}: {error}") from None
        return self._clients[service]

    def _session(self) -> Any:
        try:
            return boto3.Session(region_name=self.region, profile_name=self.profile)
        except ProfileNotFound as error:
            raise Refused(f"{error}: correct --profile, or AWS_PROFILE") from None

    def require_table(self, name: str) -> None:
        """Raises Refused where DynamoDB knows no such table; what else it answers is for whoever reads the table."""
        try:
            self.client("dynamodb").describe_table(TableName=name)
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") == "ResourceNotFoundException":
                raise Refused(
                    f"table {name} does not exist in this account and region: correct --table, or create it "
                    "(see --region, --profile)"
                ) from None

    @property
    def options(self) -> list[str]:
        """What was said of it, as it is typed: for this command, and for those of AWS's own tool."""
        return _typed(region=self.region, profile=self.profile, endpoint_url=self.endpoint_url)


def _typed(**said: object) -> list[str]:
    """Options with their values, quoted for a shell; those that were not given are left out."""
    return [
        f"--{name.replace('_', '-')} {shlex.quote(str(value))}" for name, value in said.items() if value is not None
    ]


@dataclass(frozen=True, kw_only=True)
class Flags:
    """What the operator said of it."""

    stack: str | None = None
    queue: str | None = None
    dlq: str | None = None
    table: str | None = None
    namespace: str | None = None
    key_strategy: str | None = None
    envelope: str | None = None
    retention_days: float | None = None

    def __post_init__(self) -> None:
        # At once, and for commands too that get along without it: what is not understood is not passed over.
        if self.key_strategy is not None:
            key_strategy(self.key_strategy)
        if self.retention_days is not None and not 0 < self.retention_days < float("inf"):
            raise Refused(f"--retention-days {self.retention_days:g}: it has to be a positive number")


def key_strategy(text: str) -> keys.KeyStrategy:
    """The strategy that a text names. Raises Refused for an unknown one."""
    name, _, argument = text.partition(":")
    if text == "message_id":
        return keys.message_id
    if name == "message_attribute" and argument:
        return keys.message_attribute(argument)
    if name == "body_field" and argument:
        try:
            return keys.body_field(argument)
        except ValueError as error:
            raise Refused(f"--key-strategy {text}: {error}") from None
    raise Refused(f"--key-strategy {text} is not known here: it is {STRATEGIES}, as in the consumer's code")


@dataclass(frozen=True, slots=True)
class _Queue:
    """A queue that is there."""

    url: str
    arn: str


@dataclass(frozen=True)
class Deployment:
    """What is known of a deployed consumer. Everything is looked up when it is first asked for."""

    account: Account
    flags: Flags

    @cached_property
    def options(self) -> list[str]:
        """What a command about its dead letters has to be told to mean this consumer, as it is typed.

        That is what was said, and in capitals what nobody has said yet.
        """
        wanted = {"queue": "QueueUrl", "key_strategy": "KeyStrategy"}
        unsaid = {name: name.upper() for name, output in wanted.items() if output not in self.outputs}
        said = {name: value for name, value in asdict(self.flags).items() if value is not None}
        return _typed(**{**unsaid, **said}) + self.account.options

    @property
    def sqs(self) -> "SQSClient":
        """The client of SQS."""
        client: SQSClient = self.account.client("sqs")
        return client

    @property
    def dynamodb(self) -> "DynamoDBClient":
        """The client of DynamoDB."""
        client: DynamoDBClient = self.account.client("dynamodb")
        return client

    @cached_property
    def outputs(self) -> Mapping[str, str]:
        """The stack's outputs; none without a stack."""
        name = self.flags.stack
        if name is None:
            return {}
        try:
            (found,) = self.account.client("cloudformation").describe_stacks(StackName=name)["Stacks"]
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") == "ValidationError":
                raise Refused(
                    f"there is no stack {name} in this account and region: correct --stack (see --region, --profile)"
                ) from None
            raise
        return {each["OutputKey"]: each["OutputValue"] for each in found.get("Outputs", [])}

    @property
    def queue_url(self) -> str:
        """The URL of the consumer's queue."""
        return self._queue.url

    @property
    def queue_arn(self) -> str:
        """Its ARN."""
        return self._queue.arn

    @property
    def dead_letter_queue_url(self) -> str:
        """The URL of its dead-letter queue: as said, or as the queue's own redrive policy says."""
        return self._dead_letter_queue.url

    @property
    def dead_letter_queue_arn(self) -> str:
        """Its ARN."""
        return self._dead_letter_queue.arn

    @cached_property
    def sharers(self) -> list[str] | None:
        """Other queues with this dead-letter queue; None where SQS does not say."""
        found = other_sources(self.sqs, self.dead_letter_queue_url, self.queue_url)
        return None if found is None else list(found)

    @cached_property
    def table(self) -> str:
        """The name of the records' table."""
        return self._said(self.flags.table, "RecordsTable", "--table")

    @property
    def namespace(self) -> str | None:
        """What keeps the consumer's keys apart from those of others. Raises Refused for what can be none."""
        try:
            return checked(self.flags.namespace or self.outputs.get("Namespace"))
        except ValueError as error:
            raise Refused(f"--namespace: {error}") from None

    @property
    def prefix(self) -> str:
        """What the ids of its records begin with, and their keys do not."""
        return "" if self.namespace is None else f"{self.namespace}#"

    def key_of(self, id: str) -> str:
        """The key of a record's id: what every command prints, and takes."""
        return id.removeprefix(self.prefix)

    def ids_of(self, key: str) -> list[str]:
        """The ids that may be meant by what was typed: a key's, and then, where it begins like one, itself."""
        if self.namespace is None:
            return [key]  # perhaps a whole id, of a namespace that was not said
        own = record_id(self.store, key)
        return [own, key] if key.startswith(self.prefix) else [own]

    @cached_property
    def store(self) -> DynamoDBStore:
        """The records. Raises Refused where their table does not exist."""
        try:
            found = DynamoDBStore(self.table, self.namespace, self.dynamodb)
        except ValueError as error:
            raise Refused(f"--table: {error}") from None
        self.account.require_table(self.table)
        return found

    @cached_property
    def strategy(self) -> str:
        """The key strategy, as text."""
        return self._said(self.flags.key_strategy, "KeyStrategy", f"--key-strategy, which is {STRATEGIES}")

    @property
    def by_message_id(self) -> bool:
        """Whether the consumer's keys are messageIds."""
        return key_strategy(self.strategy) is keys.message_id

    @cached_property
    def retention_seconds(self) -> int:
        """How long the consumer's records last."""
        days = self.flags.retention_days or self.outputs.get("RecordRetentionDays")
        return DEFAULT_RETENTION_SECONDS if days is None else int(float(days) * 86_400)

    def reader(self) -> Reader:
        """What reads letters as the consumer does."""
        strategy = key_strategy(self.strategy)
        if strategy is not keys.message_id and self.namespace is None:
            raise Refused(f"the key strategy {self.strategy} goes with a namespace: name the store's with --namespace")
        return Reader(
            queue_arn=self.queue_arn,
            key=strategy,
            record_id=lambda key: record_id(self.store, key),
            open_envelope=self._envelope(),
        )

    def _envelope(self) -> Callable[[str], str]:
        try:
            return keys.envelope_opener(self.flags.envelope or self.outputs.get("Envelope"))
        except ValueError as error:
            raise Refused(f"--envelope: {error}") from None

    def _said(self, flag: str | None, output: str, remedy: str) -> str:
        said = flag or self.outputs.get(output)
        if said is not None:
            return said
        where = "give --stack" if self.flags.stack is None else f"stack {self.flags.stack} has no output {output}: give"
        raise Refused(f"{where} or {remedy}" if self.flags.stack is None else f"{where} {remedy}")

    @cached_property
    def _queue(self) -> _Queue:
        said = self._said(self.flags.queue, "QueueUrl", "--queue")
        return self._found(said, self._correction(self.flags.queue, "--queue"))

    @cached_property
    def _dead_letter_queue(self) -> _Queue:
        said = self.flags.dlq or self.outputs.get("DeadLetterQueueUrl")
        if said is not None:
            return self._found(said, self._correction(self.flags.dlq, "--dlq"))
        named = re.search(r'"deadLetterTargetArn"\s*:\s*"([^"]+)"', self._attribute(self.queue_url, "RedrivePolicy"))
        if named is None:
            raise Refused(f"{self.queue_url} has no dead-letter queue that SQS knows of: name it with --dlq")
        return self._found(named[1], f"the redrive policy of {self.queue_url} names it: correct that, or give --dlq")

    def _correction(self, flag: str | None, option: str) -> str:
        """What to do about a name that is wrong."""
        return f"correct {option}" if flag else f"stack {self.flags.stack} names it: mend the stack, or give {option}"

    def _found(self, said: str, correction: str) -> _Queue:
        """The queue that is named by URL, ARN or name. Raises Refused, with the correction, where there is none."""
        named: Any = {"QueueName": said}
        if said.startswith("arn:"):
            *_, account, name = said.split(":")
            named = {"QueueName": name, "QueueOwnerAWSAccountId": account}
        try:
            url = said if "://" in said else self.sqs.get_queue_url(**named)["QueueUrl"]
            return _Queue(url, self._attribute(url, "QueueArn"))
        except ClientError as error:
            if not error.response.get("Error", {}).get("Code", "").endswith(NO_QUEUE):
                raise
            raise Refused(
                f"there is no queue {said} in this account and region: {correction} (see --region, --profile)"
            ) from None

    def _attribute(self, url: str, name: Any) -> str:
        return self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[name]).get("Attributes", {}).get(name, "")
