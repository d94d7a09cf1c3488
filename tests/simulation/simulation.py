"""One random simulation: four workers, eight messages, a queue, a table, and a seed that decides what goes wrong.

Faults occur for a while. Then a quiet phase follows, in which everything must settle: every message is COMPLETED and
deleted, or dead for a reason; its effect is there exactly once; and one more delivery of everything is acknowledged.
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING

from idempotent_receiver import PermanentError
from idempotent_receiver.testing.worker import failed_ids
from tests.simulation import invariants, reached
from tests.simulation.adapters import BUDGET_SECONDS
from tests.simulation.casts import Run
from tests.simulation.invariants import Violation
from tests.simulation.monitor import Monitor
from tests.simulation.moves import Moves
from tests.simulation.plan import CLOCKS_OFF_SECONDS, DAY_SECONDS, Plan
from tests.simulation.process import Consumer, Invocation
from tests.simulation.random_world import LATEST_SECONDS, RandomWorld
from tests.simulation.sqs_model import ENDS
from tests.simulation.workload import queues_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.simulation.sqs_model import QueuedMessage, QueueModel

WORKERS = 4
reached.declare("messages", [f"{of}: {end}" for of in ("message", "redriven") for end in ENDS])


class Simulation(RandomWorld):
    """The simulation of a seed. A `plain` one has none of the later worlds."""

    plan: Plan
    monitor: Monitor

    def __init__(
        self,
        seed: int,
        clocks_off_seconds: float = CLOCKS_OFF_SECONDS,
        log: Callable[[str], None] | None = None,
        *,
        plain: bool = False,
    ) -> None:
        super().__init__(seed, clocks_off_seconds, log, plan=partial(Plan, plain=plain))
        plan = self.plan
        self.queues = queues_of(plan, self.random)
        self.monitor = Monitor(self.world, self.queues, self.log, plan)
        if plan.closes:
            self.world.spawn(self._close_and_open)
        self.moves = Moves(self)
        self.audits = plan.source("audits")
        self._pollers = [plan.source(f"poller {slot}") for slot in range(WORKERS)]
        self.deployed = False

    def run(self) -> None:
        try:
            for slot in range(WORKERS):
                self.world.spawn(partial(self._poll, slot), after=self.random.random())
            self.world.run()
            self.monitor.settled(flawless=self.plan.flawless)
            self.world.spawn(self._deliver_last)
            self.world.run()
            self.monitor.judge()
            for message in self.messages:
                reached.mark(f"{'message' if message.id == message.original else 'redriven'}: {message.end}")
        finally:
            self.world.end()
        if self.monitor.violations:
            raise self.monitor.violations[0]

    def counts(self) -> dict[str, int]:
        dead = sum(message.dead_because is not None for message in self.messages)
        dead_lettered = sum(len(queue.dead_letters) for queue in self.queues)
        return super().counts() | {"dead_lettered": dead_lettered, "dead": dead}

    @property
    def messages(self) -> list[QueuedMessage]:
        return [message for queue in self.queues for message in queue.messages.values()]

    def queue_named(self, name: str) -> QueueModel:
        return next(queue for queue in self.queues if queue.arn.endswith(f":{name}"))

    def _close_and_open(self) -> None:
        """Let the condition of some message's transactions fail for a while."""
        while not self.quiet:
            key = self.plan.more.choice(self.messages).key
            self.monitor.closed.add(key)
            self.world.sleep(self.plan.more.choice([0.01, 0.1, 5.0]))
            self.monitor.closed.discard(key)
            self.world.sleep(self.plan.more.choice([0.0, 0.01, 1.0]))

    @property
    def quiet(self) -> bool:
        """Whether the faults have stopped. They begin again while records expire."""
        expiring = self.plan.expires and DAY_SECONDS - BUDGET_SECONDS <= self.world.now <= DAY_SECONDS + 50
        return super().quiet and (self.ending or not expiring)

    def _poll(self, slot: int) -> None:
        """Run one slot of the poller, which belongs to a function: one process after the other."""
        process, queues = None, self.queues[slot % self.plan.functions :: self.plan.functions]
        number = 0
        while not self._over(queues):
            if self.world.now > self.moves.last_at + LATEST_SECONDS:
                left = [message.id for message in self.messages if not message.gone]
                return self.monitor.violated(Violation("I6", f"{left} have not settled after {LATEST_SECONDS} seconds"))
            queue = self._pollers[slot].choice(queues)
            messages = queue.receive(self.world.now, self.random.choice([1, 2, 5, 10]))
            if not messages:
                due = min(self.moves.next_at, *(one.next_visible() for one in queues))
                self.world.sleep((0.2 if due == inf else max(0.2, due - self.world.now)) + self.random.random() * 0.5)
                continue
            if process not in self.live or process.deployed is not self.deployed:
                process = Consumer(self, f"w{slot}.{number}", queue.namespace)
            number += 1
            assert process is not None, "there is one now"
            self._invoke(process, f"{process.name}/{number}", messages)
        return None

    def _over(self, queues: Sequence[QueueModel]) -> bool:
        done = all(queue.empty for queue in queues) and self.moves.next_at == inf
        return done or bool(self.monitor.violations)

    def _invoke(self, process: Consumer, name: str, messages: Sequence[QueuedMessage]) -> list[str]:
        """Invoke a process, wait until it has answered or died, and delete what it acknowledges."""
        self.invocations += 1
        handles = {message.id: message.handle for message in messages}
        ids = [id for message in messages for id in (message.key, message.audit_key)]
        mine = Invocation(name, messages, self.world.now, ids, process.version)
        failed = self.invoke(process, mine, handles.values(), self._answer)
        if failed is None:
            self.kill(process)
            return list(handles)
        self.monitor.answered(mine, failed)
        # If the delete is lost, the queue delivers the message again.
        if self.quiet or self.random.random() >= self.plan.lost_deletes:
            messages[0].queue.delete(handle for id, handle in handles.items() if id not in failed)
        else:
            reached.mark("delete: lost")
        return failed

    def _answer(self, process: Consumer) -> list[str]:
        mine = process.invocation
        records = [message.queue.record(message) for message in mine.messages]
        try:
            return failed_ids(process.handler({"Records": records}, process.context()))
        except Exception as error:  # noqa: BLE001  # checked like any other answer
            self.monitor.violated(Violation("ANSWER", f"{mine.name} raised {error!r}"))
            return []

    def begin(self, invocation: Invocation, message: QueuedMessage) -> Run:
        """Start the function for a message: it takes some time, and sometimes fails."""
        self.log(f"{invocation.name}: the handler starts {message.key}")
        others = [other.invocation for other in self.live]
        self.monitor.handler_started(invocation, message, others)
        how, seconds = self.random.random(), 0.001 if self.quiet else self.random.choice(self.plan.takes_seconds)
        error = None
        if how < self.plan.fails and not self.quiet:
            seconds += 2 * BUDGET_SECONDS if how < self.plan.fails / 20 else 0.0
            error = PermanentError("refused") if how < self.plan.fails / 4 else RuntimeError("failed")
        return Run(self, invocation, message.key, seconds, error, message)

    def begin_audit(self, invocation: Invocation, id: str) -> Run:
        """Start the function that handlers call."""
        self.log(f"{invocation.name}: the audit starts {id}")
        self.monitor.audit_started(invocation, id, [other.invocation for other in self.live])
        error = RuntimeError("failed") if not self.quiet and self.audits.random() < self.plan.fails / 2 else None
        return Run(self, invocation, id, 0.001 if self.quiet else self.audits.choice([0.0, 0.01, 1.0]), error)

    def _deliver_last(self) -> None:
        """A lease later, deliver every message once more, dead letters included: all must be acknowledged."""
        if self.monitor.violations:
            return
        self.ending = True
        self.world.sleep(BUDGET_SECONDS + 2 * invariants.LEASE_MARGIN_SECONDS)
        for queue in self.queues:
            messages = [*queue.messages.values()]
            for message in messages:
                message.receives += 1
            name = f"last {queue.name}"
            failed = self._invoke(Consumer(self, name, queue.namespace), name, messages)
            if not all(self.monitor.refusable(queue.messages[id]) for id in failed):
                self.monitor.violated(Violation("I6", f"after all faults, {failed} are asked for again"))
        self.monitor.settled(flawless=False)
