"""The wiring of the workflow's steps. It replaces app/steps/wiring.py, which is kept as shipped_wiring.py.

Processes die around the write that ends a step. Without protection that write is sent unchanged and no record is kept.
The ledger still refuses to post a leg twice; nothing else protects the money from a second run.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from harness.overlay import plain, service
from idempotent_receiver import Transaction

if TYPE_CHECKING:
    from collections.abc import Callable

shipped: Any = import_module("app.steps.shipped_wiring")
globals().update({name: value for name, value in vars(shipped).items() if not name.startswith("__")})


def _with_deaths(write: Any, changed: Callable[..., Any]) -> Any:
    """A write of the store, with deaths around the one that completes a step."""

    def faulty(*arguments: Any) -> Any:
        record = changed(*arguments).new
        namespace, _, transfer = record.id.partition("#")
        if record.status != "COMPLETED":
            return write(*arguments)
        step = namespace.rpartition(".")[2]
        service.reach(transfer, f"{step}.before")
        written = write(*arguments)
        service.reach(transfer, f"{step}.after")
        return written

    return faulty


def plain_step(name: str) -> Callable[[Any], Any]:
    """Replaces `step`: sends the function's transaction unchanged."""

    def wrap(function: Any) -> Any:
        def handle(event: Any, context: Any) -> Any:
            transfer, tx = event["transfer_id"], Transaction()
            result = function(event, context, tx) if "tx" in function.__annotations__ else function(event, context)
            service.reach(transfer, f"{name}.before")
            plain.write(shipped.dynamodb, tx)
            service.reach(transfer, f"{name}.after")
            return result

        return handle

    return wrap


if service.settings["protection"]:
    service.watch(shipped.store)
    shipped.store.commit = _with_deaths(shipped.store.commit, lambda commits: commits[0].change)
    shipped.store.replace = _with_deaths(shipped.store.replace, lambda changes: changes[0])
else:
    step = plain_step
