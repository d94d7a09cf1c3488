"""What the shipped code is given by its adapters: a store and clients whose calls the explorer answers, an executor."""

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol

from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError

from idempotent_receiver import current_claim
from idempotent_receiver.protocol.record import Record, Status
from idempotent_receiver.protocol.store import Conflict, NotApplied, Unknown
from idempotent_receiver.transaction.outbox import STAMP
from tests.simulation.store_calls import StoreCalls

if TYPE_CHECKING:
    from tests.simulation.controlled_worker import ControlledWorker

BUDGET_SECONDS = 10.0
ME = "me"
"""The name of every worker inside its own process, so that all workers behave alike."""
LOST = "lost"
"""The answer to a dead letter that may or may not have arrived."""
FILLING = "." * 400_000
"""Makes a result larger than its record may be."""
CUT_OFF = Unknown("cut off from the store")
"""The answer to the last of a worker's requests that may arrive: it gets none to those that follow, either."""
STARTED, EXISTS = "started", "exists"


def context() -> SimpleNamespace:
    return SimpleNamespace(
        get_remaining_time_in_millis=lambda: int(BUDGET_SECONDS * 1000),
        aws_request_id=ME,
        function_name="consumer",
    )


@dataclass(frozen=True)
class Executor:
    """An executor whose jobs are greenlets of the worker."""

    worker: "ControlledWorker"

    def start(self, job: Callable[[], Any], then: Callable[[Any], None]) -> None:
        self.worker.spawn(lambda: self.worker.finish(then, job()))

    def decide(self, decide: Callable[[], None], on_interrupt: object) -> None:
        decide()

    start_handlers = start

    def start_async(self, job: Callable[[], Any], then: Callable[[Any], None]) -> None:
        def driven() -> Any:
            coroutine = job()
            try:
                coroutine.send(None)
            except StopIteration as ended:
                return ended.value
            raise AssertionError("it awaits nothing but calls, which stop the greenlet")

        self.start(driven, then)

    def tell(self, then: Callable[[Any], None], result: object) -> None:
        self.worker.finish(then, result)

    def step(self, timeout_seconds: float | None) -> None:
        self.worker.wait(timeout_seconds)

    def cancel_async(self) -> None:
        if self.worker.setup.asynchronous:
            self.worker.cancel_runs()

    def close(self, within_seconds: float | None) -> None:
        """Nothing outlives an invocation here."""


@dataclass(frozen=True)
class Store(StoreCalls):
    """A store whose calls the explorer answers."""

    worker: "ControlledWorker"
    namespace: str | None = None

    def get(self, table: str, key: Mapping[str, Any]) -> Any:
        # The run has begun by now, for the message that is being handled.
        (found,) = self.send("fetch", [(key["id"], current_claim().id)])
        return {"id": key["id"], "times": found} if isinstance(found, int) else found

    def send(self, kind: str, parts: Sequence[Any]) -> list[Any]:
        if self.worker.cut_off:
            return [CUT_OFF] * len(parts)
        answers = list(self.worker.ask(kind, *parts))
        self.worker.cut_off = CUT_OFF in answers
        return [_before_sends(answer) for answer in answers] if self.worker.before_sends else answers


def _before_sends(answer: Any) -> Any:
    """What the release before sends makes of an answer: SENDING is a status that it does not know."""
    found = answer.found if isinstance(answer, Conflict) else answer
    if not isinstance(found, Record) or found.status != Status.SENDING:
        return answer
    unreadable = found._replace(unreadable=f"unknown status {found.status!r}")
    return Conflict(unreadable) if isinstance(answer, Conflict) else unreadable


@dataclass(frozen=True)
class Queue:
    """An SQS client whose sends the explorer answers. Visibility does not affect any invariant."""

    worker: "ControlledWorker"
    meta = SimpleNamespace(endpoint_url="https://sqs.us-east-1.amazonaws.com")

    def change_message_visibility_batch(self, **arguments: object) -> None:
        """Accepted."""

    def send_message(self, **arguments: Any) -> None:
        stamp = json.loads(arguments["MessageAttributes"][STAMP]["StringValue"])
        if self.worker.ask("send", stamp["original_id"]) == (LOST,):
            raise ConnectionError("the answer was lost")

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803
        keys = [json.loads(entry["MessageAttributes"][STAMP]["StringValue"])["key"] for entry in Entries]
        answers = self.worker.ask("post", *zip([entry["MessageBody"] for entry in Entries], keys, strict=True))
        if LOST in answers:
            raise ConnectionError("the answer was lost")
        failed = [place for place, answer in enumerate(answers) if isinstance(answer, NotApplied)]
        return {
            "Successful": [{"Id": entry["Id"]} for place, entry in enumerate(Entries) if place not in failed],
            "Failed": [{"Id": Entries[place]["Id"], "Code": "InternalError", "SenderFault": False} for place in failed],
        }


@dataclass(frozen=True)
class Bucket:
    """An S3 client whose calls the explorer answers, or whoever else `ask`s. It drops `FILLING`."""

    worker: "Asked"

    def put_object(self, *, Key: str, Body: bytes, **_: object) -> None:  # noqa: N803
        if self.worker.ask("put", (Key, gzip.decompress(Body).decode().replace(FILLING, ""))) == (LOST,):
            raise EndpointConnectionError(endpoint_url="https://results.s3.us-east-1.amazonaws.com")

    def get_object(self, *, Key: str, **_: object) -> dict[str, Any]:  # noqa: N803
        (found,) = self.worker.ask("get", Key)
        if found == LOST:
            raise EndpointConnectionError(endpoint_url="https://results.s3.us-east-1.amazonaws.com")
        if not found:
            raise ClientError({"Error": {"Code": "NoSuchKey"}}, "GetObject")
        return {"Body": BytesIO(gzip.compress(found.encode()))}


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
