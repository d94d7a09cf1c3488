"""A command on a deployment: its function becomes what typer runs."""

import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import wraps
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from idempotent_receiver.operations.account import UsageError
from idempotent_receiver.operations.cli.common_options import Options
from idempotent_receiver.operations.cli.deployment import Deployment
from idempotent_receiver.operations.cli.terminal import Terminal
from idempotent_receiver.operations.dead_letters.history import NotKept


def of_a_deployment(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the common options to a command that takes a `deployment` and a `terminal`.

    Any other parameter that is a dataclass becomes one option per field.
    """
    asked = {
        name: each.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, each in inspect.signature(command).parameters.items()
        if name not in ("deployment", "terminal")
    }
    kinds = {name: each.annotation for name, each in asked.items()}
    made = {name: kind for name, kind in kinds.items() if isinstance(kind, type) and is_dataclass(kind)}
    fields = {name: inspect.signature(kind).parameters for name, kind in made.items()}
    own = [each for name, asks in asked.items() for each in fields.get(name, {name: asks}).values()]
    shared = inspect.signature(Options).parameters

    @wraps(command)
    def run(**given: Any) -> None:
        terminal = Terminal(as_json=given["json"])
        try:
            options = Options(**{name: given.pop(name) for name in shared})
            for name, kind in made.items():
                given[name] = kind(**{each: given.pop(each) for each in fields[name]})
            command(deployment=Deployment(options), terminal=terminal, **given)
        except (UsageError, NotKept, ClientError, BotoCoreError) as error:
            if terminal.as_json and not terminal.answered:
                terminal.answer({"error": str(error)}, "")
            raise

    run.__signature__ = inspect.Signature([*own, *shared.values()])  # type: ignore[attr-defined]  # typer reads it
    run.__annotations__ = {each.name: each.annotation for each in (*own, *shared.values())}
    return run
