"""What the local cloud's programs share: their options, and how they end."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError, ProfileNotFound

from harness.caller import REMEDY
from harness.workload.report import Report
from harness.workload.stack_client import StackError
from idempotent_receiver.local.deployment import DeployError
from idempotent_receiver.local.server import ServerError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType

IN_VAIN = 2
INTERRUPTED = 130
ENDING = (signal.SIGINT, signal.SIGTERM)
"""Includes Ctrl-C by name, because a shell makes its background jobs ignore it."""
REFUSED = {"ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "UnrecognizedClientException"}
"""AWS's errors for expired credentials."""
CLEARING_UP = b"\nclearing up; it takes up to half a minute\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    number: int
    seed: int
    protected: bool
    stack: str | None


def options_of(environment: Mapping[str, str], *, number: int = 500) -> Options:
    """Read N, SEED, PROTECTION and STACK. Raises ValueError for invalid values."""
    protection = environment.get("PROTECTION") or "on"
    if protection not in ("on", "off"):
        raise ValueError(f"PROTECTION must be on or off; it is {protection!r}")
    options = Options(
        number=whole(environment, "N", number),
        seed=whole(environment, "SEED", 1),
        protected=protection == "on",
        stack=environment.get("STACK") or None,
    )
    if options.stack is not None and not options.protected:
        raise ValueError("PROTECTION=off replaces the handler, which is only possible on the local cloud: unset STACK")
    return options


def whole(environment: Mapping[str, str], name: str, default: int, *, least: int = 0) -> int:
    """A whole number from the environment. Raises ValueError."""
    text = environment.get(name) or str(default)
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise ValueError(f"{name} must be a whole number of at least {least}; it is {text!r}")
    return int(text)


class StoppedTwice(KeyboardInterrupt):
    """A second signal, during the cleanup after the first."""


def run_to_its_end(perform: Callable[[Report], int]) -> int:
    """Run the program; a signal ends it like a failure, with everything cleaned up. Returns the exit status."""
    report = Report()
    for each in ENDING:
        signal.signal(each, _end)
    try:
        return perform(report)
    except StoppedTwice:
        report.failed("stopped during cleanup: resources that it created may remain")
        return INTERRUPTED
    except KeyboardInterrupt:
        report.failed("stopped and cleaned up")
        return INTERRUPTED
    except (NoRegionError, NoCredentialsError, ProfileNotFound) as error:
        report.failed(f"{str(error).rstrip('.')}. {REMEDY}")
        return IN_VAIN
    except (ValueError, ServerError, DeployError, StackError, ClientError, BotoCoreError, OSError) as error:
        because = "" if error.__cause__ is None else f": {error.__cause__}"
        refused = isinstance(error, ClientError) and error.response["Error"]["Code"] in REFUSED
        report.failed(f"{error}{because}{f' {REMEDY}' if refused else ''}")
        return IN_VAIN


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    """End on a signal, and say so at once, because cleanup is silent; a second signal ends without waiting."""
    for each in ENDING:
        signal.signal(each, _give_up)
    # Not sys.stdout: a signal may arrive during a write to it, and it is not reentrant.
    with contextlib.suppress(OSError):
        os.write(sys.stderr.fileno(), CLEARING_UP)
    raise KeyboardInterrupt


def _give_up(_number: int, _frame: FrameType | None) -> NoReturn:
    raise StoppedTwice
