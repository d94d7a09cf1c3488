"""Keeps one server running until the parent process writes to standard input, closes it or dies, then cleans up.

Run it as its own program: `python supervisor.py COMMAND...`. Its parent may be interrupted at any instruction, or
killed without a chance to clean up; in every case, the operating system closes the pipe. This process, which Ctrl-C
does not reach, then ends the server and everything it started, and removes the folder whose path it printed at
startup. Standard library only.
"""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

TERMINATION_GRACE_SECONDS = 2.0
PARENT_POLL_SECONDS = 0.05
REMOVAL_ATTEMPTS = 40
LAST_WORDS_BYTES = 4_000


def keep(command: Sequence[str]) -> int:
    """Run the server until standard input has data or is closed. Returns 0, or 1 if the server exited first."""
    folder = Path(tempfile.mkdtemp(prefix="local-server-"))
    try:
        print(folder, flush=True)
        log_path = folder / "server.log"
        with log_path.open("wb") as log:
            server = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "HOME": str(folder), "TMPDIR": str(folder)},
                start_new_session=True,  # so that killing its group also ends everything it started, but not us
            )
        try:
            if _ended_before_asked(server):
                sys.stderr.write(log_path.read_text(errors="replace")[-LAST_WORDS_BYTES:])
                return 1
            return 0
        finally:
            _end_group(server)
    finally:
        _remove(folder)


def _ended_before_asked(server: subprocess.Popen[bytes]) -> bool:
    while server.poll() is None:
        readable, _, _ = select.select([sys.stdin], [], [], PARENT_POLL_SECONDS)
        if readable:  # data or end of file: either means that the server is no longer needed
            return False
    return True


def _end_group(server: subprocess.Popen[bytes]) -> None:
    _signal_group(server.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(TERMINATION_GRACE_SECONDS)
    # Processes that the server started hold no state worth a grace period, and must not survive if they hang.
    _signal_group(server.pid, signal.SIGKILL)
    server.wait()


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def _remove(folder: Path) -> None:
    # A killed process may take a moment to die, and may write until then.
    for _ in range(REMOVAL_ATTEMPTS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(PARENT_POLL_SECONDS)


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    # A second signal must not interrupt the cleanup that the first one started.
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


def main() -> int:
    """Run the server named on the command line; return the exit status."""
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, _leave)
    return keep(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
