"""The local cloud comes up complete and goes away complete, however its user ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness import cloud as local_cloud
from harness.cloud import running_cloud
from idempotent_receiver.local.server import ServerError
from tests import ctrl_c

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROC = Path("/proc")
on_linux = pytest.mark.skipif(
    not (PROC / "self" / "environ").exists(), reason="finds processes by /proc, as Linux has it"
)

HOLD = """
import sys, time
from harness.cloud import running_cloud
print("starting", flush=True)
with running_cloud() as cloud:
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def nobody_names_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """These are about the cloud that is started here."""
    monkeypatch.delenv("LOCALSTACK_HOST", raising=False)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where all temporary files of this test go; its path in a process's environment is how we find that process."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


def processes_of(folder: Path) -> list[int]:
    """Return the other processes whose environment names the folder."""
    found = []
    for environ in PROC.glob("[0-9]*/environ"):
        try:
            if os.fsencode(folder) in environ.read_bytes() and int(environ.parent.name) != os.getpid():
                found.append(int(environ.parent.name))
        except OSError:
            continue  # it has ended, or is not ours
    return found


def eventually(condition: Callable[[], bool]) -> bool:
    """Say whether the condition came true within a minute: a busy machine starts a cloud slowly."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


def nothing_left(folder: Path) -> bool:
    return eventually(lambda: not processes_of(folder) and not list(folder.iterdir()))


@contextlib.contextmanager
def hold(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a program that starts a cloud and keeps it."""
    with ctrl_c.heeded():
        started = subprocess.Popen(
            [sys.executable, "-c", HOLD],
            cwd=local_cloud.ROOT,
            env={**os.environ, "TMPDIR": str(folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    with started as program:
        try:
            yield program
        finally:
            program.kill()


def read_until(program: subprocess.Popen[str], word: str) -> None:
    assert program.stdout is not None
    assert program.stdout.readline().strip() == word


@on_linux
def test_it_serves_and_then_leaves_nothing(folder: Path) -> None:
    with running_cloud() as cloud:
        url = cloud.client("sqs").create_queue(QueueName="orders")["QueueUrl"]
        cloud.client("sqs").send_message(QueueUrl=url, MessageBody="one")
        (message,) = cloud.client("sqs").receive_message(QueueUrl=url)["Messages"]
        assert message["Body"] == "one"
        assert processes_of(folder)
        assert list(folder.iterdir())
    # No waiting here: leaving the block is what waits.
    assert processes_of(folder) == []
    assert list(folder.iterdir()) == []


@on_linux
def test_for_containers_it_listens_at_one_address_more_and_says_so() -> None:
    with running_cloud(also_at="127.8.0.1") as cloud:
        port = int(cloud.endpoint_url.rpartition(":")[2])
        lines = [line.split() for line in (PROC / "net" / "tcp").read_text().splitlines()[1:]]
        cloud.client("sqs").create_queue(QueueName="orders")
    listening = {fields[1] for fields in lines if fields[3] == "0A" and fields[1].endswith(f":{port:04X}")}
    assert listening == {f"0100007F:{port:04X}", f"0100087F:{port:04X}"}
    assert "127.8.0.1 for containers" in cloud.whose


@on_linux
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_its_user_leaves_nothing(folder: Path, number: signal.Signals) -> None:
    with hold(folder) as program:
        read_until(program, "starting")
        read_until(program, "ready")
        program.send_signal(number)
        assert program.wait(10) != 0
    assert nothing_left(folder)


def test_without_set_up_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_cloud, "MINISTACK", Path("/nonexistent"))
    with pytest.raises(ServerError, match="make setup"), running_cloud():
        pass


@on_linux
def test_no_setting_of_the_caller_gets_through(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    names = ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_ENDPOINT_URL", "HTTPS_PROXY", "PYTHONPATH", "LOCALSTACK_HOSTNAME")
    for name in names:
        monkeypatch.setenv(name, "the-callers-own")
    with running_cloud():
        environments = [(PROC / str(pid) / "environ").read_bytes() for pid in processes_of(folder)]
    assert environments
    assert not [environment for environment in environments if b"the-callers-own" in environment]
