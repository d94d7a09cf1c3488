"""Adapters from a controlled worker to the shipped code: one for each of its entry points.

An adapter calls the shipped code with a store, a clock and clients that pass every call on to the worker, so that the
explorer answers it. It returns the ids that must be delivered again.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol

from botocore.exceptions import ClientError, ReadTimeoutError

from idempotent_receiver import (
    InProgress,
    LostClaim,
    Message,
    PermanentError,
    StoreUnavailable,
    Transaction,
    current_claim,
    http_endpoint,
    idempotent,
    sqs_consumer,
)
from idempotent_receiver.clock import Deadline
from idempotent_receiver.errors import NotStarted
from idempotent_receiver.http.response import REPLAYED
from idempotent_receiver.protocol.store import NotApplied, Unknown
from idempotent_receiver.protocol.transitions import completed, failed
from idempotent_receiver.sqs.dead_letter import STAMP
from idempotent_receiver.testing.worker import SILENT, failed_ids
from idempotent_receiver.workflow import Closed, Unavailable, Workflow, accept, recover_orphan
from tests.simulation import handlers
from tests.simulation.handlers import Failed
from tests.simulation.outside_lambda import LEASE_MS, new_host
from tests.simulation.world import DEAD_LETTERS, FIFO, QUEUE, sqs_record

if TYPE_CHECKING:
    from idempotent_receiver.protocol.record import Change, Record
    from idempotent_receiver.protocol.store import Commit
    from tests.simulation.controlled_worker import ControlledWorker

BUDGET_SECONDS = 10.0
ME = "me"
"""The name of every worker inside its own process, so that all workers behave alike."""
LOST = "lost"
"""The answer to a dead letter that may or may not have arrived."""
CUT_OFF = Unknown("cut off from the store")
"""The answer to the last of a worker's requests that may arrive: it gets none to those that follow, either."""


def _queue(worker: "ControlledWorker") -> list[str]:
    """Deliver all messages as one batch of a queue."""
    setup = worker.setup

    def handle(body: str, message: Message) -> str:
        return handlers.handle(worker, message.id)

    def post(body: str, message: Message, tx: Transaction) -> str:
        handlers.post(worker, tx, message.id)
        return handlers.handle(worker, message.id)

    consumer = sqs_consumer(
        _Store(worker),
        clock=worker,
        executor=lambda: _Executor(worker),
        sqs=_Queue(worker) if setup.dead_letters else None,  # type: ignore[arg-type]  # the part of it that is used
        dead_letter_queue=DEAD_LETTERS if setup.dead_letters else None,
        concurrency=setup.concurrency,
        effects="transaction" if worker.receives in setup.unclaimed else "any",
        logger=SILENT,
        metrics=SILENT,
    )
    queue, group = (FIFO, "g") if setup.fifo else (QUEUE, None)
    records = [sqs_record(id, receives=worker.receives, queue=queue, group=group) for id in setup.batch]
    wrapped = consumer(post if setup.transactional else handle)
    if setup.renewals == 0:
        return failed_ids(wrapped({"Records": records}, _context()))
    return failed_ids(wrapped.receive({"Records": records}, _context(), LEASE_MS, new_host(worker, _Store(worker))))


def _function(worker: "ControlledWorker") -> list[str]:
    """Call an idempotent function once for each message, one after the other."""

    def handle(number: str, context: Any) -> str:
        return handlers.handle(worker, f"m#{number}")

    def post(number: str, context: Any, tx: Transaction) -> str:
        handlers.post(worker, tx, f"m#{number}")
        return handlers.handle(worker, f"m#{number}")

    wrap = idempotent(_Store(worker, "m"), key=lambda number, context: str(number), clock=worker)
    call: Callable[..., str] = wrap(post if worker.setup.transactional else handle)
    again = []
    for id in worker.setup.batch:
        try:
            call(id.removeprefix("m#"), _context())
        except (Failed, InProgress, LostClaim, NotStarted, StoreUnavailable):
            again.append(id)
    return again


@dataclass(frozen=True)
class HttpReply:
    """The reply to an HTTP client. `attempt` is the attempt whose handler made it; None if the library made it.

    `content` is the whole reply as JSON without the replay marker; `status` is 0 if the handler's exception was raised.
    """

    status: int
    replayed: bool = False
    attempt: int | None = None
    content: str = field(default="", repr=False)

    @property
    def final(self) -> bool:
        """Whether the client has its answer and does not retry."""
        return self.status in (CREATED, FAILED_FOR_GOOD)


RAISED, CREATED, CONFLICT, FAILED_FOR_GOOD, AGAIN = 0, 201, 409, 500, 503
ATTEMPT = "X-Attempt"


def _http(worker: "ControlledWorker") -> list[str]:
    """Send one request after the other. Each attempt of a key has its own reply; a 503 is not final."""

    def handle(event: Any, context: Any) -> dict[str, Any]:
        return _respond(worker, event)

    def post(event: Any, context: Any, tx: Transaction) -> dict[str, Any]:
        handlers.post(worker, tx, _id(event))
        return _respond(worker, event)

    wrap = http_endpoint(
        _Store(worker, "m"),
        wait_seconds=worker.setup.wait_seconds,
        on_exception="replay" if worker.setup.replay else "retry",
        is_final=lambda status: status != AGAIN,
        logger=SILENT,
        clock=worker,
    )
    endpoint = wrap(post if worker.setup.transactional else handle)
    for id in worker.setup.batch:
        headers = {"Idempotency-Key": id.removeprefix("m#")}
        event = {"httpMethod": "POST", "path": "/", "headers": headers, "body": "{}"}
        try:
            worker.replies[id] = reply_of(endpoint(event, _context()))
        except Failed:
            worker.replies[id] = HttpReply(RAISED)
    return [id for id, reply in worker.replies.items() if not reply.final]


def _respond(worker: "ControlledWorker", event: Any) -> dict[str, Any]:
    attempt = current_claim().attempt
    try:
        handlers.handle(worker, _id(event))
        status = CREATED
    except PermanentError:
        status = AGAIN
    return {"statusCode": status, "headers": {ATTEMPT: str(attempt)}, "body": f"attempt {attempt}"}


def _id(event: Any) -> str:
    return f"m#{event['headers']['Idempotency-Key']}"


def reply_of(answer: dict[str, Any]) -> HttpReply:
    """Parse a response in the form that API Gateway expects."""
    headers = dict(answer["headers"])
    replayed = headers.pop(REPLAYED, None) == "true"
    attempt = int(headers[ATTEMPT]) if ATTEMPT in headers else None
    content = json.dumps({**answer, "headers": headers}, sort_keys=True)
    return HttpReply(answer["statusCode"], replayed, attempt, content)


MACHINE_ARN = "arn:aws:states:us-east-1:123456789012:stateMachine:transfers"
EXECUTION_SECONDS = 20
"""The state machine's TimeoutSeconds: longer than the lease of the request that starts it."""
STARTED, EXISTS = "started", "exists"


def arn_of(name: str) -> str:
    """The ARN of an execution."""
    return f"{MACHINE_ARN.replace(':stateMachine:', ':execution:')}:{name}"


@dataclass(frozen=True)
class WorkflowReply:
    """The reply to a request or a sweep of a workflow: its class name, and what its record says."""

    answer: str
    status: str | None = None
    recorded: str | None = None


def _workflow(worker: "ControlledWorker") -> list[str]:
    """Request one execution after the other, or reconcile them as a sweep does."""
    step_functions: Any = StepFunctions(worker)
    workflow = Workflow(
        _Store(worker, "m"),
        client=step_functions,
        state_machine_arn=MACHINE_ARN,
        timeout_seconds=EXECUTION_SECONDS,
        clock=worker,
    )
    deadline = workflow.deadline(int(BUDGET_SECONDS * 1000))
    for id in worker.setup.batch:
        name = id.removeprefix("m#")
        answer: Any
        if worker.sweeps:
            answer = swept(workflow, name, deadline, ME)
        else:
            answer = accept(workflow, workflow.start_of(name, "f" * 64, "payload"), deadline, ME)
        found = getattr(answer, "record", None)
        status, recorded = (None, None) if found is None else (found.status, found.data or found.error)
        worker.replies[id] = WorkflowReply(type(answer).__name__, status, recorded)
    return [id for id, reply in worker.replies.items() if reply == WorkflowReply(Unavailable.__name__)]


def swept(workflow: Workflow, name: str, deadline: Deadline, owner: str) -> Any:
    """What a sweep finds of an execution's name, or does about it."""
    answer = recover_orphan(workflow, name, deadline, owner)
    if not isinstance(answer, Closed):
        return answer
    done = answer.status == "SUCCEEDED"
    outcome = completed("null") if done else failed(json.dumps({"type": answer.status}))
    return workflow.conclude(answer.execution, outcome, deadline)


ADAPTERS: "dict[str, Callable[[ControlledWorker], list[str]]]" = {
    "queue": _queue,
    "function": _function,
    "http": _http,
    "workflow": _workflow,
}


def _context() -> SimpleNamespace:
    return SimpleNamespace(
        get_remaining_time_in_millis=lambda: int(BUDGET_SECONDS * 1000),
        aws_request_id=ME,
        function_name="consumer",
    )


@dataclass(frozen=True)
class _Executor:
    """An executor whose jobs are greenlets of the worker."""

    worker: "ControlledWorker"

    def start(self, job: Callable[[], Any], then: Callable[[Any], None]) -> None:
        self.worker.spawn(lambda: self.worker.finish(then, job()))

    def start_async(self, job: Callable[[], Any], then: Callable[[Any], None]) -> None:
        raise NotImplementedError("plain handlers only")

    def tell(self, then: Callable[[Any], None], result: object) -> None:
        self.worker.finish(then, result)

    def step(self, timeout_seconds: float | None) -> None:
        self.worker.wait(timeout_seconds)

    def cancel_async(self) -> None:
        """There is nothing to cancel."""

    def close(self, within_seconds: float | None) -> None:
        """Nothing outlives an invocation here."""


@dataclass(frozen=True)
class _Store:
    """A store whose calls the explorer answers."""

    worker: "ControlledWorker"
    namespace: str | None = None

    def insert(self, records: "Sequence[Record]") -> list[Any]:
        return self._asked("insert", records)

    def read(self, ids: Sequence[str]) -> list[Any]:
        return self._asked("read", ids)

    def replace(self, changes: "Sequence[Change]") -> list[Any]:
        return self._asked("replace", changes)

    def commit(self, commits: "Sequence[Commit]") -> list[Any]:
        return self._asked("commit", commits)

    def _asked(self, kind: str, parts: Sequence[Any]) -> list[Any]:
        if self.worker.cut_off:
            return [CUT_OFF] * len(parts)
        answers = list(self.worker.ask(kind, *parts))
        self.worker.cut_off = CUT_OFF in answers
        return answers


@dataclass(frozen=True)
class _Queue:
    """An SQS client whose sends the explorer answers. Visibility does not affect any invariant."""

    worker: "ControlledWorker"
    meta = SimpleNamespace(endpoint_url="https://sqs.us-east-1.amazonaws.com")

    def change_message_visibility_batch(self, **arguments: object) -> None:
        """Accepted."""

    def send_message(self, **arguments: Any) -> None:
        stamp = json.loads(arguments["MessageAttributes"][STAMP]["StringValue"])
        if self.worker.ask("send", stamp["original_id"]) == (LOST,):
            raise ConnectionError("the answer was lost")


class Asked(Protocol):
    """Whoever answers a call."""

    def ask(self, kind: str, *parts: object) -> Any:
        """The answer of each part."""


class _Exists(ClientError):
    """boto3's error for an execution that exists."""


class _DoesNotExist(ClientError):
    """boto3's error for an execution that does not exist."""


@dataclass(frozen=True)
class StepFunctions:
    """A Step Functions client whose calls the explorer answers, or whoever else `ask`s."""

    worker: "Asked"
    exceptions = SimpleNamespace(ExecutionAlreadyExists=_Exists, ExecutionDoesNotExist=_DoesNotExist)

    def start_execution(self, *, stateMachineArn: str, name: str, input: str) -> None:  # noqa: N803
        if self._answer("start", (name, input)) == EXISTS:
            raise _Exists({"Error": {"Code": "ExecutionAlreadyExists"}}, "StartExecution")

    def describe_execution(self, *, executionArn: str) -> dict[str, Any]:  # noqa: N803
        found = self._answer("describe", executionArn.rpartition(":")[2])
        if found is None:
            raise _DoesNotExist({"Error": {"Code": "ExecutionDoesNotExist"}}, "DescribeExecution")
        return dict(zip(("status", "input", "output"), found, strict=True))

    def _answer(self, kind: str, part: object) -> Any:
        (answer,) = self.worker.ask(kind, part)
        if isinstance(answer, NotApplied):
            raise ClientError({"Error": {"Code": "ThrottlingException"}}, kind)
        if isinstance(answer, Unknown):
            raise ReadTimeoutError(endpoint_url="https://states.us-east-1.amazonaws.com")
        return answer
