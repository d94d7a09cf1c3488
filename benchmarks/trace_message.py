"""How far a message travels: calls, modules and changes of module, from the handler's event to its answer.

The library's own functions are counted, on every thread, for a batch of fresh messages. A stand-in replaces boto3's
client, so that nothing is sent: `.venv/bin/python -m benchmarks.trace_message 25`.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import boto3

import idempotent_receiver
from idempotent_receiver import DynamoDBStore, sqs_consumer

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

LIBRARY = Path(idempotent_receiver.__file__).parent


class Call(NamedTuple):
    """A function of the library that was entered."""

    thread: int
    module: str
    function: str


class Context:
    """Lambda's context."""

    aws_request_id = function_name = "trace"

    def get_remaining_time_in_millis(self) -> int:
        """Time enough."""
        return 30_000


class Silent:
    """A logger and a metrics sink that discard everything."""

    log_level = 100

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments, **options: None


def consumer() -> Callable[[Any, Any], Any]:
    """A consumer whose table accepts every write."""
    client: Any = boto3.client("dynamodb", "us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
    client.put_item = client.update_item = lambda **request: {}
    client.batch_execute_statement = lambda Statements: {"Responses": [{} for _ in Statements]}  # noqa: N803
    silent: Any = Silent()

    @sqs_consumer(DynamoDBStore("records", client=client), logger=silent, metrics=silent)
    def handler(body: dict[str, Any]) -> None: ...

    return handler


def event(name: str, messages: int) -> dict[str, Any]:
    """A batch of new messages."""
    record = {
        "receiptHandle": "handle",
        "body": '{"amount": 1}',
        "attributes": {"ApproximateReceiveCount": "1", "SentTimestamp": "1700000000000"},
        "messageAttributes": {},
        "md5OfBody": "",
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:us-east-1:123456789012:orders",
        "awsRegion": "us-east-1",
    }
    return {"Records": [{**record, "messageId": f"{name}-{number}"} for number in range(messages)]}


def traced(messages: int) -> list[Call]:
    """Every call that a batch of fresh messages makes, in the order of each thread."""
    consumer()(event("before", messages), Context())
    handler, batch, calls = consumer(), event("traced", messages), list[Call]()

    def note(frame: FrameType, what: str, _: object) -> None:
        file, function = Path(frame.f_code.co_filename), frame.f_code.co_name
        if what == "call" and LIBRARY in file.parents and "<" not in function:
            calls.append(Call(threading.get_ident(), str(file.relative_to(LIBRARY)), function))

    threading.setprofile(note)
    sys.setprofile(note)
    handler(batch, Context())
    sys.setprofile(None)
    threading.setprofile(None)
    return calls


def figures(messages: int) -> dict[str, float]:
    """The figures of one batch."""
    calls, last, changes = traced(messages), dict[int, str](), 0
    for call in calls:
        changes += last.get(call.thread, call.module) != call.module
        last[call.thread] = call.module
    return {
        "messages": messages,
        "calls": len(calls),
        "calls_a_message": round(len(calls) / messages, 1),
        "modules": len({call.module for call in calls}),
        "changes_of_module": changes,
    }


if __name__ == "__main__":
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    print(json.dumps(figures(wanted)))
    print(
        ", ".join(
            f"{module} {count}" for module, count in Counter(call.module for call in traced(wanted)).most_common()
        )
    )
