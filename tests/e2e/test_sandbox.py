"""`make cloud` stays until it is interrupted, and what it says to type can be typed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver.local.server import free_port
from local.cloud import ACCOUNT, REGION, ROOT
from local.deploy import HOST_BUILD
from local.emulator import running_function
from local.invoke import EVENTS
from local.sandbox import ENVIRONMENT, SAM_ENVIRONMENT
from tests.e2e.deployed import eventually
from tests.e2e.test_cloud import nothing_left, on_linux

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENCE_SECONDS = 120
EXAMPLE = (ROOT / "docs/example.md").read_text()
LAST_LINE = "It stays until you press Ctrl-C"


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
        ["sh", "-c", 'trap "" INT && exec "$0" -m local.sandbox', sys.executable],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder), "N": "20", "PORT": str(port), "LOCALSTACK_HOST": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as program:
        yield program
        program.terminate()
        program.communicate(timeout=PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def typed(program: subprocess.Popen[str]) -> dict[str, str]:
    """The commands that it says to type, by their first words."""
    assert program.stdout is not None
    said, widest = [], 0
    for line in program.stdout:
        said.append(line.strip())
        widest = max(widest, len(line.rstrip()))
        if line.startswith(LAST_LINE):
            break
    assert said[-1].startswith(LAST_LINE), "\n".join(said)
    assert widest <= 80
    joined = "\n".join(said).replace("\\\n", "").splitlines()
    lines = [line.partition("    #")[0] for line in joined if line.startswith(".venv/bin/receiver ")]
    found: dict[str, str] = {}
    for line in lines:
        words = line.removeprefix(".venv/bin/receiver ").split()
        found.setdefault(" ".join(words[: 2 if words[0] == "dlq" else 1]), line)
    return found | {"shows": "\n".join(line for line in lines if " show " in line)}


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


def test_doctor_finds_nothing(typed: dict[str, str]) -> None:
    status, found = ran(typed["doctor"])
    assert (status, found["findings"]) == (0, [])


def test_records_of_each_kind_are_there_to_be_shown(typed: dict[str, str]) -> None:
    shown = [ran(line)[1]["status"] for line in typed["shows"].splitlines()]
    assert shown == ["COMPLETED", "FAILED", "INPROGRESS"]


def test_a_key_is_traced_to_the_ledger(typed: dict[str, str]) -> None:
    status, told = ran(typed["trace"])
    assert (status, told["unread"]) == (0, [])
    texts = [each["text"] for each in told["events"]]
    assert texts[0].startswith("COMPLETED at attempt ")
    first, second = [text.split() for text in texts if text.startswith("entry ")]
    assert (first[0], first[1][-3:], second[1][-3:], first[4], second[4]) == ("entry", "#1:", "#2:", "EUR", "EUR")
    assert int(first[3]) == -int(second[3]) < 0


def test_dead_letters_are_listed_and_what_can_succeed_comes_back(typed: dict[str, str]) -> None:
    _, listed = ran(typed["dlq list"])
    verdicts = [letter["verdict"] for group in listed["groups"] for letter in group["letters"]]
    assert (verdicts.count("MOVE"), verdicts.count("DONE")) == (2, 1)
    assert verdicts.count("PERMANENT") >= 3

    status, told = ran(typed["dlq redrive"], "--yes")

    assert (told["moved"], told["dropped"]) == (2, 1)
    assert status == 1, "what has failed for good is left"
    _, listed = ran(typed["dlq list"])
    assert {letter["verdict"] for group in listed["groups"] for letter in group["letters"]} == {"PERMANENT"}

    status, told = ran(typed["dlq history"])
    assert (status, told["not_confirmed"]) == (0, 0)
    assert sorted((each["verb"], each["outcome"]) for each in told["acts"]) == [
        ("dropped", "done"),
        ("moved", "done"),
        ("moved", "done"),
    ]
    assert {each["operator"] for each in told["acts"]} == {f"arn:aws:iam::{ACCOUNT}:root"}
    assert len({each["plan"] for each in told["acts"]}) == 1


def test_the_claim_of_a_dead_worker_is_found(typed: dict[str, str]) -> None:
    orphan = typed["shows"].splitlines()[-1].split()[2]
    eventually(
        lambda: ran(typed["stuck"], "--yes")[1]["unsettled"],
        lambda unsettled: [each["id"] for each in unsettled] == [orphan],
        what="its lease is over",
    )


# What `sam local` needs.

SAM = ROOT / ".tools" / "sam" / "bin"
NO_ENGINE = {
    **os.environ,
    "DOCKER_HOST": "unix:///nonexistent.sock",
    "SAM_CLI_TELEMETRY": "0",
    "AWS_EC2_METADATA_DISABLED": "true",
}
COMMANDS = [
    ("invoke", "Consumer", "-e", "events/fresh.json"),
    ("start-lambda",),
    ("start-api",),
]

SHOWN = """
import json, sys
from unittest.mock import patch
from samcli.cli.main import cli

def shown(*arguments, **options):
    print(json.dumps([each for each in (*arguments, *options.values()) if isinstance(each, (str, dict))]))

module = "samcli.commands.local." + sys.argv[1].replace("-", "_") + ".cli.do_cli"
with patch(module, shown):
    cli(["local", *sys.argv[1:]])
"""


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_sam_local_as_typed_is_told_where_the_cloud_is(typed: dict[str, str], command: tuple[str, ...]) -> None:
    script = [str(SAM / "python"), "-c", SHOWN, *command]
    done = subprocess.run(script, cwd=ROOT, env=NO_ENGINE, capture_output=True, text=True, timeout=60, check=True)
    options = json.loads(done.stdout.splitlines()[-1])
    assert {"host.docker.internal": "host-gateway"} in options
    assert str(SAM_ENVIRONMENT.relative_to(ROOT)) in options
    assert {"Runtime": "python3.13"} in options, "and no architecture: the template that was built says it"
    assert typed


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_sam_local_as_typed_lacks_nothing_but_a_container_engine(
    typed: dict[str, str], command: tuple[str, ...]
) -> None:
    script = [str(SAM / "sam"), "local", *command]
    done = subprocess.run(script, cwd=ROOT, env=NO_ENGINE, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stderr
    assert "requires a container runtime" in done.stderr
    assert typed


def variables_of(name: str, port: int) -> dict[str, str]:
    """What `sam local` gives a function, the container's name for this machine replaced by our own."""
    told = json.loads(SAM_ENVIRONMENT.read_text())[name]
    assert told["AWS_ENDPOINT_URL"] == f"http://host.docker.internal:{port}"
    credentials = {"AWS_ACCESS_KEY_ID": ACCOUNT, "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": REGION}
    here = {key: value.replace("host.docker.internal", "127.0.0.1") for key, value in told.items()}
    return {**here, **credentials, "AWS_DEFAULT_REGION": REGION, "AWS_SAM_LOCAL": "true"}


@on_linux
def test_with_those_variables_the_consumer_answers_an_event(typed: dict[str, str], port: int) -> None:
    with running_function(code=HOST_BUILD, environment=variables_of("Consumer", port)) as function:
        fresh = function.invoke(json.loads((EVENTS / "fresh.json").read_text()))
        assert fresh == {"batchItemFailures": []}, function.log()
    assert typed


@on_linux
def test_with_those_variables_the_api_takes_in_an_unsigned_request(typed: dict[str, str], port: int) -> None:
    event = json.loads((EVENTS / "http-first.json").read_text().replace("order-1", "unsigned-1"))
    event["requestContext"]["identity"] = {"sourceIp": "127.0.0.1", "userArn": None}  # as `sam local start-api` has it
    environment = variables_of("Api", port)
    with running_function("Api", code=HOST_BUILD, handler="app.api.lambda_handler", environment=environment) as api:
        first, again = api.invoke(event), api.invoke(event)
        assert (first["statusCode"], first["body"]) == (202, again["body"]), api.log()
        assert again["headers"]["Idempotency-Replayed"] == "true"
    deployed = {**environment, "AWS_SAM_LOCAL": ""}
    with running_function("Api", code=HOST_BUILD, handler="app.api.lambda_handler", environment=deployed) as api:
        assert api.invoke(event)["statusCode"] == 400
    assert typed


def test_a_port_that_is_taken_is_named(typed: dict[str, str], port: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "local.sandbox"],
        cwd=ROOT,
        env={**os.environ, "PORT": str(port), "LOCALSTACK_HOST": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert f"PORT={port} cannot be used at 127.0.0.1: Address already in use" in done.stdout
    assert ENVIRONMENT.exists()
    assert SAM_ENVIRONMENT.exists()
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
    assert not SAM_ENVIRONMENT.exists()
    done = subprocess.run(
        [str(SAM / "sam"), "local", *COMMANDS[0]], cwd=ROOT, env=NO_ENGINE, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "Path '.build/cloud.env.json' does not exist" in done.stderr
