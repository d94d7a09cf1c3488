"""One random world of calls: clients with few keys among them, who ask until they are answered; a seed decides.

They ask for payments over HTTP, for shipments by a function, and for orders on a queue, whose consumer calls another
function under its own claim. Records expire, TTL deletes them, requests and answers are lost, and the bucket for large
results fails. In the quiet phase everybody is answered.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from idempotent_receiver import PermanentError, calls
from tests.simulation.adapters import BUDGET_SECONDS
from tests.simulation.call_monitor import CallMonitor
from tests.simulation.call_process import LARGE_BYTES, ORDERS, PAY, SHIP, CallProcess, Reply, Request
from tests.simulation.handlers import Failed
from tests.simulation.invariants import Violation
from tests.simulation.plan import CLOCKS_OFF_SECONDS
from tests.simulation.points import HANDLER
from tests.simulation.random_world import ClientPlan, ClientWorld

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from idempotent_receiver import Transaction
    from tests.simulation.process import Invocation

CLIENTS = 8
TENANTS, KEYS = ("t", "t#t"), ("k", "t#k")
"""Without the quotes around a scope, two of these pairs of tenant and key would make one id."""
LARGEST_INLINE_BYTES = 800


class CallPlan(ClientPlan):
    def __init__(self, random: Random, seed: int) -> None:
        super().__init__(random, seed)
        self.asynchronous = random.random() < 0.3
        self.replay = random.random() < 0.3
        self.wait_seconds = random.choice([0, 0, 0.3, 4.0])
        self.retention_seconds = random.choice([1, 5, 30, 30 * 24 * 3600])
        self.large = random.choice([0.0, 0.0, 0.5])
        self.bucket = random.random() < 0.6
        self.bucket_lost = random.choice([0.0, 0.3])
        self.keys = random.choice([KEYS[:1], KEYS])
        self.tenants = random.choice([TENANTS[:1], TENANTS])
        self.amounts = random.choice([[1], [1, 1, 2]])


class CallSimulation(ClientWorld):
    plan: CallPlan
    monitor: CallMonitor

    def __init__(
        self, seed: int, clocks_off_seconds: float = CLOCKS_OFF_SECONDS, log: Callable[[str], None] | None = None
    ) -> None:
        super().__init__(seed, clocks_off_seconds, log, CallPlan)
        self.bucket: dict[str, str] = {}
        self.monitor = CallMonitor(self)
        self.wanted = [self._request() for _ in range(CLIENTS)]
        self.new_process: Callable[[str], CallProcess] = partial(CallProcess, self)
        if self.plan.retention_seconds < 3600:
            self.world.spawn(self._delete_expired)

    def _request(self) -> Request:
        plan, random = self.plan, self.random
        function = random.choice([PAY, PAY, PAY, SHIP, SHIP, ORDERS])
        key = random.choice(plan.keys)
        # A message that fails for good would be asked for again for ever: there are no dead letters here.
        amount = 1 if function == ORDERS else random.choice(plan.amounts)
        return Request(function, random.choice(plan.tenants) if function == PAY else "", key, amount)

    def run(self) -> None:
        """Run to the end. Raises Violation. Results count as large sooner than they do in truth."""
        with patch.object(calls, "LARGEST_INLINE_BYTES", LARGEST_INLINE_BYTES):
            super().run()

    def start(self) -> None:
        for request in self.wanted:
            self.world.spawn(partial(self._client, request), after=self.random.choice([0.0, 0.0, 1.0, 10.0, 40.0]))

    def _client(self, request: Request) -> None:
        for _ in range(self.random.choice([1, 1, 2, 4])):
            while not ((reply := self.ask(request.ids, partial(self._serve, request=request))) and reply.final):
                if self.violations:
                    return
                if self.overdue:
                    self.monitor.violated(Violation("I6", f"{request} is still not answered: {reply}"))
                    return
                self.world.sleep(self.random.choice([0.05, 1.0, 5.0]) * (0.5 + self.random.random()))
            self.world.sleep(self.random.choice([0.0, 1.0, 7.0, 20.0]))

    def _serve(self, process: CallProcess, request: Request) -> Reply:
        mine = process.invocation
        self.monitor.amounts[mine.name] = request.amount
        try:
            reply = process.answer(request)
        except Exception as error:  # noqa: BLE001  # checked like any other answer
            self.monitor.violated(Violation("ANSWER", f"{mine.name} raised {error!r} for {request}"))
            return Reply(0)
        self.monitor.answered(mine, request, reply)
        return reply

    def _delete_expired(self) -> None:
        while not self.quiet:
            self.world.sleep(self.random.uniform(1.0, 20.0))
            self.monitor.delete_expired()

    def last(self) -> None:
        for request in self.wanted:
            reply = self.serve(request.ids, partial(self._serve, request=request))
            if reply is None or not reply.final:
                self.monitor.violated(Violation("I6", f"after all faults, {request} gets {reply}"))
        self.monitor.settled(self.wanted)

    def handling(self, invocation: Invocation, request: Request, tx: Transaction | None) -> Iterator[float]:
        """A run of a handler: how long it waits. It may fail."""
        self.log(f"{invocation.name}: the handler starts {request.id}")
        self.monitor.handler_started(invocation, request)
        self.disturbances.provoke(invocation, {HANDLER})
        if tx is not None:
            add_one(tx, request.id)
        invocation.running.add(request.id)
        how, quiet, fails = self.random.random(), self.quiet, self.plan.fails
        try:
            with invocation.waiting_at({HANDLER}):
                yield 0.001 if quiet else self.random.choice(self.plan.takes_seconds)
            if how < fails and not quiet:
                invocation.failed = True
                self.monitor.raised.add(request.id)
                if how < fails / 20:
                    yield 2 * BUDGET_SECONDS
                raise PermanentError("refused") if how < fails / 4 else Failed("failed")
            self.monitor.ended_well(invocation, request)
        finally:
            invocation.running.discard(request.id)

    def result_of(self, invocation: Invocation, request: Request) -> dict[str, Any]:
        large = self.random.random() < self.plan.large
        return {"run": invocation.name, "of": request.told, **({"filling": "." * LARGE_BYTES} if large else {})}


def add_one(tx: Transaction, id: str) -> None:
    """Add one to an entry, in a dict that is then used for something else."""
    arguments: dict[str, Any] = {"Key": {"id": id}, "ExpressionAttributeValues": {":one": 1}}
    tx.update(TableName="Entries", UpdateExpression="ADD times :one", **arguments)
    arguments["Key"]["id"], arguments["ExpressionAttributeValues"][":one"] = "another", 1000
