"""The ways in to the shipped code, as a held worker goes through them: what it runs on, and how its answer reads.

Each way in calls the shipped code with a store, a clock and whatever else it wants, of which each call is the world's
to answer, and returns the ids that must come again. Another way in is another entry of `WAYS`.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

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
from idempotent_receiver.errors import NotStarted
from idempotent_receiver.http.response import REPLAYED
from idempotent_receiver.protocol.store import NotApplied, Unknown
from idempotent_receiver.protocol.transitions import completed, failed
from idempotent_receiver.sqs.dead_letter import STAMP
from idempotent_receiver.workflow import Closed, Unavailable, Workflow, accept, recover_orphan
from tests.simulation.world import FIFO, QUEUE, failed_ids, sqs_record

if TYPE_CHECKING:
    from idempotent_receiver.protocol.record import Change, Record
    from idempotent_receiver.protocol.transaction import Action
    from tests.simulation.held import Held

DEAD_LETTERS = "https://sqs.us-east-1.amazonaws.com/123456789012/dead-letters"
BUDGET_SECONDS = 10.0
ME = "me"
"""What every worker calls itself: which one it is concerns nobody but the world."""
LOST = "lost"
"""The answer to a dead letter of which nobody knows whether it arrived."""


class Silent:
    """A logger and metrics that say nothing."""

    log_level = 100

    def info(self, *arguments: object, **fields: object) -> None:
        """Nothing."""

    debug = warning = error = append_keys = add_metric = flush_metrics = info


SILENT: Any = Silent()


@dataclass(frozen=True)
class Way:
    """A way in: `prefix` and a number make the id of a message, which is its record's too."""

    prefix: str
    invoke: "Callable[[Held], list[str]]"


def _queue(held: "Held") -> list[str]:
    """All messages as one batch of a queue."""
    setup = held.setup

    def handle(body: str, message: Message) -> str:
        return _handled(held, message.id)

    def post(body: str, message: Message, tx: Transaction) -> str:
        _post(tx, message.id)
        return _handled(held, message.id)

    consumer = sqs_consumer(
        _Store(held),
        clock=held,
        executor=lambda: _Executor(held),
        sqs=_Queue(held) if setup.letters else None,  # type: ignore[arg-type]  # the part of it that is used
        dead_letter_queue=DEAD_LETTERS if setup.letters else None,
        concurrency=setup.concurrency,
        logger=SILENT,
        metrics=SILENT,
    )
    queue, group = (FIFO, "g") if setup.fifo else (QUEUE, None)
    records = [sqs_record(id, receives=held.receives, queue=queue, group=group) for id in setup.batch]
    return failed_ids(consumer(post if setup.transactional else handle)({"Records": records}, _context()))


def _function(held: "Held") -> list[str]:
    """One call after the other, claimed, run and settled in one thread."""

    def handle(number: str, context: Any) -> str:
        return _handled(held, f"m#{number}")

    def post(number: str, context: Any, tx: Transaction) -> str:
        _post(tx, f"m#{number}")
        return _handled(held, f"m#{number}")

    wrap = idempotent(_Store(held, "m"), key=lambda number, context: str(number), clock=held)
    call: Callable[..., str] = wrap(post if held.setup.transactional else handle)
    again = []
    for id in held.setup.batch:
        try:
            call(id.removeprefix("m#"), _context())
        except (Failed, InProgress, LostClaim, NotStarted, StoreUnavailable):
            again.append(id)
    return again


@dataclass(frozen=True)
class Reply:
    """What a client over HTTP was answered. `attempt` is whose answer of a handler's it is; None where it is ours.

    `told` is all of it as JSON but for the mark of a replay; `status` is 0 where the handler's exception was raised.
    """

    status: int
    replayed: bool = False
    attempt: int | None = None
    told: str = field(default="", repr=False)

    @property
    def last(self) -> bool:
        """Whether the client has its answer, and asks no more."""
        return self.status in (CREATED, FAILED_FOR_GOOD)


RAISED, CREATED, CONFLICT, FAILED_FOR_GOOD, AGAIN = 0, 201, 409, 500, 503
ATTEMPT = "X-Attempt"


def _http(held: "Held") -> list[str]:
    """One request after the other. No two attempts of a key are answered alike, and an answer of 503 is not final."""

    def handle(event: Any, context: Any) -> dict[str, Any]:
        return _replied(held, event)

    def post(event: Any, context: Any, tx: Transaction) -> dict[str, Any]:
        _post(tx, _id(event))
        return _replied(held, event)

    wrap = http_endpoint(
        _Store(held, "m"),
        wait_seconds=held.setup.wait_seconds,
        on_exception="replay" if held.setup.replay else "retry",
        is_final=lambda status: status != AGAIN,
        logger=SILENT,
        clock=held,
    )
    endpoint = wrap(post if held.setup.transactional else handle)
    for id in held.setup.batch:
        headers = {"Idempotency-Key": id.removeprefix("m#")}
        event = {"httpMethod": "POST", "path": "/", "headers": headers, "body": "{}"}
        try:
            held.replies[id] = reply_of(endpoint(event, _context()))
        except Failed:
            held.replies[id] = Reply(RAISED)
    return [id for id, reply in held.replies.items() if not reply.last]


def _replied(held: "Held", event: Any) -> dict[str, Any]:
    attempt = current_claim().attempt
    try:
        _handled(held, _id(event))
        status = CREATED
    except PermanentError:
        status = AGAIN
    return {"statusCode": status, "headers": {ATTEMPT: str(attempt)}, "body": f"attempt {attempt}"}


def _id(event: Any) -> str:
    return f"m#{event['headers']['Idempotency-Key']}"


def reply_of(answer: dict[str, Any]) -> Reply:
    """An answer in the form of API Gateway, as its client reads it."""
    headers = dict(answer["headers"])
    replayed = headers.pop(REPLAYED, None) == "true"
    attempt = int(headers[ATTEMPT]) if ATTEMPT in headers else None
    told = json.dumps({**answer, "headers": headers}, sort_keys=True)
    return Reply(answer["statusCode"], replayed, attempt, told)


MACHINE_ARN = "arn:aws:states:us-east-1:123456789012:stateMachine:transfers"
EXECUTION_SECONDS = 20
"""The machine's TimeoutSeconds: longer than a starter's lease."""
STARTED, EXISTS = "started", "exists"


def arn_of(name: str) -> str:
    """The ARN of an execution."""
    return f"{MACHINE_ARN.replace(':stateMachine:', ':execution:')}:{name}"


@dataclass(frozen=True)
class Told:
    """What a request or a sweep of a workflow was answered: the answer's name, and what its record says."""

    answer: str
    status: str | None = None
    said: str | None = None


def _workflow(held: "Held") -> list[str]:
    """One execution after the other asked for, or tended as a sweep does."""
    machines: Any = _Machines(held)
    workflow = Workflow(
        _Store(held, "m"),
        client=machines,
        state_machine_arn=MACHINE_ARN,
        timeout_seconds=EXECUTION_SECONDS,
        clock=held,
    )
    deadline = workflow.deadline(int(BUDGET_SECONDS * 1000))
    for id in held.setup.batch:
        name = id.removeprefix("m#")
        answer: Any
        if held.sweeps:
            answer = recover_orphan(workflow, name, deadline, ME)
            if isinstance(answer, Closed):
                done = answer.status == "SUCCEEDED"
                outcome = completed("null") if done else failed(json.dumps({"type": answer.status}))
                answer = workflow.conclude(answer.execution, outcome, deadline)
        else:
            answer = accept(workflow, workflow.start_of(name, "f" * 64, "payload"), deadline, ME)
        found = getattr(answer, "record", None)
        status, said = (None, None) if found is None else (found.status, found.data or found.error)
        held.replies[id] = Told(type(answer).__name__, status, said)
    return [id for id, told in held.replies.items() if told == Told(Unavailable.__name__)]


WAYS = {
    "queue": Way("m", _queue),
    "function": Way("m#", _function),
    "http": Way("m#", _http),
    "workflow": Way("m#", _workflow),
}


class Failed(RuntimeError):
    """What a handler raises."""


def _handled(held: "Held", id: str) -> str:
    (how,) = held.ask("run", id)
    if how == "returns":
        return "done"
    raise PermanentError("refused") if how == "refuses" else Failed("failed")


def _post(tx: Transaction, id: str) -> None:
    tx.update(
        TableName="Entries",
        Key={"id": id},
        UpdateExpression="ADD times :one",
        ExpressionAttributeValues={":one": 1},
    )


def _context() -> SimpleNamespace:
    return SimpleNamespace(
        get_remaining_time_in_millis=lambda: int(BUDGET_SECONDS * 1000),
        aws_request_id=ME,
        function_name="consumer",
    )


@dataclass(frozen=True)
class _Executor:
    """The executor of a held worker: its jobs are greenlets."""

    held: "Held"

    def start(self, job: Callable[[], Any], then: Callable[[Any], None]) -> None:
        self.held.spawn(lambda: self.held.finish(then, job()))

    def start_async(self, job: Callable[[], Any], then: Callable[[Any], None]) -> None:
        raise NotImplementedError("plain handlers only")

    def report(self, then: Callable[[Any], None], result: object) -> None:
        self.held.finish(then, result)

    def step(self, timeout_seconds: float | None) -> None:
        self.held.wait(timeout_seconds)

    def cancel_async(self) -> None:
        """There is nothing to cancel."""

    def close(self, within_seconds: float | None) -> None:
        """Nothing outlives an invocation here."""


@dataclass(frozen=True)
class _Store:
    """The store as a held worker sees it: each method is a call that somebody else answers."""

    held: "Held"
    namespace: str | None = None

    def insert(self, records: "Sequence[Record]") -> list[Any]:
        return list(self.held.ask("insert", *records))

    def read(self, ids: Sequence[str]) -> list[Any]:
        return list(self.held.ask("read", *ids))

    def replace(self, changes: "Sequence[Change]") -> list[Any]:
        return list(self.held.ask("replace", *changes))

    def commit(self, change: "Change", actions: "Sequence[Action]") -> Any:
        (answer,) = self.held.ask("commit", (change, tuple(actions)))
        return answer


@dataclass(frozen=True)
class _Queue:
    """The queue's client as a held worker sees it: dead letters are calls, visibilities concern no invariant."""

    held: "Held"
    meta = SimpleNamespace(endpoint_url="https://sqs.us-east-1.amazonaws.com")

    def change_message_visibility_batch(self, **arguments: object) -> None:
        """Granted."""

    def send_message(self, **arguments: Any) -> None:
        stamp = json.loads(arguments["MessageAttributes"][STAMP]["StringValue"])
        if self.held.ask("send", stamp["original_id"]) == (LOST,):
            raise ConnectionError("the answer was lost")


class _Exists(ClientError):
    """As boto3 makes it: there is an execution of that name."""


class _DoesNotExist(ClientError):
    """As boto3 makes it: there is none."""


@dataclass(frozen=True)
class _Machines:
    """Step Functions' client as a held worker sees it."""

    held: "Held"
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
        (answer,) = self.held.ask(kind, part)
        if isinstance(answer, NotApplied):
            raise ClientError({"Error": {"Code": "ThrottlingException"}}, kind)
        if isinstance(answer, Unknown):
            raise ReadTimeoutError(endpoint_url="https://states.us-east-1.amazonaws.com")
        return answer
