"""The faults: what the stand-in hears of a handler's run, and where the worker dies on its word."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from app.transfers import Transfer
from idempotent_receiver import Message, Transaction
from local.overlay import outside

if TYPE_CHECKING:
    from collections.abc import Callable


class Acts:
    """What this process is doing: its one invocation, and how the runs in it are to end."""

    def __init__(self) -> None:
        self._invocation = ""
        self._deaths: dict[str, str | None] = {}

    def deliver(self, event: Any, context: Any) -> None:
        """An invocation has begun."""
        self._invocation = context.aws_request_id
        self._deaths.clear()
        deadline_ms = time.time_ns() // 1_000_000 + context.get_remaining_time_in_millis()
        outside.say("/deliveries", invocation=self._invocation, deadline_ms=deadline_ms, records=event["Records"])

    def start(self, name: str) -> None:
        """A handler was entered."""
        self._deaths[name] = outside.say("/starts", invocation=self._invocation, name=name)["die"]

    def end(self, name: str, *, ok: bool) -> None:
        """A handler and its transaction are over."""
        outside.say("/ends", invocation=self._invocation, name=name, ok=ok)

    def die_if(self, name: str, moment: str) -> None:
        """Die, if that is how this run is to end."""
        if self._deaths.get(name) == moment:
            outside.die()


def with_faults(business: Callable[[Transfer, Transaction], Any], acts: Acts) -> Callable[..., Any]:
    """The business function, with an outside call before it, and the stand-in told of both."""

    def handle(transfer: Transfer, message: Message, tx: Transaction) -> Any:
        name = transfer.transfer_id
        acts.start(name)
        try:
            outside.call(name, message.idempotency_key)
            return business(transfer, tx)
        except BaseException:
            acts.end(name, ok=False)
            raise

    return handle


def faulty_commits(store: Any, acts: Acts) -> None:
    """Let workers die before a transaction is sent, and after it was answered."""
    commit = store.commit

    def faulty(change: Any, actions: Any) -> Any:
        name = _transfer_of(actions)
        acts.die_if(name, "before")
        written = commit(change, actions)
        acts.die_if(name, "after")
        acts.end(name, ok=type(written).__name__ == "Applied")
        return written

    store.commit = faulty


def _transfer_of(actions: Any) -> str:
    (name,) = {action.arguments["Item"]["transfer_id"] for action in actions if action.kind == "Put"}
    return str(name)
