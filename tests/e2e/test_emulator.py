"""Lambda's emulator answers for a function whatever that does, and `make invoke` believes the answer alone."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver.local.server import ServerError
from local import container, invoke
from local.cloud import ROOT, running_cloud
from local.deploy import Stack
from local.emulator import running_function
from local.program import INTERRUPTED
from tests import ctrl_c
from tests.e2e.test_cloud import eventually, nothing_left

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.emulator import Function

FUNCTION = """
import os, time

if os.path.exists(os.environ["STUCK"]):
    os.unlink(os.environ["STUCK"])
    time.sleep(60)

def lambda_handler(event, context):
    match event["do"]:
        case "answer":
            return {"colour": os.environ["COLOUR"], "left_ms": context.get_remaining_time_in_millis()}
        case "raise":
            raise LookupError("no such thing")
        case "hang":
            time.sleep(60)
        case "die":
            os._exit(1)
"""

DELIVERIES = 10

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Lambda's emulator is a program for Linux")


@pytest.fixture(scope="module")
def stuck(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where this file is, the next start of the function takes it away and does not come to its end."""
    return tmp_path_factory.mktemp("stuck") / "file"


@pytest.fixture(scope="module")
def function(tmp_path_factory: pytest.TempPathFactory, stuck: Path) -> Iterator[Function]:
    code = tmp_path_factory.mktemp("code")
    (code / "app").mkdir()
    (code / "app" / "__init__.py").write_text("")
    (code / "app" / "consumer.py").write_text(FUNCTION)
    with running_function(code=code, environment={"COLOUR": "blue", "STUCK": str(stuck)}, timeout_seconds=2) as running:
        yield running


def served(function: Function, event: object) -> Any:
    """Its answer to an event that is delivered until the function itself answers.

    A start counts against the time-out, and takes as long as the machine lets it. An event that comes right after one
    that was stopped in its start may meet the emulator's own reset: `Sandbox.Failure`, and the function never saw it.
    """
    for _ in range(DELIVERIES):
        answer = function.invoke(event)
        if not answer.get("errorType", "").startswith("Sandbox."):
            return answer
    pytest.fail(f"{event} never came to the function in {DELIVERIES} deliveries:\n{function.log()}")


def test_it_answers_with_its_own_environment_and_deadline(function: Function) -> None:
    answer = served(function, {"do": "answer"})
    assert answer["colour"] == "blue"
    assert 0 < answer["left_ms"] <= 2_000


def test_an_exception_is_an_answer(function: Function) -> None:
    answer = served(function, {"do": "raise"})
    assert (answer["errorType"], answer["errorMessage"]) == ("LookupError", "no such thing")


def test_a_time_out_is_an_answer_and_the_next_event_is_served(function: Function) -> None:
    answer = function.invoke({"do": "hang"})
    assert (answer["errorType"], answer["errorMessage"]) == ("Sandbox.Timedout", "Task timed out after 2.00 seconds")
    assert served(function, {"do": "answer"})["colour"] == "blue"


def test_an_event_whose_time_went_into_a_start_is_served_when_it_comes_again(function: Function, stuck: Path) -> None:
    """On a busy machine any start may take so long."""
    served(function, {"do": "die"})
    stuck.touch()
    assert function.invoke({"do": "answer"})["errorType"] == "Sandbox.Timedout"
    assert served(function, {"do": "answer"})["colour"] == "blue"
    assert not stuck.exists()


def test_a_crash_is_an_answer_and_the_next_event_is_served(function: Function) -> None:
    assert served(function, {"do": "die"})["errorType"] == "Runtime.ExitError"
    assert served(function, {"do": "answer"})["colour"] == "blue"


def test_its_log_can_be_read(function: Function) -> None:
    served(function, {"do": "answer"})
    assert "START RequestId" in function.log()


def test_without_a_build_it_says_what_to_do(tmp_path: Path) -> None:
    with (
        pytest.raises(ServerError, match="make build"),
        running_function(code=tmp_path, environment={}),
    ):
        pass


@pytest.mark.parametrize(
    ("answer", "status"), [({"batchItemFailures": []}, 0), ({"batchItemFailures": None}, 1), (None, 1)]
)
def test_the_command_fails_on_another_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: object, status: int
) -> None:
    monkeypatch.setattr(invoke, "invoke", lambda _event: answer)
    assert invoke.main([str(invoke.EVENTS / "fresh.json")]) == status
    assert json.loads(capsys.readouterr().out) == answer


def test_a_ctrl_c_ends_the_command_with_a_word_and_leaves_nothing(tmp_path: Path) -> None:
    with ctrl_c.heeded():
        program = subprocess.Popen(
            [sys.executable, "-m", "local.invoke", "events/fresh.json"],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(tmp_path), "LOCALSTACK_HOST": ""},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    assert eventually(lambda: any(tmp_path.glob("local-server-*")))
    os.killpg(program.pid, signal.SIGINT)
    told, why = program.communicate(timeout=60)
    assert (program.returncode, told, why) == (INTERRUPTED, "", "stopped, and cleared up\n")
    assert nothing_left(tmp_path)


def test_the_command_says_what_the_cloud_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cloud that LOCALSTACK_HOST names may have a stack of that name."""
    with running_cloud() as cloud:
        cloud.client("cloudformation").create_stack(
            StackName="receiver",
            TemplateBody='{"Resources": {"Topic": {"Type": "AWS::SNS::Topic"}}}',
        )
        monkeypatch.setenv("LOCALSTACK_HOST", cloud.endpoint_url.partition("//")[2])
        assert invoke.main([str(invoke.EVENTS / "fresh.json")]) == 1
    assert "already exists" in capsys.readouterr().err


def test_the_command_asks_which_event(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke.main(["events/nonexistent.json"]) == 2
    assert "make invoke EVENT=" in capsys.readouterr().err


def as_docker(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    """Have a container engine's client that does this."""
    docker = folder / "docker"
    docker.write_text(f"#!/bin/sh\n{script}\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def test_an_engine_that_does_not_answer_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    as_docker(monkeypatch, tmp_path, "echo 'Cannot connect to the Docker daemon' >&2; exit 1")
    assert container.engine() is None


@pytest.mark.parametrize(
    ("network", "address"),
    [
        ('[{"Subnet": "127.8.0.0/16", "Gateway": "127.8.0.1"}]', "127.8.0.1"),
        ('[{"Subnet": "127.8.0.0/16"}]', "127.8.0.1"),  # as an engine says it that was never started before
        ('[{"Subnet": "fd00::/80", "Gateway": "fd00::1"}, {"Subnet": "127.8.0.0/16"}]', "127.8.0.1"),
        ('[{"Subnet": "192.0.2.0/24", "Gateway": "192.0.2.1"}]', "127.0.0.1"),  # in a virtual machine: not ours
        ("null", "127.0.0.1"),
    ],
)
def test_containers_find_us_at_their_networks_gateway_if_that_is_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, network: str, address: str
) -> None:
    as_docker(monkeypatch, tmp_path, f"echo '{network}'")
    assert container.engine() == address


@pytest.mark.parametrize("event", ["fresh", "fifo"])
def test_where_the_emulator_does_not_run_the_cloud_itself_does(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], event: str
) -> None:
    monkeypatch.setattr(invoke, "EMULATED", False)
    monkeypatch.setattr(invoke, "running_function", None)
    status = invoke.main([str(invoke.EVENTS / f"{event}.json")])
    assert status == 0, capfd.readouterr()


def test_what_is_given_goes_into_the_table_of_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A table's name in the template has a capital for each word, and a file's has lines between them."""
    (tmp_path / "order_lines.json").write_text('[{"id": "line-1"}]')
    (tmp_path / "accounts.json").write_text('[{"id": "alice"}]')
    monkeypatch.setattr(invoke, "GIVEN", tmp_path)
    stack = Stack(name="shop", outputs={}, resources={"OrderLines": "shop-OrderLines-1", "Accounts": "shop-Accounts-1"})
    with running_cloud() as cloud:
        dynamodb = cloud.client("dynamodb")
        for table in stack.resources.values():
            dynamodb.create_table(
                TableName=table,
                BillingMode="PAY_PER_REQUEST",
                AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
                KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            )
        invoke.put_given(cloud, stack)
        found = {table: dynamodb.scan(TableName=table)["Items"] for table in stack.resources.values()}
    assert found == {"shop-OrderLines-1": [{"id": {"S": "line-1"}}], "shop-Accounts-1": [{"id": {"S": "alice"}}]}


@pytest.mark.parametrize(
    ("event", "told"),
    [
        ("fresh", "3 acknowledged: 3 completed."),
        ("bad-body", r"-0{11}2 (dead-lettered|failed for good): the body is not a Transfer: amount: int_type"),
        ("fifo", "-0{11}3 failed for good: account alice is unknown or cannot pay 999999999 USD"),
        ("fifo", "-0{11}4 to be tried again: it was not run"),
    ],
)
def test_what_became_of_each_message_is_told(capfd: pytest.CaptureFixture[str], event: str, told: str) -> None:
    invoke.main([str(invoke.EVENTS / f"{event}.json")])
    assert re.search(told, capfd.readouterr().err)
