"""`python -m harness.aws.commands`: runs operator commands on a stack, with a role that has only its OperatorPolicy.

STACK names the stack. The last line is one JSON object with each command's verdict. The status is 0 only if no command
was refused, and a dead letter resent with another body took effect.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.aws.role import SPREAD_SECONDS, assumed
from harness.program import run_to_its_end
from harness.run import deployed_client
from harness.workload.driver import until
from harness.workload.stack_client import StackError
from harness.workload.transfers import CURRENCY, Kind, TransferMessage
from idempotent_receiver.operations.cli.terminal import Exit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from harness.workload.report import Report
    from harness.workload.stack_client import StackClient

DEAD_SECONDS = 300.0
"""How soon a permanent failure must be a dead letter, or a redriven message must have run."""
HELD_SECONDS = 120.0
"""How long a command is retried while another session holds the dead letters."""
NOT_CREDENTIALS = {"AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_CREDENTIAL_EXPIRATION", "AWS_SECURITY_TOKEN"}
"""Variables that botocore would use besides or instead of the given credentials."""
PASSED = "passed"


def perform(report: Report) -> int:
    stack = os.environ.get("STACK")
    if not stack:
        raise ValueError("STACK is the name of the stack to operate")
    report.begin("the operator's commands", f"on {stack}, by its OperatorPolicy alone")
    client, verdicts = deployed_client(stack, report), dict[str, str]()
    try:
        with assumed(client.clients, client.stack) as credentials, tempfile.TemporaryDirectory() as folder:
            kept = {name: value for name, value in os.environ.items() if name not in NOT_CREDENTIALS}
            for name, status, said in _commanded(client, kept | credentials, Path(folder)):
                verdicts[name] = PASSED if status == 0 else f"failed: status {status}: {said}"
                report.note(f"receiver {name}: {verdicts[name]}")
    finally:
        sys.stdout.write(json.dumps(verdicts) + "\n")
    return 0 if set(verdicts.values()) == {PASSED} else 1


def _commanded(client: StackClient, environment: Mapping[str, str], folder: Path) -> Iterator[tuple[str, int, str]]:
    """Run every command; yields each one's name, status and last output."""

    def receiver(command: str, *arguments: str) -> tuple[str, int, str]:
        runs = list[subprocess.CompletedProcess[str]]()

        def over() -> bool:
            runs.append(_receiver(*command.split(), *arguments, "--stack", client.stack.name, environment=environment))
            return runs[-1].returncode != Exit.HELD

        until(over, HELD_SECONDS, poll_seconds=10.0)  # SQS takes a while to show what the previous command released
        return command, runs[-1].returncode, " ".join((runs[-1].stderr or runs[-1].stdout).split())

    _await_policy(client, environment)
    prefix = f"operated-{secrets.token_hex(3)}"
    payer, payee = f"{prefix}-payer", f"{prefix}-payee"
    client.open_accounts({payer: 1, payee: 0}, CURRENCY)
    good = TransferMessage(f"{prefix}-good", Kind.GOOD, payer, payee, 1)
    bad = [replace(good, name=f"{prefix}-bad-{place}", garbage="no transfer") for place in range(2)]
    first, second = client.send(bad).values()
    _await("two dead letters", lambda: client.backlog(client.dead_letter_queue).waiting >= len(bad))
    yield receiver("dlq list")
    yield receiver("trace", first)
    yield receiver("stuck", "--yes")
    yield receiver("dlq list", "--bodies", "--out", f"{folder}/letters.jsonl")
    yield receiver("dlq list", "--out", f"{folder}/letters.html")
    yield receiver("dlq archive", "--key", first, "--yes")
    yield receiver("dlq redrive --from-archive --to-dlq", "--key", first, "--yes")
    (folder / "body.json").write_text(good.body)
    yield receiver("dlq resend", "--key", second, "--body", f"{folder}/body.json", "--yes")
    _await("the message that was sent back", lambda: good.name in client.posted([good.name]))
    yield receiver("dlq redrive", "--key", first, "--include-permanent", "--yes")
    _await("one dead letter", lambda: client.backlog(client.dead_letter_queue).waiting >= 1)
    yield receiver("dlq delete", "--all", "--because", "tried", "--yes")
    yield receiver("dlq history")
    yield receiver("pause", "--yes")
    yield receiver("resume", "--yes")
    yield _doctor(client, environment)


def _doctor(client: StackClient, environment: Mapping[str, str]) -> tuple[str, int, str]:
    """Run doctor. Its findings belong to another step; here, nothing may be refused."""
    done = _receiver("doctor", "--stack", client.stack.name, "--json", environment=environment)
    unchecked = [each for each in json.loads(done.stdout or "{}").get("unchecked", ()) if "AccessDenied" in f"{each}"]
    refused = done.returncode not in (0, 1) or bool(unchecked)
    return "doctor", int(refused), f"{unchecked or done.stderr}"


def _receiver(*arguments: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "idempotent_receiver", *arguments]
    return subprocess.run(command, env=dict(environment), capture_output=True, text=True, check=False)


def _await_policy(client: StackClient, environment: Mapping[str, str]) -> None:
    """Wait until the role has its policy's permissions: IAM takes a while to spread them in a region."""
    list_them = ("dlq", "list", "--stack", client.stack.name)
    until(lambda: _receiver(*list_them, environment=environment).returncode == 0, SPREAD_SECONDS, poll_seconds=2.0)


def _await(what: str, over: Callable[[], bool]) -> None:
    if not until(over, DEAD_SECONDS, poll_seconds=1.0):
        raise StackError(f"within {DEAD_SECONDS:.0f} s there was no sign of {what}")


if __name__ == "__main__":
    sys.exit(run_to_its_end(perform))
