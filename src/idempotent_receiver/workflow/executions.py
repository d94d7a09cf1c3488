"""Executions of a state machine, one for each key: started, handed the claim over to, and found again.

An execution's name is made of the key, and a record's id of that name. So starting twice is harmless, and whoever
knows one finds the other without looking. Between claim and start, and between start and hand-over, the starter may
die: the record keeps what to start until it is handed over, and the next request goes on from there, or
`Workflow.recover_orphan` in a scheduled sweep.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, cast

from botocore.exceptions import BotoCoreError, ClientError

from idempotent_receiver.clock import Clock, Deadline, SystemClock
from idempotent_receiver.protocol import namespaces, transitions
from idempotent_receiver.protocol.exchange import SETTLE_RETRIES, Unavailable, Unread, ask
from idempotent_receiver.protocol.record import Record, Status
from idempotent_receiver.protocol.store import RecordStore, Unknown, record_id
from idempotent_receiver.protocol.transitions import (
    AlreadyCompleted,
    AlreadyFailed,
    Claim,
    Claimed,
    ClaimLost,
    Conclusion,
    HeldElsewhere,
    OtherPayload,
    Settled,
    Settlement,
    Unreadable,
)

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient

RETENTION_SECONDS = 90 * 24 * 60 * 60
"""As long as Step Functions keeps an execution's name: a key that is free again finds its name free too."""

HAND_OVER_MARGIN_SECONDS = 60
"""What an execution may last beyond its machine's time-out: for the write of its outcome, and clocks that differ."""

MOST_INPUT_BYTES = 256 * 1024
"""What StartExecution takes."""

MOST_STARTS = 10
"""Attempts at starting an execution, after which an orphan is given up."""


@dataclass(frozen=True, slots=True)
class Started:
    """An execution was started, or found, and has the key."""

    execution: str


@dataclass(frozen=True, slots=True)
class Running:
    """The execution of an earlier request has the key, or is about to."""

    execution: str


@dataclass(frozen=True, slots=True)
class Closed:
    """An execution is over and its record does not say so: what it has left behind is to be put right."""

    execution: str
    status: str
    input: str


@dataclass(frozen=True, slots=True)
class NothingToDo:
    """There is nothing to do about a record, or it was done."""


Answer = Started | Running | AlreadyCompleted | AlreadyFailed | OtherPayload | Unreadable | Unavailable


@dataclass(frozen=True, slots=True)
class Start:
    """What an execution is started with: its name, the payload's fingerprint, and the input as JSON text."""

    name: str
    fingerprint: str
    input: str


def name_of(key: str, scope: str | None = None) -> str:
    """The name of a key's execution, and the key of its record: 64 letters and digits that tell nothing of either."""
    told = "".join(f"{len(part)}:{part}" for part in (scope or "", key))
    return sha256(told.encode("utf-8", "surrogatepass")).hexdigest()


class Workflow:
    """A STANDARD state machine, whose executions are started once a key.

    `timeout_seconds` is the machine's own TimeoutSeconds: a key is handed over for as long. The store is the
    workflow's alone and needs a namespace. The machine is given `{"record", "fingerprint", "payload"}`, and writes its
    outcome into the record `record` as `record.Conclusion` would.
    """

    def __init__(
        self,
        store: RecordStore,
        *,
        client: "SFNClient",
        state_machine_arn: str,
        timeout_seconds: int,
        retention_seconds: int = RETENTION_SECONDS,
        lease_margin_seconds: float = 3.0,
        clock: Clock | None = None,
    ) -> None:
        if namespaces.checked(store.namespace) is None:
            raise ValueError('a workflow needs a store with a namespace: DynamoDBStore("...", namespace="transfers")')
        if ":stateMachine:" not in state_machine_arn:
            raise ValueError(f"{state_machine_arn!r} is not the ARN of a state machine")
        if retention_seconds <= timeout_seconds + HAND_OVER_MARGIN_SECONDS:
            raise ValueError(
                f"retention_seconds {retention_seconds} must be longer than an execution may last, which is "
                f"timeout_seconds {timeout_seconds} and {HAND_OVER_MARGIN_SECONDS} more: its record would end before it"
            )
        namespaces.take(store, f"the workflow {state_machine_arn}", state_machine_arn.rpartition(":")[2])
        self.store = store
        self.client = client
        self.state_machine_arn = state_machine_arn
        self.timeout_seconds = timeout_seconds
        self.retention_seconds = retention_seconds
        self.lease_margin_seconds = lease_margin_seconds
        self.clock: Clock = SystemClock() if clock is None else clock

    # Where things are.

    def id_of(self, name: str) -> str:
        """The id of the record of an execution's name."""
        return record_id(self.store, name)

    def arn_of(self, name: str) -> str:
        """The ARN of an execution's name, started or not."""
        return f"{self.state_machine_arn.replace(':stateMachine:', ':execution:')}:{name}"

    def deadline(self, milliseconds: int) -> Deadline:
        """The deadline that many milliseconds from now: the Lambda context's remaining time."""
        return Deadline.after(self.clock, milliseconds)

    def start_of(self, name: str, fingerprint: str, payload: Any) -> Start:
        """What to start for a payload. Raises ValueError where that is no JSON, or too long for Step Functions."""
        told = {"record": self.id_of(name), "fingerprint": fingerprint, "payload": payload}
        text = json.dumps(told, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        size = len(text.encode())
        if size > MOST_INPUT_BYTES:
            raise ValueError(f"it makes an input of {size} bytes, and an execution takes {MOST_INPUT_BYTES}")
        return Start(name, fingerprint, text)

    # Starting.

    def accept(self, start: Start, deadline: Deadline, owner: str) -> Answer:
        """Claim the key, start its execution, and hand the claim over to it; or say what there is already."""
        answer = self._claimed(start, deadline, owner)
        if isinstance(answer, HeldElsewhere):
            # Whoever claimed it has said in the record what to start: it will be, if by a sweep.
            return Running(self.arn_of(start.name))
        return self._begun(answer, start, deadline) if isinstance(answer, Claimed) else answer

    def _claimed(self, start: Start, deadline: Deadline, owner: str) -> Claimed | transitions.Refusal | Unavailable:
        claim = Claim(
            id=self.id_of(start.name),
            fingerprint=start.fingerprint,
            owner=owner,
            lease_until_ms=deadline.ends_ms + int(self.lease_margin_seconds * 1000),
            retention_seconds=self.retention_seconds,
            failures_are_answers=True,
            input=start.input,
        )
        return ask(claim, None, self.store, deadline)

    def _begun(self, held: Claimed, start: Start, deadline: Deadline) -> Answer:
        """Start the execution of a claim. What cannot be started now stays claimed until the lease is over."""
        arn = self.arn_of(start.name)
        try:
            self.client.start_execution(stateMachineArn=self.state_machine_arn, name=start.name, input=start.input)
        except self.client.exceptions.ExecutionAlreadyExists:
            return self._found(held, start, deadline)
        except (ClientError, BotoCoreError) as error:
            return Unavailable(f"StartExecution: {_told(error)}")
        return self._handed_over(held, arn, deadline.now_ms + self._lasts_ms, deadline)

    @property
    def _lasts_ms(self) -> int:
        return (self.timeout_seconds + HAND_OVER_MARGIN_SECONDS) * 1000

    def _found(self, held: Claimed, start: Start, deadline: Deadline) -> Answer:
        """There is an execution of the name: whose starter died before the hand-over, or whose record is gone."""
        arn = self.arn_of(start.name)
        try:
            found = self.client.describe_execution(executionArn=arn)
        except (ClientError, BotoCoreError) as error:
            return Unavailable(f"DescribeExecution: {_told(error)}")
        # Not by its words: of the same payload, what counts for nothing may be said otherwise.
        if _fingerprint_of(found.get("input")) != start.fingerprint:
            return self._settled(transitions.fail(held, _OTHER_INPUT), arn, deadline)
        if found["status"] == "RUNNING":
            return self._handed_over(held, arn, deadline.now_ms + self._lasts_ms, deadline)
        if found["status"] == "SUCCEEDED":
            return self._settled(transitions.complete(held, found.get("output")), arn, deadline)
        # It has failed and left no word. With its lease over, the next sweep finds it, and puts right what it left.
        return self._handed_over(held, arn, deadline.now_ms, deadline)

    def _handed_over(self, held: Claimed, arn: str, until_ms: int, deadline: Deadline) -> Answer:
        answer = self._settled(transitions.hand_over(held, arn, until_ms), arn, deadline)
        # The execution runs. Its outcome needs no hand-over, and a sweep makes up for it.
        return Started(arn) if isinstance(answer, Unavailable) else answer

    def _settled(self, settlement: Settlement, arn: str, deadline: Deadline) -> Answer:
        answer = ask(settlement, settlement.held, self.store, deadline, max_retries=SETTLE_RETRIES)
        match answer:
            case Settled(found):
                return _standing(found, Started(arn))
            case ClaimLost(found):
                # The execution was faster than we, or another starter has taken over.
                return _standing(found, Running(arn))
        return cast(Unavailable, answer)

    # Afterwards.

    def look(self, name: str, deadline: Deadline) -> Record | Unavailable | None:
        """The record of an execution's name; None where there is none any more."""
        (found,) = self.store.read([self.id_of(name)])
        if isinstance(found, Unknown):
            return Unavailable(found.why)
        return None if found is None or found.expired(deadline.now_ms) else found

    def recover_orphan(self, name: str, deadline: Deadline, owner: str) -> Answer | Closed | NothingToDo:
        """Go on with a record whose lease is over: start what was never started, and find out about what was."""
        found = self.look(name, deadline)
        if isinstance(found, Unavailable):
            return found
        if found is None or found.status != Status.INPROGRESS or not _orphaned(found, deadline.now_ms):
            return NothingToDo()
        if found.execution is not None or (found.attempts or 0) >= MOST_STARTS or found.input is None:
            return self._traced(found, name, deadline, owner)
        return self.accept(Start(name, found.validation or "", found.input), deadline, owner)

    def _traced(self, found: Record, name: str, deadline: Deadline, owner: str) -> Answer | Closed | NothingToDo:
        arn = found.execution or self.arn_of(name)
        try:
            execution = self.client.describe_execution(executionArn=arn)
        except self.client.exceptions.ExecutionDoesNotExist:
            return self._given_up(found, name, deadline, owner)
        except (ClientError, BotoCoreError) as error:
            return Unavailable(f"DescribeExecution: {_told(error)}")
        if execution["status"] == "RUNNING":
            return NothingToDo()
        return Closed(arn, execution["status"], execution["input"])

    def _given_up(self, found: Record, name: str, deadline: Deadline, owner: str) -> Answer:
        start = Start(name, found.validation or "", found.input or "")
        answer = self._claimed(start, deadline, owner)
        if not isinstance(answer, Claimed):
            return Running(self.arn_of(name)) if isinstance(answer, HeldElsewhere) else answer
        if found.execution is not None:
            return self._settled(transitions.fail(answer, _GONE), found.execution, deadline)
        # Asked again under the claim: meanwhile another may have started it, and died.
        try:
            self.client.describe_execution(executionArn=self.arn_of(name))
        except self.client.exceptions.ExecutionDoesNotExist:
            return self._settled(transitions.fail(answer, _NEVER_STARTED), self.arn_of(name), deadline)
        except (ClientError, BotoCoreError) as error:
            return Unavailable(f"DescribeExecution: {_told(error)}")
        return self._found(answer, start, deadline)

    def conclude(
        self,
        execution: str,
        outcome: Mapping[str, str | int | None],
        deadline: Deadline,
        revises: str | None = None,
    ) -> Settled | ClaimLost | Unavailable:
        """Write how an execution has ended into its record, if that is still open; `revises` as in `Conclusion`."""
        conclusion = Conclusion(
            id=self.id_of(execution.rpartition(":")[2]),
            execution=execution,
            outcome=outcome,
            retention_seconds=self.retention_seconds,
            revises=revises,
        )
        return ask(conclusion, Unread(), self.store, deadline, max_retries=SETTLE_RETRIES)


def _error(type: str, text: str, status: int) -> str:
    return json.dumps({"type": type, "text": text, "permanent": True, "status": status})


NEVER_STARTED = "NeverStarted"
"""The error of a record whose execution was given up. Should a late request start it all the same, then whoever puts
right what it has done may revise the record."""

_OTHER_INPUT = _error("FingerprintMismatch", "the key was used for another payload, by an earlier execution", 422)
_NEVER_STARTED = _error(NEVER_STARTED, f"no execution could be started in {MOST_STARTS} attempts", 500)
_GONE = _error("ExecutionGone", "its execution is not known any more, and never said how it ended", 500)


def _fingerprint_of(input: str | None) -> str | None:
    """The fingerprint in an execution's input; None where it is not one of ours."""
    try:
        return str(json.loads(input or "")["fingerprint"])
    except (ValueError, TypeError, KeyError):
        return None


def _standing(found: Record | None, otherwise: Started | Running) -> Answer:
    if found is not None and found.unreadable is None:
        if found.status == Status.COMPLETED:
            return AlreadyCompleted(found)
        if found.status == Status.FAILED:
            return AlreadyFailed(found)
    return otherwise


def _orphaned(found: Record, now_ms: int) -> bool:
    return found.lease_until_ms is not None and found.lease_until_ms <= now_ms


def _told(error: ClientError | BotoCoreError) -> str:
    return error.response["Error"]["Code"] if isinstance(error, ClientError) else type(error).__name__
