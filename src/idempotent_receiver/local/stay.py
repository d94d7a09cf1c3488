"""A project on a local cloud that keeps running, and the commands that work with it.

Tables and queues are named by logical id. `sam local` resolves `!Ref` to the logical id, so its containers find them.
"""

import contextlib
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from idempotent_receiver.local.cloud import REGION, Cloud, Ministack, embedded_cloud
from idempotent_receiver.local.consumers import QueueConsumer, consumers_of
from idempotent_receiver.local.container import LOOPBACK, engine
from idempotent_receiver.local.deployment import DeployError, Stack
from idempotent_receiver.local.project import LocalProject
from idempotent_receiver.local.samples import Sample
from idempotent_receiver.local.template import named_by_id

LOCAL_STACK = "local"
RECEIVER = ".venv/bin/receiver"
"""The path of the command in a project from `receiver init`."""


@dataclass(frozen=True)
class Stays:
    """A stack on a cloud that keeps running, and its queue consumers. `contained`: whether containers can reach it."""

    cloud: Cloud
    stack: Stack
    consumers: Sequence[QueueConsumer]
    contained: bool


@contextlib.contextmanager
def staying(project: LocalProject, port: int) -> Iterator[Stays]:
    """Run the project on a local cloud at `port`, until the block ends. Raises DeployError, TrialError and
    ServerError.
    """
    address = engine()
    program = Ministack(also_at=address or LOOPBACK)
    try:
        text = named_by_id(project.text)
    except ValueError as error:
        raise DeployError(str(error)) from None
    with embedded_cloud(program, port=port) as cloud:
        stack = project.deployed(cloud, LOCAL_STACK, text=text)
        yield Stays(cloud, stack, consumers_of(cloud, stack), address is not None)


def commands(stays: Stays, sample: Sample) -> list[tuple[str, list[str]]]:
    """Suggested commands for a sample event, each after its description. Lines may be wrapped between a command's
    parts, but not within a part.
    """
    at = ["--endpoint-url", stays.cloud.endpoint_url, "--region", REGION]
    options, found = [" ".join(at[:2]), " ".join(at[2:])], list[tuple[str, list[str]]]()
    for each in stays.consumers:
        event = f"-e events/{shlex.quote(re.sub(r' [0-9]+$', '', sample.name))}"
        found.append(
            (f"{each.name} alone, in a container, after `sam build`", [f"sam local invoke {each.name}", event])
        )
        sent = sample.sendable(fifo=each.queue_url.endswith(".fifo"))
        typed = [f"--{_dashed(name)} {_quoted(value)}" for name, value in sent.items() if value]
        queue = f"--queue-url {each.queue_url}"
        found.append(
            (f"the same message through {each.name}'s queue", ["aws sqs send-message", *options, queue, *typed])
        )
    known = [each.name for each in stays.consumers if f"{each.name}Name" in stays.stack.outputs]
    for name in known:
        stack = f"--stack {stays.stack.name}" + (f"/{name}" if len(known) > 1 else "")
        found.append((f"whether {name} has everything it needs", [f"{RECEIVER} doctor", stack, *options]))
        needed = {f"{name.removesuffix('Consumer')}{output}" for output in ("ConsumerDescription", "RecordsTable")}
        if needed <= stays.stack.outputs.keys():
            found.append((f"{name}'s dead letters", [f"{RECEIVER} dlq list", stack, *options]))
    return found


def _dashed(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()


def _quoted(value: object) -> str:
    return shlex.quote(
        value if isinstance(value, str) else json.dumps(value, default=lambda data: data.decode("latin-1"))
    )
