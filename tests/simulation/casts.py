"""The functions that handle messages in the random simulation, and their habits: what a user's function may do with
what it is given, and with what it returns.

- "one dict": one dict of arguments is filled anew for each action of each message.
- "changes its message": its attributes are no longer what they were.
- "one result": one object is filled anew and returned for each message.
- "keeps its transaction": the transaction of an earlier message is tried again.
- "calls": it calls a function under `idempotent`, and changes the result that this returns.
- "clings": a coroutine that is cancelled awaits something before it ends.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

from greenlet import GreenletExit
from pydantic import BaseModel

from idempotent_receiver import Message, PermanentError, Transaction, idempotent
from idempotent_receiver.sqs.dead_letter import stamped
from tests.simulation.invariants import Violation
from tests.simulation.network_faults import NetworkQueueClient, NetworkStore
from tests.simulation.points import HANDLER
from tests.simulation.recorder import account_of
from tests.simulation.results import result_of
from tests.simulation.sqs_model import SENT, audit_namespace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.simulation.process import Consumer, Invocation
    from tests.simulation.simulation import Simulation
    from tests.simulation.sqs_model import QueuedMessage

HABITS = ("one dict", "changes its message", "one result", "keeps its transaction", "calls", "clings")


class Small(BaseModel):
    """The bodies that a version which validates them takes."""

    amount: Literal[1] = 1


@dataclass
class Run:
    """One run of a function for a record: how long it takes, and how it ends."""

    simulation: Simulation
    invocation: Invocation
    id: str
    seconds: float
    error: Exception | None
    message: QueuedMessage | None = None
    """None for the function that handlers call."""

    def __enter__(self) -> None:
        self.invocation.running.add(self.id)
        self.invocation.points[HANDLER] += 1
        self.simulation.disturbances.provoke(self.invocation, {HANDLER})

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.invocation.running.discard(self.id)
        self.invocation.points[HANDLER] -= 1
        if self.message is not None and kind is not GreenletExit:
            self.simulation.monitor.history.ended(self.invocation, self.message, ok=kind is None)

    def end(self) -> None:
        if self.error is not None:
            self.invocation.failed = True
            raise self.error
        self.simulation.monitor.succeeded.add((self.invocation.name, self.id))


class Cast:
    """The functions of one process: the one for messages, and the one that it calls."""

    def __init__(self, process: Consumer) -> None:
        self.process, self.simulation, self.plan = process, process.simulation, process.simulation.plan
        self.habits = self.plan.habits
        self._arguments: dict[str, Any] = _addition()
        self._result: dict[str, Any] = {}
        self._earlier: Transaction | None = None
        self._audit: Callable[..., Any] | None = None
        if "calls" in self.habits:
            store = NetworkStore(process, audit_namespace(process.namespace))
            self._audit = idempotent(
                store,
                key=lambda key, body: key,
                clock=process.clock,
                retention_seconds=self.plan.audit_retention_seconds,
            )(self._audit_later if process.version.asynchronous else self._audit_now)

    @property
    def function(self) -> Callable[..., Any]:
        return _FUNCTIONS[self.plan.transactional, self.process.version.asynchronous, self.process.version.validates](
            self
        )

    def announce(self, key: str, *, idempotency_key: str) -> None:
        """What handlers call: a message is its effect, so the same rules hold of it."""
        entry = {"Id": "0", "MessageBody": key, "MessageAttributes": stamped(idempotency_key)}
        client = NetworkQueueClient(self.simulation, self.process)
        if client.send_message_batch(QueueUrl=SENT, Entries=[entry])["Failed"]:
            raise ConnectionError

    def handle(self, message: Message, tx: Transaction | None) -> Any:
        run, queued = self._begin(message, tx)
        with run:
            if tx is not None and self._reads:
                self._count(queued, tx, tx.get(**self._account_of(queued), attributes=["times"]))
            self.simulation.world.sleep(run.seconds)
            if self._audit is not None:
                self._audited(queued, self._audit(queued.plain_key, queued.body))
            run.end()
        return self._returned(queued)

    async def handle_later(self, message: Message, tx: Transaction | None) -> Any:
        run, queued = self._begin(message, tx)
        with run:
            if tx is not None and self._reads:
                self._count(queued, tx, await tx.aget(**self._account_of(queued), attributes=["times"]))
            try:
                await asyncio.sleep(run.seconds)
                if self._audit is not None:
                    self._audited(queued, await self._audit(queued.plain_key, queued.body))
            except asyncio.CancelledError:
                if "clings" in self.habits:
                    await asyncio.sleep(0.1)
                raise
            run.end()
        return self._returned(queued)

    def _begin(self, message: Message, tx: Transaction | None) -> tuple[Run, QueuedMessage]:
        queued = self.process.invocation.message(message.id)
        if tx is not None:
            self._post(queued, tx)
        run = self.simulation.begin(self.process.invocation, queued)
        if "changes its message" in self.habits:
            for attributes in (*message.message_attributes.values(), message.message_attributes, message.attributes):
                attributes.clear()  # type: ignore[attr-defined]  # a handler may try
        return run, queued

    def _post(self, queued: QueuedMessage, tx: Transaction) -> None:
        if "keeps its transaction" in self.habits:
            self._try_again(tx)
        self._add_one(tx, "Entries", queued.key, queued.body)
        if self.plan.accounts and not self._reads:
            self._add_one(tx, "Accounts", account_of(queued.key, self.plan.accounts), "")
        if self.plan.sends:
            group = {} if queued.group is None else {"MessageGroupId": queued.group}
            if self.plan.calls:
                tx.call(self.announce, key=queued.key)
            else:
                tx.send(QueueUrl=SENT + ".fifo" * bool(group), MessageBody=queued.key, **group)
        if self.plan.closes:
            error = PermanentError("closed") if queued.key[-1] in "02468" else None
            tx.check(
                TableName="Open", Key={"id": queued.key}, ConditionExpression="attribute_exists(id)", otherwise=error
            )

    @property
    def _reads(self) -> bool:
        return self.plan.reads and self.plan.accounts > 0

    def _account_of(self, queued: QueuedMessage) -> dict[str, Any]:
        return {"TableName": "Accounts", "Key": {"id": account_of(queued.key, self.plan.accounts)}}

    def _count(self, queued: QueuedMessage, tx: Transaction, found: Mapping[str, Any] | None) -> None:
        """Write one more than was read: what two runs read alike would count once."""
        values = {":times": 1 if found is None else found["times"] + 1}
        account = self._account_of(queued)
        tx.update(**account, UpdateExpression="SET times = :times", ExpressionAttributeValues=values)

    def _try_again(self, tx: Transaction) -> None:
        earlier, self._earlier = self._earlier, tx
        running = len(self.process.invocation.running)
        if earlier is None or running:
            return  # its own run may still be under way
        try:
            self._add_one(earlier, "Entries", "too late", "")
        except RuntimeError:
            return
        self.simulation.monitor.violated(Violation("SEALED", "a transaction took an action after its handler's end"))

    def _add_one(self, tx: Transaction, table: str, id: str, body: str) -> None:
        arguments = self._arguments if "one dict" in self.habits else _addition()
        arguments["TableName"], arguments["Key"]["id"] = table, id
        arguments["ExpressionAttributeValues"][":body"] = body
        tx.update(**arguments)

    def _returned(self, queued: QueuedMessage) -> Any:
        if "one result" not in self.habits or not isinstance(queued.result, dict):
            return queued.result
        self._result.clear()
        self._result.update(queued.result)
        return self._result

    def _audit_now(self, key: str, body: str, tx: Transaction) -> Any:
        run = self._begin_audit(key, tx)
        with run:
            self.simulation.world.sleep(run.seconds)
            run.end()
        return result_of(self.plan.forms, key, body)

    async def _audit_later(self, key: str, body: str, tx: Transaction) -> Any:
        run = self._begin_audit(key, tx)
        with run:
            await asyncio.sleep(run.seconds)
            run.end()
        return result_of(self.plan.forms, key, body)

    def _begin_audit(self, key: str, tx: Transaction) -> Run:
        id = f"{audit_namespace(self.process.namespace)}#{key}"
        self._add_one(tx, "Entries", id, key)
        return self.simulation.begin_audit(self.process.invocation, id)

    def _audited(self, queued: QueuedMessage, found: Any) -> None:
        if found != result_of(self.plan.forms, queued.plain_key, queued.body):
            self.simulation.monitor.violated(Violation("REPLAY", f"the audit of {queued.key} returned {found!r}"))
        if isinstance(found, dict):
            found.clear()


def _addition() -> dict[str, Any]:
    """The arguments of an action, but for its table and key."""
    update = "SET body = :body ADD times :one"
    return {"Key": {}, "UpdateExpression": update, "ExpressionAttributeValues": {":one": 1}}


def _variant(*, transactional: bool, asynchronous: bool, validates: bool) -> Callable[[Cast], Callable[..., Any]]:
    """Makes a function of a cast, with these annotations."""
    annotations = {"body": Small if validates else str, "message": Message}
    if transactional:
        annotations["tx"] = Transaction

    def of(cast: Cast) -> Callable[..., Any]:
        def plain(body: Any, message: Any) -> Any:
            return cast.handle(message, None)

        def posting(body: Any, message: Any, tx: Any) -> Any:
            return cast.handle(message, tx)

        async def later(body: Any, message: Any) -> Any:
            return await cast.handle_later(message, None)

        async def posting_later(body: Any, message: Any, tx: Any) -> Any:
            return await cast.handle_later(message, tx)

        function: Any = ((plain, later), (posting, posting_later))[transactional][asynchronous]
        function.__annotations__ = annotations
        return function  # type: ignore[no-any-return]  # one of the four

    return of


_FUNCTIONS = {
    (transactional, asynchronous, validates): _variant(
        transactional=transactional, asynchronous=asynchronous, validates=validates
    )
    for transactional in (False, True)
    for asynchronous in (False, True)
    for validates in (False, True)
}

for _function in (Cast._audit_now, Cast._audit_later):
    # Resolved once, because millions of functions are made and each of them reads the annotations.
    _function.__annotations__ = get_type_hints(_function)
