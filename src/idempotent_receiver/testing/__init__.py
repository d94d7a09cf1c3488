"""Test tools: the in-memory store, events, fakes, and `explore`. Not for deployment.

`explore` needs the `[testing]` extra; the rest needs only the library.
"""

import typing

from idempotent_receiver.testing.calls import Call, Calls
from idempotent_receiver.testing.events import lambda_context, sqs_event
from idempotent_receiver.testing.expression_grammar import ExpressionError
from idempotent_receiver.testing.memory import MemoryStore, Table

if typing.TYPE_CHECKING:
    from idempotent_receiver.testing.exploration import explore
    from idempotent_receiver.testing.report import Exploration

__all__ = [
    "Call",
    "Calls",
    "Exploration",
    "ExpressionError",
    "MemoryStore",
    "Table",
    "explore",
    "lambda_context",
    "sqs_event",
]


def __getattr__(name: str) -> typing.Any:
    if name not in ("Exploration", "explore"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from idempotent_receiver.testing import exploration  # noqa: PLC0415  # needs the extra
    except ModuleNotFoundError as error:
        if error.name != "greenlet":
            raise
        raise ImportError(f"{name} needs the [testing] extra: pip install 'idempotent-receiver[testing]'") from None
    return getattr(exploration, name)
