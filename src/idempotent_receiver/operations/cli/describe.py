"""`receiver describe`, and the value of `--consumer`: a file with its output, or a handler in the user's code."""

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
    """Print a consumer's description as one JSON document.

    The command imports your code from the current folder. Put the document in the stack output ConsumerDescription, or
    in a file for --consumer. If the key or payload is your own callable, the document holds only its name.
    """
    document = imported(handler, "HANDLER").document()
    in_code = [name for name, value in document.items() if isinstance(value, dict) and "callable" in value]
    if in_code:
        names = " and ".join(in_code)
        Terminal().note(f"The document has only a name for {names}: pass --consumer {handler} to other commands")
    sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")


def description_of(given: str) -> Description:
    """The description that --consumer names. Raises UsageError if it is neither a document nor a handler."""
    if HANDLER_ARGUMENT.fullmatch(given) and not Path(given).exists():
        return imported(given, "--consumer")
    try:
        return description_in(Path(given).read_text("utf-8"))
    except FileNotFoundError:
        wanted = "give a file written by `receiver describe`, or the handler as module:function"
        raise UsageError(f"--consumer {given}: no such file; {wanted}") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"--consumer {given}: {why}; create it again with `receiver describe`") from None


def imported(handler: str, option: str) -> Description:
    """The description of a decorated handler. Raises UsageError, naming the option, if it cannot be loaded."""
    Terminal().note(f"{option} {handler}: this imports your code.")
    try:
        with redirect_stdout(sys.stderr):  # Output of the imported module must not mix with the answer.
            return Description.of(loaded(handler))
    except (TypeError, ValueError) as error:
        raise UsageError(f"{option}: {error}") from None
