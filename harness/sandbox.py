"""`make cloud`: the application on a local cloud that stays, after a workload, to try commands on.

Settings come from the environment: N and SEED, PORT, REQUEST_KEY, which is the API's parameter RequestKey, and
WORKFLOW=1, for the workflow next to it (workflow_sandbox.py). It is set up like `make run`, and runs its workload
without kills. Its port is fixed, and its tables and queues are named by their logical ids, so that `sam local` finds
them. Then it adds what the workload does not leave behind: dead letters that can succeed, one that is done, the claim
of a dead worker on a message that is never delivered again, and the items that `events/` needs. It ends by Ctrl-C or
SIGTERM, and leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import textwrap
import time
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from harness.cloud import LOOPBACK, NAMED_BY, ROOT, in_containers
from harness.invoke import put_given
from harness.program import options_of, run_to_its_end, whole
from harness.redelivery import LedgerTrigger, Redeliveries, ServiceTrigger
from harness.run import send
from harness.workflow_run import NEEDS_PROCESSES
from harness.workflow_sandbox import Left, workflow_left
from harness.workload.deployment import deployed
from harness.workload.driver import LOCAL
from harness.workload.fake_service import FakeService
from harness.workload.stack_client import StackError
from harness.workload.transfers import CURRENCY, DEATHS, Kind, TransferMessage, generate
from idempotent_receiver.local.cloud import PORT
from idempotent_receiver.local.container import engine
from idempotent_receiver.local.server import ServerError
from idempotent_receiver.sqs.dead_letter import Stamp
from idempotent_receiver.transaction.outbox import STAMP

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from harness.cloud import Cloud
    from harness.program import Options
    from harness.workload.report import Report
    from harness.workload.stack_client import StackClient

STACK = "transfers"
ENVIRONMENT = ROOT / ".build" / "cloud.env"
"""A file for shells that work on this cloud to source. It exists as long as the cloud does."""

NUMBER = 50
POLL_SECONDS = 0.2
PAYER, PAYEE = "erin", "frank"  # events/ has its own accounts
HIGHEST_PORT = 65_535


def sandbox(options: Options, report: Report, port: int | None = None, *, workflow: bool = False) -> None:
    """Set up everything, print what to type, and stay until interrupted."""
    address, service = engine(), FakeService()
    api, also_at = {"RequestKey": os.environ.get("REQUEST_KEY") or "header"}, address or LOOPBACK
    with deployed(service, report, name=STACK, api=api, named=True, port=port, also_at=also_at) as (cloud, client):
        commands = _leave(options, client, service, report)
        put_given(cloud, client.stack)
        assert client.api is not None, "the template creates one by default"
        tables = {"ENTRIES_TABLE": client.stack.resources["Entries"]}  # for app.ledger_trace
        left: contextlib.AbstractContextManager[Left] = contextlib.nullcontext(({}, []))
        if workflow:
            left = workflow_left(cloud, client, service, partial(_late, options), report)
        with left as (named, more):
            lines = exports({**cloud.environment, "API_URL": client.api.url, **tables, **named})
            with _written(ENVIRONMENT, lines), contextlib.suppress(KeyboardInterrupt):
                say(lines, [*commands, *more], address is not None)
                _stay(cloud)


def _leave(options: Options, client: StackClient, service: FakeService, report: Report) -> list[tuple[str, str]]:
    """Leave something for every command to show; returns what to type, and what it shows."""
    workload = generate(options.seed, options.number, without=DEATHS)  # otherwise one waits for their leases
    service.ledger = client.posted
    trigger = LedgerTrigger(client) if in_containers() else ServiceTrigger(service)
    sent, gave_up = send(client, workload, Redeliveries(client, workload, trigger), report, LOCAL)
    if gave_up is not None:
        raise StackError(f"the workload did not finish: {gave_up}")
    said = report.step("leftovers")
    client.open_accounts({PAYER: 100_000, PAYEE: 0}, CURRENCY)
    orphan = None if in_containers() else abandon(client, _late(options, Kind.KILLED_BEFORE, 0))
    for place in range(3):
        let_die(client, _late(options, Kind.GOOD, place), handled=place == 0)
    said("three more dead letters, one of which is done" + ("; and a claim whose worker is dead" if orphan else ""))
    completed, failed = (sent[workload.of_kind(kind)[0]] for kind in (Kind.GOOD, Kind.OVERDRAWN))
    on = f"--stack {STACK}"
    typed = [
        (f"doctor {on}", "the stack's requirements, checked"),
        (f"dlq list {on}", "the dead letters, by cause"),
        (f"dlq redrive {on}", "the plan; after you confirm, messages that can succeed go back to the queue"),
        (f"dlq archive {on} --error-type InvalidBody", "the others go to the stack's archive"),
        (f"dlq redrive {on} --from-archive --to-dlq", "and back to the dead-letter queue"),
        (f"trace {completed} \\\n    {on} --hook app.ledger_trace:entries", "everything known about a completed key"),
        (f"trace {failed} \\\n    {on}", "about one that has failed, and why"),
        *([(f"trace {orphan} \\\n    {on}", "about one whose worker is dead")] if orphan else []),
        (f"dlq history {on}", "what you have done with dead letters"),
        (f"stuck {on}", "claims of dead workers, once their leases have ended"),
    ]
    return [(f".venv/bin/receiver {command}", meaning) for command, meaning in typed]


def _late(options: Options, kind: Kind, place: int) -> TransferMessage:
    return TransferMessage(f"{options.seed}-late-{kind.name.lower()}-{place}", kind, PAYER, PAYEE, 1)


def abandon(client: StackClient, message: TransferMessage) -> str:
    """Deliver a message that is in no queue and kills the function; returns the key of the claim it leaves."""
    record = client.record_of(message, str(uuid4()))
    try:
        client.invoke(record)
    except StackError:
        return str(record["messageId"])
    raise StackError(f"the worker should have died of {message.name}, but did not")


def let_die(client: StackClient, message: TransferMessage, *, handled: bool = False) -> None:
    """Create a dead letter whose record does not explain it, or one whose acknowledgement was lost."""
    id = str(uuid4())
    if handled:
        client.invoke(client.record_of(message, id))
    stamp = Stamp(key=id, original_id=id, queue=client.stack.outputs["QueueArn"]).to_json()
    client.sqs.send_message(
        QueueUrl=client.dead_letter_queue,
        MessageBody=message.body,
        MessageAttributes={STAMP: {"DataType": "String", "StringValue": stamp}},
    )


def exports(variables: Mapping[str, str]) -> str:
    """The variables with which a shell works on this cloud, and on no account of its user's."""
    unset = "unset AWS_PROFILE AWS_DEFAULT_PROFILE AWS_SESSION_TOKEN\n"
    return unset + "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())


def say(lines: str, commands: Sequence[tuple[str, str]], contained: bool) -> None:
    """Print what to type, in 80 columns. Bypasses the console, because text to copy must not be wrapped."""
    path = ENVIRONMENT.relative_to(ROOT)
    typed = "\n".join(f"  # {meaning}\n  {command}" for command, meaning in commands)
    missing = "" if contained else "\nNo container engine answers: start one, then run `make cloud` again."
    sys.stdout.write(f"""
The stack is called {STACK}. In another terminal, in this folder:

  . {path}
{typed}

{path} says:

{textwrap.indent(lines, "  ")}
And curl, as in docs/example.md under "Over HTTP". The function by itself, in a
container, with .tools/sam/bin/sam if `sam` is not installed:

  sam build
  sam local invoke Consumer -e events/fresh.json
{missing}
Press Ctrl-C to stop it. Nothing is left behind.
""")
    sys.stdout.flush()


def _stay(cloud: Cloud) -> None:
    while cloud.alive:
        time.sleep(POLL_SECONDS)
    raise ServerError("the local cloud stopped unexpectedly")


@contextlib.contextmanager
def _written(path: Path, text: str) -> Iterator[None]:
    """Keep this file for the block, unless another sandbox replaces it."""
    path.write_text(text)
    try:
        yield
    finally:
        if path.exists() and path.read_text() == text:
            path.unlink()


def perform(report: Report) -> int:
    options = options_of({name: os.environ.get(name, "") for name in ("N", "SEED")}, number=NUMBER)
    port = whole(os.environ, "PORT", 0 if os.environ.get(NAMED_BY) else PORT)
    if port > HIGHEST_PORT:
        raise ValueError(f"PORT must be at most {HIGHEST_PORT}; it is {port}")
    report.begin(f"{options.number} transfers, seed {options.seed}", "from the queue to the ledger, and then it stays")
    workflow = bool(os.environ.get("WORKFLOW"))
    if workflow and in_containers():
        raise ValueError(NEEDS_PROCESSES)
    sandbox(options, report, port or None, workflow=workflow)
    return 0


if __name__ == "__main__":
    sys.exit(run_to_its_end(perform))
