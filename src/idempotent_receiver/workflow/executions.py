"""Executions of a state machine, one per key: their names, their records, and queries about them.

An execution's name is derived from the key, and its record's id from that name. So starting twice is harmless, and
an execution and its record can each be found from the other without a search.
"""

import json
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from idempotent_receiver import options
from idempotent_receiver.clock import Clock, Deadline
from idempotent_receiver.protocol import namespaces
from idempotent_receiver.protocol.answers import SettleResult
from idempotent_receiver.protocol.exchange import SETTLE_RETRIES, ask
from idempotent_receiver.protocol.execution import Conclusion
from idempotent_receiver.protocol.record import Record, Unread, record_id
from idempotent_receiver.protocol.store import RecordStore, Unknown
from idempotent_receiver.protocol.transitions import Attributes

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient
    from mypy_boto3_stepfunctions.type_defs import DescribeExecutionOutputTypeDef

RETENTION_SECONDS = 90 * 24 * 60 * 60
"""Matches how long Step Functions reserves an execution's name: once a key is free again, so is the name."""

HAND_OVER_MARGIN_SECONDS = 60
"""Extra seconds beyond the machine's timeout, to write the outcome and to allow for clock differences."""

MOST_INPUT_BYTES = 256 * 1024
"""StartExecution's limit."""

NEVER_STARTED = "NeverStarted"
"""The error type in the record of an execution that could not be started. If a late request starts it after all,
repairing its effects may revise the record.
"""


@dataclass(frozen=True, slots=True)
class Start:
    """An execution to start: its name, the payload's fingerprint, and the input as JSON text."""

    name: str
    fingerprint: str
    input: str


def name_of(key: str, scope: str | None = None) -> str:
    """The execution's name for a key, which is also its record's key: 64 letters and digits that disclose neither key
    nor scope.
    """
    parts = "".join(f"{len(part)}:{part}" for part in (scope or "", key))
    return sha256(parts.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(eq=False, kw_only=True)
class Workflow:
    """A STANDARD state machine that runs one execution per key.

    `client` is a boto3 Step Functions client. `state_machine_arn` is the machine's ARN, without a version or alias.
    `timeout_seconds` is the machine's own TimeoutSeconds: an execution holds its key for that long. The store needs a
    namespace that only this workflow uses. The machine gets `{"record", "fingerprint", "payload"}` as its input and
    writes its outcome to the record with the id `record`, as `protocol.execution.Conclusion` would.

    `starts.accept` starts an execution; `starts.recover_orphan` continues an execution whose starter died.

    Raises TypeError or ValueError for invalid options.
    """

    store: RecordStore = field(kw_only=False)
    client: "SFNClient"
    state_machine_arn: str
    timeout_seconds: int
    retention_seconds: int = RETENTION_SECONDS
    lease_margin_seconds: float = 3.0
    clock: Clock | None = None

    def __post_init__(self) -> None:
        options.require_store(self.store, "Workflow")
        if self.store.namespace is None:
            raise ValueError('a workflow needs a store with a namespace: DynamoDBStore("...", namespace="transfers")')
        options.require_client(self.client, "stepfunctions", "client")
        parts = str(self.state_machine_arn).split(":")
        if parts[5:6] != ["stateMachine"]:
            raise ValueError(f"{self.state_machine_arn!r} is not the ARN of a state machine")
        if len(parts) != 7:  # an ARN's parts, the last of which is the machine's name
            raise ValueError(
                f"{self.state_machine_arn!r} names a version or an alias: give the machine's ARN without a version or "
                "an alias, because that ARN identifies its executions"
            )
        options.require_count(self.timeout_seconds, "timeout_seconds")
        options.require_count(self.retention_seconds, "retention_seconds")
        options.require_numbers(lease_margin_seconds=self.lease_margin_seconds)
        if self.retention_seconds <= self.longest_seconds:
            raise ValueError(
                f"retention_seconds {self.retention_seconds} must exceed the longest execution, "
                f"{self.longest_seconds} (timeout_seconds plus {HAND_OVER_MARGIN_SECONDS})"
            )
        namespaces.take(self.store, f"the workflow {self.state_machine_arn}", self.state_machine_arn.rpartition(":")[2])

    @property
    def longest_seconds(self) -> int:
        """The longest time that an execution may hold its key."""
        return self.timeout_seconds + HAND_OVER_MARGIN_SECONDS

    def id_of(self, name: str) -> str:
        """The record id for an execution's name."""
        return record_id(self.store.namespace, name)

    def arn_of(self, name: str) -> str:
        """The ARN for an execution's name, whether or not it has been started."""
        return f"{self.state_machine_arn.replace(':stateMachine:', ':execution:')}:{name}"

    def deadline(self, milliseconds: int) -> Deadline:
        """The deadline `milliseconds` from now, for example the Lambda context's remaining time."""
        return Deadline.after(self.clock, milliseconds)

    def start_of(self, name: str, fingerprint: str, payload: Any) -> Start:
        """The execution to start for a payload of plain JSON values or pydantic-serialisable types. Raises TypeError
        for other types, and ValueError for NaN or infinity or if the input is too long for Step Functions.
        """
        fields = {"record": self.id_of(name), "fingerprint": fingerprint, "payload": payload}
        text = json.dumps(
            fields, default=_jsonable, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        )
        size = len(text.encode())
        if size > MOST_INPUT_BYTES:
            raise ValueError(f"its input would have {size} bytes; Step Functions allows {MOST_INPUT_BYTES}")
        return Start(name, fingerprint, text)

    def record_of(self, name: str, deadline: Deadline) -> Record | Unknown | None:
        """The record for an execution's name; None if it does not exist or has expired."""
        (found,) = self.store.read([self.id_of(name)])
        return None if isinstance(found, Record) and found.expired(deadline.now_ms) else found

    def conclude(
        self, execution: str, outcome: Attributes, deadline: Deadline, revises: str | None = None
    ) -> SettleResult | Unknown:
        """Write an execution's outcome to its record, if the record is still open. `revises` is as in `Conclusion`."""
        id = self.id_of(execution.rpartition(":")[2])
        conclusion = Conclusion(id, execution, outcome, self.retention_seconds, revises)
        return ask(conclusion, Unread(), self.store, deadline, max_retries=SETTLE_RETRIES)

    def describe(self, execution: str) -> "DescribeExecutionOutputTypeDef | Unknown | None":
        """Step Functions' description of an execution; None if there is no such execution."""
        try:
            return self.client.describe_execution(executionArn=execution)
        except self.client.exceptions.ExecutionDoesNotExist:
            return None
        except (ClientError, BotoCoreError) as error:
            return executions_unavailable("DescribeExecution", error)


def _jsonable(value: Any) -> Any:
    """Plain JSON values for a pydantic model, a date or a similar value. Raises TypeError for other types."""
    # Imported here because plain values do not need it.
    from pydantic_core import PydanticSerializationError, to_jsonable_python  # noqa: PLC0415

    try:
        return to_jsonable_python(value)
    except PydanticSerializationError as error:
        raise TypeError(f"the payload that parse returned is not JSON: {error}") from error


def executions_unavailable(operation: str, error: ClientError | BotoCoreError) -> Unknown:
    """Step Functions refused the operation, or did not answer."""
    code = error.response["Error"]["Code"] if isinstance(error, ClientError) else type(error).__name__
    return Unknown(f"{operation}: {code}")
