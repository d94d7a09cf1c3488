"""Writes the history of a random simulation, which `harness/checker.py` judges: what its clients saw, an event each.

Of calls it has what callers are told and what was written through transactions. It leaves out the functions that
handlers of messages call, and it is not judged where records expire: for the checker a key is written once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.checker import check
from harness.history import (
    Acknowledged,
    Answered,
    Balance,
    DeadLettered,
    Delivered,
    Effect,
    Ended,
    Left,
    Sent,
    Started,
)
from tests.simulation.adapters import BUDGET_SECONDS, CREATED
from tests.simulation.invariants import Violation
from tests.simulation.sqs_model import is_audit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from harness.history import Event
    from idempotent_receiver.testing.world import World
    from tests.simulation.call_process import Reply, Request
    from tests.simulation.process import Invocation
    from tests.simulation.sqs_model import QueuedMessage, QueueModel


def account_of(key: str, accounts: int) -> str:
    """The item that the transactions of a record share with others."""
    return f"account {int(key[-1], 36) % accounts}"


class Recorder:
    """The history of a world, which its queues have begun. `accounts`: how many items transactions share."""

    def __init__(self, world: World, events: list[Event], accounts: int, *, effects: bool) -> None:
        self.events = events
        self._world = world
        self._accounts = accounts
        self._effects = effects
        self._noted: dict[str, int] = {}
        """How often the effect of each key had taken place at the last look."""

    def delivered(self, invocation: Invocation) -> None:
        for message in invocation.messages:
            self._note(Delivered, message=message.name, worker=invocation.name, receives=message.receives)

    def started(self, invocation: Invocation, message: QueuedMessage) -> None:
        # An invocation that outlives its deadline holds nothing: only its fencing stops it.
        until = invocation.started + BUDGET_SECONDS if invocation.claims else None
        self._note(Started, message=message.name, worker=invocation.name, until=until)

    def ended(self, invocation: Invocation, message: QueuedMessage, *, ok: bool) -> None:
        """A handler has ended, which is its effect unless that is a transaction."""
        self._note(Ended, message=message.name, worker=invocation.name, ok=ok)
        if ok and not self._effects:
            self._note(Effect, key=message.key, payload=message.body, worker=invocation.name, once=False)

    def posted(self, entries: Mapping[Any, dict[str, Any]], writer: str) -> None:
        """Note what has been added to the ledger since the last look."""
        for (id,), entry in entries.items():
            for _ in range(self._noted.get(id, 0), 0 if is_audit(id) else int(entry["times"])):
                moves = ((account_of(id, self._accounts), 1),) if self._accounts else ()
                self._note(Effect, key=id, payload=entry["body"], worker=writer, moves=moves)
            self._noted[id] = int(entry["times"])

    def acknowledged(self, invocation: Invocation, message: QueuedMessage) -> None:
        self._note(Acknowledged, message=message.name, worker=invocation.name)

    def dead_lettered(self, invocation: Invocation, message: QueuedMessage, *, confirmed: bool) -> None:
        self._note(DeadLettered, message=message.name, worker=invocation.name, confirmed=confirmed)

    def judge(self, queues: Iterable[QueueModel], accounts: Mapping[Any, dict[str, Any]]) -> list[Violation]:
        for number in range(self._accounts):
            account = account_of(str(number), self._accounts)
            self._note(Balance, account=account, opening=0, closing=int(accounts.get((account,), {}).get("times", 0)))
        for message in (message for queue in queues for message in queue.messages.values() if not message.gone):
            self._note(Left, message=message.name)
        return [Violation(finding.rule, finding.told) for finding in check(self.events)]

    def _note(self, kind: type[Event], **what: Any) -> None:
        self.events.append(kind(at=self._world.now, **what))


class CallRecorder:
    def __init__(self, world: World) -> None:
        self.events: list[Event] = []
        self._world = world
        self._asked: set[str] = set()

    def asked(self, request: Request) -> None:
        """A request may end without an effect; it counts as left then, and must not be told that it is done."""
        if (message := str(request)) not in self._asked:
            self._asked.add(message)
            at, key = self._world.now, request.id
            self.events += [
                Sent(at=at, message=message, key=key, payload=str(request.amount)),
                Left(at=at, message=message),
            ]

    def applied(self, id: str, amount: int, writer: str) -> None:
        self.events.append(Effect(at=self._world.now, key=id, payload=str(amount), worker=writer, result=writer))

    def answered(self, request: Request, reply: Reply, since: float) -> None:
        if reply.status == CREATED and reply.content is not None:
            told = {"payload": str(request.amount), "result": reply.content["run"]}
            # Functions mark nothing.
            again = reply.replayed is not False
            self.events.append(Answered(at=self._world.now, key=request.id, since=since, replayed=again, **told))

    def judge(self) -> list[Violation]:
        return [Violation(finding.rule, finding.told) for finding in check(self.events)]
