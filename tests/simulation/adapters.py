"""Adapters from a controlled worker to the shipped code: one for each of its entry points.

An adapter calls the shipped code with a store, a clock and clients that pass every call on to the worker, so that the
explorer answers it. It returns the ids that must be delivered again.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from idempotent_receiver import (
    InProgress,
    LostClaim,
    Message,
    PermanentError,
    S3Results,
    StoreUnavailable,
    Transaction,
    body_field,
    current_claim,
    http_endpoint,
    idempotent,
    message_id,
)
from idempotent_receiver.clock import Deadline
from idempotent_receiver.errors import NotStarted
from idempotent_receiver.http.response import REPLAYED
from idempotent_receiver.protocol.record import DEFAULT_RETENTION_SECONDS
from idempotent_receiver.protocol.transitions import completed, failed
from idempotent_receiver.sqs.handlers import consumer_inside
from idempotent_receiver.testing.worker import SILENT, failed_ids
from idempotent_receiver.transaction.outbox import STAMP
from idempotent_receiver.workflow import Closed, Unknown, Workflow, accept, recover_orphan
from tests.consumers import controlled
from tests.simulation import handlers, operators
from tests.simulation.explored_clients import (
    BUDGET_SECONDS,
    FILLING,
    ME,
    Bucket,
    Executor,
    Queue,
    StepFunctions,
    Store,
    context,
)
from tests.simulation.handlers import Failed, done
from tests.simulation.outside_lambda import LEASE_MS, new_host
from tests.simulation.setups import CONSUMERS, FIRST, REDRIVEN
from tests.simulation.world import DEAD_LETTERS, FIFO, QUEUE, sqs_record

if TYPE_CHECKING:
    from tests.simulation.controlled_worker import ControlledWorker


def _queue(worker: "ControlledWorker") -> list[str]:
    """Deliver all messages as one batch of a queue."""
    setup = worker.setup
    ids = {_message_id(worker, id): id for id in setup.batch_of(worker.variant)}

    def handle(body: str, message: Message) -> str:
        return handlers.handle(worker, ids[message.id])

    def post(body: str, message: Message, tx: Transaction) -> str:
        handlers.post(worker, tx, ids[message.id])
        return handlers.handle(worker, ids[message.id])

    async def handle_later(body: str, message: Message) -> str:
        return handle(body, message)

    async def post_later(body: str, message: Message, tx: Transaction) -> str:
        return post(body, message, tx)

    several = CONSUMERS[worker.variant] if setup.consumers > 1 else None
    consumer = controlled(
        Store(worker, "m" if setup.payloads > 1 else several),
        key=body_field("key") if setup.payloads > 1 else message_id,
        clock=worker,
        executor=lambda: Executor(worker),
        sqs=Queue(worker) if setup.dead_letters or setup.sends else None,  # type: ignore[arg-type]  # the part of it that is used
        dead_letter_queue=DEAD_LETTERS if setup.dead_letters else None,
        calls=[worker.announce] if setup.calls and worker.receives not in setup.before_calls else [],
        max_attempts=setup.attempts or None,
        concurrency=setup.concurrency,
        effects="transaction" if worker.receives in setup.unclaimed else "any",
        logger=SILENT,
        metrics=SILENT,
    )
    queue, group = (FIFO, "g") if setup.fifo else (QUEUE, None)
    records = [_record(worker, *pair, queue=queue, group=group) for pair in ids.items()]
    plain, later = (post, post_later) if setup.transactional else (handle, handle_later)
    wrapped = consumer(later if setup.asynchronous else plain)
    if setup.renewals == 0:
        return [ids[id] for id in failed_ids(wrapped({"Records": records}, context()))]
    inside = consumer_inside(wrapped)
    assert inside is not None
    return failed_ids(inside.receive({"Records": records}, context(), LEASE_MS, new_host(worker, Store(worker))))


def _message_id(worker: "ControlledWorker", id: str) -> str:
    """A message's own id. Consumers receive the same ones; a redrive makes another message."""
    redriven = "r" if worker.receives == REDRIVEN else ""
    return redriven + (id.partition("#")[2] if worker.setup.consumers > 1 else id)


def _record(worker: "ControlledWorker", id: str, record_id: str, **where: Any) -> dict[str, Any]:
    body = json.dumps({"key": id.removeprefix("m#"), "amount": worker.variant}) if worker.setup.payloads > 1 else "{}"
    stamp = json.dumps({"key": record_id, "original_id": record_id})
    attributes = {STAMP: {"stringValue": stamp, "dataType": "String"}} if worker.receives == REDRIVEN else None
    receives = FIRST if worker.receives == REDRIVEN else worker.receives
    return sqs_record(id, body, receives=receives, attributes=attributes, **where)


def _function(worker: "ControlledWorker") -> list[str]:
    """Call an idempotent function once for each message, one after the other."""

    def handle(number: str, context: Any) -> str:
        return handlers.handle(worker, f"m#{number}")

    def post(number: str, context: Any, tx: Transaction) -> str:
        handlers.post(worker, tx, f"m#{number}")
        return handlers.handle(worker, f"m#{number}")

    wrap = idempotent(Store(worker, "m"), key=lambda number, context: str(number), clock=worker)
    call: Callable[..., str] = wrap(post if worker.setup.transactional else handle)
    again = []
    for id in worker.setup.batch:
        try:
            call(id.removeprefix("m#"), context())
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
        return self.status in (CREATED, GONE, MISMATCH, FAILED_FOR_GOOD)


RAISED, CREATED, CONFLICT, GONE, MISMATCH, FAILED_FOR_GOOD, AGAIN = 0, 201, 409, 410, 422, 500, 503
ATTEMPT = "X-Attempt"


def _http(worker: "ControlledWorker") -> list[str]:
    """Send one request after the other. Each attempt of a key has its own reply; a 503 is not final."""

    def handle(event: Any, context: Any) -> dict[str, Any]:
        return _respond(worker, event)

    def post(event: Any, context: Any, tx: Transaction) -> dict[str, Any]:
        handlers.post(worker, tx, _id(event))
        return _respond(worker, event)

    wrap = http_endpoint(
        Store(worker, "m"),
        wait_seconds=worker.setup.wait_seconds,
        on_exception="replay" if worker.setup.replay else "retry",
        is_final=lambda status: status != AGAIN,
        logger=SILENT,
        clock=worker,
        results=S3Results("results", Bucket(worker)) if worker.setup.large else None,  # type: ignore[arg-type]
        retention_seconds=worker.setup.retention_seconds or DEFAULT_RETENTION_SECONDS,
    )
    endpoint = wrap(post if worker.setup.transactional else handle)
    for id in worker.setup.batch:
        headers = {"Idempotency-Key": id.removeprefix("m#")}
        event = {"httpMethod": "POST", "path": "/", "headers": headers, "body": json.dumps({"amount": worker.variant})}
        try:
            worker.replies[id] = reply_of(endpoint(event, context()))
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
    body = f"attempt {attempt}: {done(worker.variant)}{FILLING if worker.setup.large else ''}"
    return {"statusCode": status, "headers": {ATTEMPT: str(attempt)}, "body": body}


def _id(event: Any) -> str:
    return f"m#{event['headers']['Idempotency-Key']}"


def reply_of(answer: dict[str, Any]) -> HttpReply:
    """Parse a response in the form that API Gateway expects."""
    headers = dict(answer["headers"])
    replayed = headers.pop(REPLAYED, None) == "true"
    attempt = int(headers[ATTEMPT]) if ATTEMPT in headers else None
    content = json.dumps({**answer, "headers": headers}, sort_keys=True).replace(FILLING, "")
    return HttpReply(answer["statusCode"], replayed, attempt, content)


MACHINE_ARN = "arn:aws:states:us-east-1:123456789012:stateMachine:transfers"
EXECUTION_SECONDS = 20
"""The state machine's TimeoutSeconds: longer than the lease of the request that starts it."""


def arn_of(name: str) -> str:
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
        Store(worker, "m"),
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
    return [id for id, reply in worker.replies.items() if reply == WorkflowReply(Unknown.__name__)]


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
    "operators": operators.play,
}
