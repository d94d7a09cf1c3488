"""`receiver describe`, and what `--consumer` means: a file that it printed, or a handler in the user's code."""

import json
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from idempotent_receiver.operations.account import UsageError
from idempotent_receiver.operations.cli.terminal import Terminal
from idempotent_receiver.operations.description import Description, description_in
from idempotent_receiver.worker.loading import loaded

HANDLER_ARGUMENT = re.compile(r"[\w.]+:\w+")


def describe(handler: Annotated[str, typer.Argument(help="The decorated handler, as module:function.")]) -> None:
    """Print what a consumer is, as one JSON document.

    It imports your code from the current folder. The document goes into the stack's output ConsumerDescription, or into
    a file for --consumer. A key or payload that is a callable of yours is only named in it.
    """
    document = imported(handler, "HANDLER").document()
    in_code = [name for name, value in document.items() if isinstance(value, dict) and "callable" in value]
    if in_code:
        Terminal().note(f"Its {' and '.join(in_code)} can only be named here: give commands --consumer {handler}")
    sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")


def description_of(given: str) -> Description:
    """What --consumer says that a consumer is. Raises UsageError for what is neither a document nor a handler."""
    if HANDLER_ARGUMENT.fullmatch(given) and not Path(given).exists():
        return imported(given, "--consumer")
    try:
        return description_in(Path(given).read_text("utf-8"))
    except FileNotFoundError:
        wanted = "name a file that `receiver describe` printed, or the handler as module:function"
        raise UsageError(f"--consumer {given}: there is no such file; {wanted}") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"--consumer {given}: {why}; print it again by `receiver describe`") from None


def imported(handler: str, option: str) -> Description:
    """What a decorated handler is. Raises UsageError, by the option that names it, if there is none."""
    Terminal().note(f"{option} {handler}: this imports your code.")
    try:
        with redirect_stdout(sys.stderr):  # what a module prints is no part of the answer
            return Description.of(loaded(handler))
    except (TypeError, ValueError) as error:
        raise UsageError(f"{option}: {error}") from None
