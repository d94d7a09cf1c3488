"""Run the built function once, with an event from a file, and compare its answer with the expected one.

    python -m harness.invoke events/fresh.json

It runs under Lambda's emulator, with its own local cloud. Then it reports what became of each message, which the
answer alone does not show.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boto3.dynamodb.types import TypeSerializer
from botocore.exceptions import BotoCoreError, ClientError

from harness.beside import deploy_beside, joined
from harness.cloud import ROOT, running_cloud
from harness.deploy import HOST_BUILD, deploy
from harness.emulator import Function, running_function
from harness.program import INTERRUPTED
from harness.workload.deployment import client_of
from idempotent_receiver.local.deployment import DeployError, Stack
from idempotent_receiver.local.server import ServerError
from idempotent_receiver.sqs.dead_letter import stamp_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from harness.cloud import Cloud
    from harness.workload.evidence import DeadLetter
    from harness.workload.stack_client import StackClient

EVENTS = ROOT / "events"
GIVEN = EVENTS / "given"
EXPECTED = EVENTS / "expected"
EMULATED = sys.platform == "linux"
"""Lambda's emulator is a Linux program. Elsewhere, the local cloud runs the function and reports no error type."""


@contextlib.contextmanager
def deployed(*, code: Path = HOST_BUILD) -> Iterator[tuple[Cloud, Stack]]:
    """A stack on its own cloud, with the given items in its tables."""
    with running_cloud() as cloud:
        consumer = deploy(cloud, code=code)
        stack = joined(consumer, deploy_beside(cloud, consumer, "api", code=code))
        put_given(cloud, stack)
        yield cloud, stack


@contextlib.contextmanager
def application(name: str = "Consumer", *, code: Path = HOST_BUILD) -> Iterator[Function]:
    """Run a deployed function's code under the emulator, configured by the template, on its own cloud."""
    with deployed(code=code) as (cloud, stack), emulated(cloud, stack, name, code=code) as function:
        yield function


@contextlib.contextmanager
def emulated(cloud: Cloud, stack: Stack, name: str, *, code: Path = HOST_BUILD) -> Iterator[Function]:
    """Run a function of this stack under the emulator, with its deployed configuration."""
    configuration = cloud.client("lambda").get_function_configuration(FunctionName=stack.resources[name])
    with running_function(
        name,
        code=code,
        handler=configuration["Handler"],
        environment={**cloud.environment, **configuration["Environment"]["Variables"]},
        timeout_seconds=configuration["Timeout"],
    ) as function:
        yield function


def meant(event: Any) -> str:
    """The function that an event is for: an HTTP request for the API, anything else for the consumer."""
    return "Api" if isinstance(event, dict) and "httpMethod" in event else "Consumer"


def put_given(cloud: Cloud, stack: Stack) -> None:
    """Put the items in events/given into their tables: order_lines.json into the table of the resource `OrderLines`."""
    serialize = TypeSerializer().serialize
    for path in sorted(GIVEN.glob("*.json")):
        table = stack.resources.get(path.stem.title().replace("_", ""))
        if table is None:
            continue  # a user's own application has other tables
        for item in json.loads(path.read_text()):
            cloud.client("dynamodb").put_item(
                TableName=table,
                Item={name: serialize(value) for name, value in item.items()},
            )


def expected_answer(event: Path) -> Any:
    """Return the function's expected answer to this event, or None if there is none."""
    path = EXPECTED / event.name
    return json.loads(path.read_text()) if path.exists() else None


def matches(answer: Any, expected: Any) -> bool:
    """Say whether the answer is the expected one; for errors, HTTP responses and their headers, only the given fields
    count.
    """
    if isinstance(answer, dict) and isinstance(expected, dict) and {"errorType", "statusCode", "headers"} & {*expected}:
        headers = {name: (answer.get("headers") or {}).get(name) for name in expected.get("headers", {})}
        named = {name: answer.get(name) for name in expected} | ({"headers": headers} if "headers" in expected else {})
        return named == expected
    return bool(answer == expected)


def invoke(event: Path) -> Any:
    """Return the built function's answer to the event in this file; the fate of its messages goes to stderr."""
    content = json.loads(event.read_text())
    name = meant(content)
    with deployed() as (cloud, stack):
        if not EMULATED:
            answer = cloud.client("lambda").invoke(FunctionName=stack.resources[name], Payload=json.dumps(content))
            return said(cloud, stack, content, json.loads(answer["Payload"].read()))
        with emulated(cloud, stack, name) as function:
            try:
                return said(cloud, stack, content, function.invoke(content))
            finally:
                sys.stderr.write(function.log())


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    message_id: str
    acknowledged: bool
    what: str
    reason: str | None = None


def endings(client: StackClient, event: Any, answer: Any) -> list[Ending]:
    """How each message of an SQS event ended, given the consumer's answer."""
    again = {failure["itemIdentifier"] for failure in answer["batchItemFailures"]}
    keys = {message["messageId"]: _key(message) for message in event["Records"]}
    records = client.records(list(dict.fromkeys(keys.values())))
    dead_letters = client.dead_letters() if "DeadLetterQueueUrl" in client.stack.outputs else []
    by_id = {each.message_id: each for each in dead_letters}
    return [ending(id, id not in again, records.get(key, {}), by_id.get(id)) for id, key in keys.items()]


def _key(message: Any) -> str:
    """A message's key: its id, or its key before it was redriven."""
    stamp = stamp_of(message.get("messageAttributes") or {})
    return message["messageId"] if stamp is None else stamp.key


def ending(id: str, acknowledged: bool, record: Mapping[str, Any], letter: DeadLetter | None) -> Ending:
    """How a message ended, by the answer, its record and its dead letter, if any."""
    error = json.loads(record.get("error") or "{}")
    reason = error.get("text") or error.get("type")
    if not acknowledged:
        what = "failed for good" if error.get("permanent") else "to be tried again"
        return Ending(message_id=id, acknowledged=False, what=what, reason=reason or "it was not run")
    if letter is not None:
        return Ending(message_id=id, acknowledged=True, what="dead-lettered", reason=letter.reason)
    if record.get("status") == "COMPLETED":
        return Ending(message_id=id, acknowledged=True, what="completed")
    return Ending(message_id=id, acknowledged=True, what="unknown", reason="its record is under a key of another kind")


def summary(found: Sequence[Ending]) -> Iterator[str]:
    """A line with the number of messages per ending, and one for each that is not simply completed."""
    told = "; ".join(
        f"{len(some)} {which}: {_counted(each.what for each in some)}"
        for which, wanted in (("acknowledged", True), ("to be redelivered", False))
        if (some := [each for each in found if each.acknowledged is wanted])
    )
    yield f"{told or 'no messages'}."
    yield from (f"  {each.message_id} {each.what}: {each.reason}" for each in found if each.reason is not None)


def _counted(whats: Iterable[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in sorted(Counter(whats).items()))


def said(cloud: Cloud, stack: Stack, event: Any, answer: Any) -> Any:
    """Print what became of the event's messages to stderr; returns the answer."""
    if isinstance(answer, dict) and "batchItemFailures" in answer:
        print(*summary(endings(client_of(cloud, stack), event, answer)), sep="\n", file=sys.stderr)
    return answer


def main(arguments: list[str]) -> int:
    """Print the answer; returns 0 if it is the expected one, or if none is known."""
    if len(arguments) != 1 or not Path(arguments[0]).is_file():
        print("No event is given. For example: make invoke EVENT=events/fresh.json", file=sys.stderr)
        return 2
    event = Path(arguments[0])
    try:
        json.loads(event.read_text())
    except ValueError as error:
        print(f"{event} is not JSON: {error}", file=sys.stderr)
        return 2
    try:
        answer = invoke(event)
    except (ServerError, DeployError, ClientError, BotoCoreError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped and cleaned up", file=sys.stderr)
        return INTERRUPTED
    print(json.dumps(answer, indent=2))
    expected = expected_answer(event)
    if expected is None:
        print(f"No {EXPECTED.relative_to(ROOT) / event.name} to compare it with.", file=sys.stderr)
        return 1 if isinstance(answer, dict) and "errorType" in answer else 0
    if matches(answer, expected):
        print("As expected.", file=sys.stderr)
        return 0
    print(f"Expected:\n{json.dumps(expected, indent=2)}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
