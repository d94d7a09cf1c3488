"""From a Lambda handler to the consumer in it, below other decorators."""

import inspect
from collections.abc import Iterable
from contextlib import suppress
from types import ModuleType
from typing import Any

from idempotent_receiver.sqs.binding import bind
from idempotent_receiver.sqs.consumer import Consumer


def consumer_inside(handler: Any) -> Consumer | None:
    """The consumer whose function `handler` is, or contains below decorators that set `__wrapped__`; None if there is
    no such consumer.
    """
    with suppress(ValueError):  # `__wrapped__` leads back to where it came from
        return _own(inspect.unwrap(handler, stop=lambda each: _own(each) is not None))
    return None


def names_in(module: ModuleType) -> list[str]:
    """The names that a module has for consumers."""
    # Only functions: anything else in a module may do anything when asked for an attribute.
    functions = [(name, value) for name, value in vars(module).items() if inspect.isfunction(value)]
    return [name for name, value in functions if consumer_inside(value) is not None]


def remedy(handler: Any, modules: Iterable[ModuleType]) -> str:
    """What to do about a handler without a consumer inside: decorate it if it takes a message; else, use a consumer
    that its modules have.
    """
    names = sorted({name for module in modules for name in names_in(module)})
    try:
        bind(handler)
    except (TypeError, ValueError, AttributeError):  # a dispatcher or, without `__wrapped__`, a decorator
        if names:
            return f"use a consumer that its module has: {', '.join(names)}"
    return (
        "decorate it with @sqs_consumer(store); if an outer decorator without functools.wraps hides the consumer, "
        "give the consumer a name of its own, consumer = sqs_consumer(store)(function), and use that"
    )


def _own(function: Any) -> Consumer | None:
    """The consumer that names this very function as its own: `functools.wraps` copies attributes to others."""
    consumer = getattr(function, "_consumer", None)
    return consumer if isinstance(consumer, Consumer) and consumer.lambda_handler is function else None
