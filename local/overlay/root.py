"""The composition root of `make run`: it takes the place of app/consumer.py, which is kept as app/shipped.py.

With protection, the shipped handler runs as it was shipped: same store, same settings, same business function. Around
the function the stand-in is told what starts, and around the store's `commit` what ends, and there workers die.
Without, the same function runs in a plain handler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from local.overlay import outside
from local.overlay.faults import Acts, faulty_commits, with_faults

if TYPE_CHECKING:
    from collections.abc import Callable

shipped: Any = import_module("app.shipped")
acts = Acts()


def _protected() -> Callable[[Any, Any], Any]:
    faulty_commits(shipped.store, acts)
    handler: Callable[[Any, Any], Any] = shipped.idempotent_handler(
        with_faults(shipped.lambda_handler.__wrapped__, acts)
    )
    return handler


def _plain() -> Callable[[Any, Any], Any]:
    plain = import_module("local.overlay.plain")
    handler: Callable[[Any, Any], Any] = plain.plain_consumer(shipped.lambda_handler.__wrapped__, acts)
    return handler


_handle = _protected() if outside.settings()["protection"] else _plain()


def lambda_handler(event: Any, context: Any) -> Any:
    """Tell the stand-in what was delivered, and handle it."""
    acts.deliver(event, context)
    return _handle(event, context)
