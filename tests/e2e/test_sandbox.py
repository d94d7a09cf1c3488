"""`make cloud` stays until it is interrupted, and the commands that it prints work."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from harness.cloud import ACCOUNT, ROOT
from harness.deploy import HOST_BUILD
from harness.emulator import running_function
from harness.invoke import expected_answer, matches
from harness.sandbox import ENVIRONMENT
from idempotent_receiver.local.cloud import PORT
from idempotent_receiver.local.server import free_port
from tests.e2e.deployed import eventually
from tests.e2e.test_cloud import nothing_left, on_linux

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENCE_SECONDS = 120
EXAMPLE = (ROOT / "docs/example.md").read_text()
LAST_LINE = "Press Ctrl-C to stop it"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where its temporary files go."""
    return tmp_path_factory.mktemp("sandbox")


@pytest.fixture(scope="module")
def port() -> int:
    """The port that is asked for."""
    return free_port()


@pytest.fixture(scope="module")
def program(folder: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    """A sandbox, started as a script starts one in the background: Ctrl-C is ignored, unless it says otherwise."""
    with subprocess.Popen(
        ["sh", "-c", 'trap "" INT && exec "$0" -m harness.sandbox', sys.executable],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder), "N": "20", "PORT": str(port), "LOCALSTACK_HOST": "", "WORKFLOW": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as program:
        yield program
        program.terminate()
        program.communicate(timeout=PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def commands(program: subprocess.Popen[str]) -> list[str]:
    """The commands that it says to type, as they stand. None is wider than a terminal of 80 columns."""
    assert program.stdout is not None
    said: list[str] = []
    for line in program.stdout:
        said.append(line)
        if line.startswith(LAST_LINE):
            break
    assert said[-1].startswith(LAST_LINE), "".join(said)
    block, _, rest = "".join(said).partition(f". {ENVIRONMENT.relative_to(ROOT)}\n")[2].partition("\n\n")
    assert rest
    assert [line for line in block.splitlines() if len(line) > 80] == []
    return re.split(r"(?m)^  # .*\n  ", f"{block}\n")[1:]


@pytest.fixture(scope="module")
def typed(commands: list[str]) -> dict[str, str]:
    """Those about the queue's consumer, by their first words."""
    joined = [each.replace("\\\n", "").strip() for each in commands]
    lines = [each for each in joined if each.startswith(".venv/bin/receiver ") and "WORKFLOWS" not in each]
    found: dict[str, str] = {}
    for line in lines:
        words = line.removeprefix(".venv/bin/receiver ").split()
        found.setdefault(" ".join(words[: 2 if words[0] == "dlq" else 1]), line)
    (back,) = (line for line in lines if "--from-archive" in line)
    *traces, receipt = (line for line in lines if " trace " in line)
    return found | {"back": back, "traces": "\n".join(traces), "receipt": receipt}


@pytest.fixture(scope="module")
def workflow(commands: list[str]) -> list[str]:
    """Those about the workflow, in their order."""
    found = [each.strip() for each in commands if "$WORKFLOWS" in each or "$EVERY_MINUTE" in each]
    assert len(found) == 6, commands
    return found


def test_the_documented_commands_work_on_it(typed: dict[str, str]) -> None:
    assert typed
    section = EXAMPLE.partition("\n## Over HTTP\n")[2].partition("\n## ")[0]
    set_up, seven, *_ = re.findall(r"(?ms)^```sh\n(.*?)^```$", section)
    script = ["sh", "-euc", set_up + seven]
    done = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert re.findall(r" (\d{3}) replayed=(\w*)\n", done.stdout) == [("202", "")] * 5 + [("202", "true")] * 2


def ran(line: str, *more: str) -> tuple[int, Any]:
    """Type it into a shell that has sourced the file; its status and its answer as JSON."""
    script = f". {ENVIRONMENT.relative_to(ROOT)} && exec {line} --json {' '.join(more)}"
    done = subprocess.run(["sh", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


def test_what_it_says_to_type_about_the_queue_can_be_typed(typed: dict[str, str]) -> None:
    """And meets a record, a dead letter and a claim of each kind."""
    status, found = ran(typed["doctor"])
    assert (status, found["findings"]) == (0, [])
    traces = typed["traces"].splitlines()
    assert [ran(line)[1]["status"] for line in traces] == ["COMPLETED", "FAILED", "INPROGRESS"]
    status, told = ran(typed["trace"])
    assert (status, told["unread"]) == (0, [])
    assert sum(each["text"].startswith("entry ") for each in told["events"]) == 2

    def verdicts() -> list[str]:
        listed = ran(typed["dlq list"])[1]
        return [letter["verdict"] for group in listed["groups"] for letter in group["letters"]]

    assert Counter(verdicts()) >= Counter(MOVE=2, DONE=1, PERMANENT=3)
    status, told = ran(typed["dlq redrive"], "--yes")
    assert (told["moved"], told["dropped"]) == (2, 1)
    assert status == 1, "what has failed for good is left"
    assert set(verdicts()) == {"PERMANENT"}
    status, told = ran(typed["dlq history"])
    assert (status, told["not_confirmed"]) == (0, 0)
    assert sorted(each["verb"] for each in told["acts"]) == ["dropped", "moved", "moved"]
    archived = ran(typed["dlq archive"], "--yes")[1]["archived"]
    status, told = ran(typed["back"], "--yes")
    assert (status, told["restored"], archived > 0) == (0, archived, True)
    eventually(
        lambda: ran(typed["stuck"], "--yes")[1]["unsettled"],
        lambda unsettled: [each["id"] for each in unsettled] == [traces[-1].split()[2]],
        what="a dead worker's lease is over",
    )


def story(line: str) -> tuple[Any, Counter[str]]:
    """What `receiver trace` tells, and from where. The log of the workflow is not the consumer's."""
    status, told = ran(line)
    assert (status, {each["source"] for each in told["unread"]} - {"log"}) == (0, set())
    return told, Counter(each["source"] for each in told["events"])


def test_a_request_is_traced_from_its_execution_to_the_ledger(typed: dict[str, str], workflow: list[str]) -> None:
    assert story(workflow[0])[1] >= Counter({"execution": 2, "record": 1})
    assert story(typed["receipt"])[1] >= Counter({"app.ledger_trace:entries": 3})


def test_executions_that_were_stopped_have_their_outcomes(workflow: list[str]) -> None:
    told, _ = story(workflow[1])
    texts = [each["text"] for each in told["events"]]
    assert any(text.endswith(" ABORTED: Operator") for text in texts)
    assert any(text.startswith("COMPLETED at attempt ") for text in texts)

    told, _ = story(workflow[2])
    assert (told["status"], told["record"]["error_type"]) == ("FAILED", "ABORTED")


def test_an_orphan_is_found_and_goes_on_when_its_client_asks_again(workflow: list[str]) -> None:
    """Nothing else continues it: the sweeps are off."""
    found = eventually(
        lambda: ran(workflow[3], "--yes"), lambda found: found[1]["unsettled_count"] == 1, what="its lease is over"
    )
    assert (found[0], [each["error_type"] for each in found[1]["workflow"]]) == (0, ["ABORTED"])
    orphan = found[1]["unsettled"][0]["key"].removeprefix("transfers#")  # no stack says that this is a namespace

    def asked() -> tuple[str, Any]:
        script = (
            f". {ENVIRONMENT.relative_to(ROOT)} && {workflow[4]} --silent --show-error --write-out '\n%{{http_code}}'"
        )
        done = subprocess.run(["sh", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
        body, _, status = done.stdout.rpartition("\n")
        return status, json.loads(body)

    status, answer = asked()
    assert (status, answer["location"]) == ("202", f"transfers/{orphan}")
    _, answer = eventually(asked, lambda answer: answer[0] == "200", what="it has its result")
    assert answer["transfer_id"] == "1-late-start_before-0"
    assert ran(workflow[3], "--yes")[1]["unsettled"] == []


# What `sam local` needs.

SAM = ROOT / ".tools" / "sam" / "bin"
TYPED = [
    ("Consumer", "template.yaml", "events/fresh.json"),
    ("Api", "deploy/api.yaml", "events/http-first.json"),
]
RESOLVED = """
import json, sys
from unittest.mock import MagicMock, patch
from samcli.cli.main import cli
from samcli.local.docker.container_client_factory import ContainerClientFactory
from samcli.local.lambdafn.runtime import LambdaRuntime

def show(runtime, function, event, *arguments, extra_hosts, **options):
    print(json.dumps({"variables": function.env_vars.resolve(), "hosts": extra_hosts}))

engine = patch.object(ContainerClientFactory, "create_client", MagicMock())
with engine, patch.object(LambdaRuntime, "invoke", show):
    cli(["local", "invoke", *sys.argv[1:]])
"""
"""`sam local invoke`, as far as its container."""


def variables_of(name: str, template: str, event: str, port: int) -> dict[str, str]:
    """What `sam local invoke` gives a function's container, with its name for this machine replaced by our own."""
    known = {"AWS_ACCESS_KEY_ID": ACCOUNT, "AWS_SECRET_ACCESS_KEY": "test", "SAM_CLI_TELEMETRY": "0"}
    typed = [name, "--template", template, "--config-file", str(ROOT / "samconfig.toml"), "-e", event]
    done = subprocess.run(
        [str(SAM / "python"), "-c", RESOLVED, *typed],
        cwd=ROOT,
        env={**os.environ, **known, "DOCKER_HOST": "unix:///nonexistent.sock", "AWS_EC2_METADATA_DISABLED": "true"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["hosts"] == {"host.docker.internal": "host-gateway"}
    here = {
        key: value.replace(f"host.docker.internal:{PORT}", f"127.0.0.1:{port}")
        for key, value in told["variables"].items()
    }
    assert here["AWS_ENDPOINT_URL"] == f"http://127.0.0.1:{port}"
    return here


@on_linux
@pytest.mark.parametrize("command", TYPED, ids=lambda command: command[0])
def test_sam_local_as_typed_finds_the_cloud_by_what_is_committed(
    typed: dict[str, str], port: int, command: tuple[str, str, str]
) -> None:
    """No file that another command would have had to write names the endpoint, the tables or the queue."""
    name, template, event = command
    variables = variables_of(name, template, event, port)
    handler = variables["AWS_LAMBDA_FUNCTION_HANDLER"]
    with running_function(code=HOST_BUILD, handler=handler, environment=variables) as function:
        answer = function.invoke(json.loads((ROOT / event).read_text()))
        expected = expected_answer(ROOT / event)
        assert matches(answer, expected), function.log()
    assert typed


@on_linux
def test_a_ctrl_c_ends_it_and_leaves_nothing(
    typed: dict[str, str], program: subprocess.Popen[str], folder: Path
) -> None:
    assert ENVIRONMENT.exists()
    os.killpg(program.pid, signal.SIGINT)
    said, _ = program.communicate(timeout=PATIENCE_SECONDS)
    assert "clearing up; it takes up to half a minute\n" in said
    assert program.returncode == 0
    assert nothing_left(folder)
    assert not ENVIRONMENT.exists()
