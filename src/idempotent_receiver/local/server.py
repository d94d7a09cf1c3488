"""Runs a server for a `with` block: on a loopback port, and only as long as the calling process runs.

A supervisor (supervisor.py) owns the server's processes and temporary folder, and outlives this process if necessary.
"""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

SUPERVISOR = Path(__file__).with_name("supervisor.py")

START_SECONDS = 30.0
STOP_SECONDS = 180.0  # on a busy disk, removing the functions' unpacked code takes a while
START_POLL_SECONDS = 0.02
START_ATTEMPTS = 3  # another program may take the port between our choosing and using it


class ServerError(Exception):
    """The server could not be started or cleaned up, or stopped unexpectedly; the message says why."""


class Program(Protocol):
    """A program to run, on a port chosen later."""

    def command(self, port: int) -> Sequence[str]:
        """Return the command line that serves on this port of 127.0.0.1."""

    def environment(self, port: int) -> Mapping[str, str]:
        """Return the program's environment, in addition to `PATH` and a private `HOME` and `TMPDIR`."""

    def ready(self, port: int) -> bool:
        """Whether the listener on this port responds as the program does once it is ready."""


class Server:
    """A program that runs under its supervisor."""

    def __init__(self, program: Program, port: int, folder: Path) -> None:
        self.port = port
        self._program = program
        self._folder: Path | None = None  # the supervisor prints it
        self._supervisor = subprocess.Popen(
            # -I and -S: the supervisor needs only the standard library, and starts in 20 ms without site packages.
            [sys.executable, "-I", "-S", str(SUPERVISOR), *program.command(port)],
            cwd=folder,
            # The caller's AWS settings, proxies and Python paths are not passed on.
            env={
                **{name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ},
                **program.environment(port),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C in a terminal reaches only this process, which ends the supervisor
        )

    @property
    def alive(self) -> bool:
        """Whether the server is still running: false after `close`, and after a crash."""
        return self._supervisor.poll() is None

    def await_ready(self) -> None:
        """Return once the server responds; raise `ServerError` if it exits or takes too long."""
        deadline = time.monotonic() + START_SECONDS
        # `alive` last: another program on the port may look ready while our own server fails to bind.
        while not (self._program.ready(self.port) and self.alive):
            if not self.alive:
                assert self._supervisor.stderr is not None
                last_words = self._supervisor.stderr.read().strip() or "it printed nothing"
                raise ServerError(f"the server exited during startup: {last_words}")
            if time.monotonic() > deadline:
                raise ServerError(f"the server was not ready after {START_SECONDS:.0f} s")
            time.sleep(START_POLL_SECONDS)

    def log(self) -> str:
        """Return all the server's output so far; call this only while the server runs."""
        if self._folder is None:
            assert self._supervisor.stdout is not None
            self._folder = Path(self._supervisor.stdout.readline().strip())
        return (self._folder / "server.log").read_text(errors="replace")

    def close(self) -> None:
        """End the server and everything it started, and wait for the cleanup.

        A second Ctrl-C ends the wait, not the cleanup.
        """
        assert self._supervisor.stdin is not None
        assert self._supervisor.stdout is not None
        assert self._supervisor.stderr is not None
        with contextlib.suppress(BrokenPipeError), self._supervisor.stdin as pipe:
            # Write, rather than only close: a forked process may still hold the pipe open.
            pipe.write("\n")
        try:
            self._supervisor.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise ServerError(
                f"the server was not cleaned up within {STOP_SECONDS:.0f} s; process {self._supervisor.pid} continues"
            ) from None
        finally:
            self._supervisor.stdout.close()
            self._supervisor.stderr.close()


@contextlib.contextmanager
def running(program: Program, *, folder: Path, port: int | None = None) -> Iterator[Server]:
    """Run the program in `folder`, on `port` or a free port; when the block ends, remove its processes and files.

    If this process is killed or interrupted before it can clean up, the supervisor still does.
    """
    with contextlib.ExitStack() as cleanup:
        for left in reversed(range(START_ATTEMPTS)):
            server = cleanup.enter_context(contextlib.closing(Server(program, port or free_port(), folder)))
            try:
                server.await_ready()
            except ServerError:
                if not left:
                    raise
            else:
                yield server
                return


def free_port() -> int:
    """Return a port on 127.0.0.1 that nothing is currently listening on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
