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

from idempotent_receiver.local.server import ServerError
from local import cloud as local_cloud
from local.cloud import Ministack, running_cloud
from tests import ctrl_c

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROC = Path("/proc")
on_linux = pytest.mark.skipif(
    not (PROC / "self" / "environ").exists(), reason="finds processes by /proc, as Linux has it"
)

HOLD = """
import sys, time
from local.cloud import running_cloud
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
    """Say whether the condition came true within ten seconds."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


def nothing_left(folder: Path) -> bool:
    return eventually(lambda: not processes_of(folder) and not list(folder.iterdir()))


def command_line(pid: int) -> str:
    return (PROC / str(pid) / "cmdline").read_text().replace("\0", " ")


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
def test_it_listens_on_loopback_only() -> None:
    with running_cloud() as cloud:
        port = int(cloud.endpoint_url.rpartition(":")[2])
        sockets = [
            line.split() for name in ("tcp", "tcp6") for line in (PROC / "net" / name).read_text().splitlines()[1:]
        ]
    listening = [fields[1] for fields in sockets if fields[3] == "0A" and fields[1].endswith(f":{port:04X}")]
    assert listening == [f"0100007F:{port:04X}"]


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
def test_an_exception_in_the_block_leaves_nothing(folder: Path) -> None:
    with pytest.raises(ZeroDivisionError), running_cloud():
        raise ZeroDivisionError
    assert processes_of(folder) == []
    assert list(folder.iterdir()) == []


@on_linux
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_its_user_leaves_nothing(folder: Path, number: signal.Signals) -> None:
    with hold(folder) as program:
        read_until(program, "starting")
        read_until(program, "ready")
        program.send_signal(number)
        assert program.wait(10) != 0
    assert nothing_left(folder)


@on_linux
@pytest.mark.parametrize("delay_ms", [0, 5, 10, 20, 40, 80, 160, 240])
def test_a_ctrl_c_while_it_starts_leaves_nothing(folder: Path, delay_ms: int) -> None:
    with hold(folder) as program:
        read_until(program, "starting")
        time.sleep(delay_ms / 1000)
        program.send_signal(signal.SIGINT)
        assert program.wait(10) != 0
    assert nothing_left(folder)


@on_linux
def test_a_ctrl_c_is_heeded_where_the_tests_run_in_the_background(folder: Path) -> None:
    """Of a script, or by `nohup`: there they ignore it, and what they start would too."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with hold(folder) as program:
            read_until(program, "starting")
            program.send_signal(signal.SIGINT)
            assert program.wait(10) != 0
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert nothing_left(folder)


@on_linux
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # it forks, beside threads
def test_a_child_of_its_user_does_not_keep_it_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("idempotent_receiver.local.server.STOP_SECONDS", 30.0)
    with contextlib.ExitStack() as after:
        with running_cloud():
            child = os.fork()  # holds all that we hold, the supervisor's pipe too
            if child == 0:
                time.sleep(60)
                os._exit(0)
            after.callback(os.waitpid, child, 0)
            after.callback(os.kill, child, signal.SIGKILL)
        assert not list(folder.iterdir())


@on_linux
def test_a_server_killed_outright_leaves_nothing(folder: Path) -> None:
    with hold(folder) as program:
        read_until(program, "starting")
        read_until(program, "ready")
        (server,) = [pid for pid in processes_of(folder) if command_line(pid).startswith(str(local_cloud.MINISTACK))]
        os.kill(server, signal.SIGKILL)
        assert eventually(lambda: not list(folder.iterdir()))
    assert nothing_left(folder)


def test_a_server_that_cannot_start_says_why(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ministack, "command", lambda _self, _port: [sys.executable, "-I", "-m", "ministack"])
    with pytest.raises(ServerError, match="No module named ministack"), running_cloud():
        pass
    assert list(folder.iterdir()) == []


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
