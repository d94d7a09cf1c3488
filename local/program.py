"""What programs of the local cloud have in common: how they are asked, and how they end."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError, ProfileNotFound

from local.account import WHERE
from local.deploy import DeployError
from local.server import ServerError
from local.stage import StageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType

    from local.console import Terminal

IN_VAIN = 2
INTERRUPTED = 130
ENDING = (signal.SIGINT, signal.SIGTERM)
"""Ctrl-C among them, by name: a shell has what it starts in the background ignore it."""
CLEARING_UP = b"\nclearing up; it takes up to half a minute\n"


def protected(environment: Mapping[str, str]) -> bool:
    """Whether the shipped consumer is wanted, and not the control. Raises ValueError."""
    protection = environment.get("PROTECTION") or "on"
    if protection not in ("on", "off"):
        raise ValueError(f"PROTECTION is on or off; it is {protection!r}")
    return protection == "on"


def whole(environment: Mapping[str, str], name: str, default: int, *, least: int = 0) -> int:
    """A whole number of the environment's. Raises ValueError."""
    text = environment.get(name) or str(default)
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise ValueError(f"{name} is a whole number, at least {least}; it is {text!r}")
    return int(text)


def run_to_its_end(perform: Callable[[], int], terminal: Terminal) -> int:
    """Do it, whatever comes between: a signal ends it like a failure, with everything cleared up. The exit status."""
    for each in ENDING:
        signal.signal(each, _end)
    try:
        return perform()
    except KeyboardInterrupt:
        terminal.failed("stopped, and cleared up")
        return INTERRUPTED
    except (NoRegionError, NoCredentialsError, ProfileNotFound) as error:
        terminal.failed(f"{error} {WHERE}")
        return IN_VAIN
    except (ValueError, ServerError, DeployError, StageError, ClientError, BotoCoreError, OSError) as error:
        terminal.failed(f"{error}" if error.__cause__ is None else f"{error}: {error.__cause__}")
        return IN_VAIN


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    """End by a signal, and say so at once, for the clearing up says nothing; by another, without waiting for it."""
    for each in ENDING:
        signal.signal(each, signal.default_int_handler)
    # Not by sys.stdout: a signal may come while that is being written to, and it refuses to be entered twice.
    with contextlib.suppress(OSError):
        os.write(sys.stderr.fileno(), CLEARING_UP)
    raise KeyboardInterrupt
