"""One random simulation: four workers, eight messages, a queue, a table, and a seed that decides what goes wrong.

Faults occur for a while. Then a quiet phase follows, in which everything must settle: every message is COMPLETED and
deleted, or dead for a reason; its effect is there exactly once; and one more delivery of everything is acknowledged.
"""

from __future__ import annotations

from functools import partial
from math import inf
from random import Random
from typing import TYPE_CHECKING

from greenlet import getcurrent, greenlet

from idempotent_receiver import PermanentError
from idempotent_receiver.testing.events import LambdaContext
from idempotent_receiver.testing.worker import failed_ids
from idempotent_receiver.testing.world import World, WorldClock
from tests.simulation import invariants, reached
from tests.simulation.adapters import BUDGET_SECONDS
from tests.simulation.casts import Run
from tests.simulation.disturbances import Disturbances
from tests.simulation.invariants import Violation
from tests.simulation.monitor import Monitor
from tests.simulation.moves import Moves
from tests.simulation.network_faults import RUNNING
from tests.simulation.plan import CLOCKS_OFF_SECONDS, DAY_SECONDS, Plan
from tests.simulation.points import DISTURBANCES, provoked
from tests.simulation.process import Invocation, Process
from tests.simulation.results import Bucket
from tests.simulation.sqs_model import ENDS
from tests.simulation.workload import queues_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from tests.simulation.sqs_model import QueuedMessage, QueueModel
    from tests.simulation.wire import Wire

WORKERS = 4
reached.declare("messages", [f"{of}: {end}" for of in ("message", "redriven") for end in ENDS])
QUIET_FROM_SECONDS = 60.0
LATEST_SECONDS = 4 * 60 * 60.0
"""Backoffs, leases and visibility timeouts may add up, but not to more than this."""
OUTAGE_SECONDS = 12.0


class Simulation:
    """The simulation of a seed. `clocks_off_seconds` is the largest error of a clock, in either direction."""

    wire: Wire | None = None
    """What lies between the workers' stores and the table, if it is more than a network."""

    def __init__(
        self,
        seed: int,
        clocks_off_seconds: float = CLOCKS_OFF_SECONDS,
        log: Callable[[str], None] | None = None,
        *,
        plain: bool = False,
    ) -> None:
        self.random = random = Random(seed)
        self.world = World(Random(seed).random)
        planned = reached.planned(seed)
        self.plan = plan = Plan(random if planned == seed else Random(planned), planned, plain=plain)
        self.clocks_off_seconds = clocks_off_seconds
        self.queues = queues_of(plan, random)
        self._log = log
        self.bucket, self.bucket_random = Bucket(), plan.source("bucket")
        self.monitor = Monitor(self.world, self.queues, self.bucket, self.log, plan)
        if plan.closes:
            self.world.spawn(self._close_and_open)
        self.disturbances, self.moves = Disturbances(self), Moves(self)
        self.audits = plan.source("audits")
        self._pollers = [plan.source(f"poller {slot}") for slot in range(WORKERS)]
        self.live: list[Process] = []
        self.busy: dict[str, tuple[object, float]] = {}
        """Who has had a transaction on an item, and until when it is in the way of others."""
        self.deployed = self.ending = False
        self.calls = self.groups = self.packs = self.faults = self.invocations = 0

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

    @property
    def violations(self) -> list[Violation]:
        return self.monitor.violations

    def counts(self) -> dict[str, int]:
        names = ("invocations", "calls", "groups", "packs", "faults")
        dead = sum(message.dead_because is not None for message in self.messages)
        counts: dict[str, int] = {name: getattr(self, name) for name in names}
        dead_lettered = sum(len(queue.dead_letters) for queue in self.queues)
        return counts | {"dead_lettered": dead_lettered, "dead": dead}

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
        return self.ending or (self.world.now >= QUIET_FROM_SECONDS and not expiring)

    def log(self, what: str) -> None:
        if self._log is not None:
            self._log(f"{self.world.now:10.4f}  {what}")

    def fault(self, points: Collection[str]) -> str | None:
        """The fault of a call at these points, if any."""
        plan, out = self.plan, self.plan.outage_from
        if self.quiet:
            return None
        if out is not None and out <= self.world.now < out + OUTAGE_SECONDS:
            fault: str | None = "lost request"
        elif (kind := provoked(points)) is not None and kind not in DISTURBANCES and self.random.random() < 0.5:
            fault = kind
        else:
            fault = self.random.choice(plan.kinds) if self.random.random() < plan.faults else None
        self.faults += fault is not None
        return fault

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
                process = Process(self, f"w{slot}.{number}", queue.namespace)
            number += 1
            assert process is not None, "there is one now"
            self._invoke(process, f"{process.name}/{number}", messages)
        return None

    def _over(self, queues: Sequence[QueueModel]) -> bool:
        done = all(queue.empty for queue in queues) and self.moves.next_at == inf
        return done or bool(self.monitor.violations)

    def _invoke(self, process: Process, name: str, messages: Sequence[QueuedMessage]) -> list[str]:
        """Invoke a process, wait until it has answered or died, and delete what it acknowledges."""
        self.invocations += 1
        handles = {message.id: message.handle for message in messages}
        process.clock.set(self.random.uniform(-1, 1) * self.clocks_off_seconds)
        self.log(f"{name} starts: {', '.join(handles.values())}, clock {process.clock.skew_seconds:+.1f} s")
        mine = process.invocation = Invocation(name, messages, self.world.now, process.version)
        others = [other for one in self.live for other in one.under_way if other is not mine]
        self.live = [one for one in self.live if one is not process] + [process]
        self.monitor.invocation_started(mine, others)
        answers: list[list[str]] = []
        process.greenlets = [self.world.spawn(partial(self._answer, process, mine, answers, getcurrent()))]
        self.disturbances.schedule(process, mine)
        self.world.sleep(BUDGET_SECONDS)
        if not answers:
            self.kill(process)
            return list(handles)
        self.monitor.answered(mine, answers[0])
        # If the delete is lost, the queue delivers the message again.
        if self.quiet or self.random.random() >= self.plan.lost_deletes:
            messages[0].queue.delete(handle for id, handle in handles.items() if id not in answers[0])
        else:
            reached.mark("delete: lost")
        process.invocation = Invocation("nobody", (), 0.0)
        return answers[0]

    def _answer(self, process: Process, mine: Invocation, answers: list[list[str]], poller: greenlet) -> None:
        RUNNING.set(mine)
        context = LambdaContext(BUDGET_SECONDS, WorldClock(self.world), aws_request_id=mine.name)
        records = [message.queue.record(message) for message in mine.messages]
        try:
            answers.append(failed_ids(process.handler({"Records": records}, context)))
        except Exception as error:  # noqa: BLE001  # checked like any other answer
            self.monitor.violated(Violation("ANSWER", f"{mine.name} raised {error!r}"))
        self.world.wake(poller)

    def kill(self, process: Process) -> None:
        if process not in self.live:
            return
        process.invocation.mark("killed")
        self.log(f"{process.invocation.name} is dead")
        self.live.remove(process)
        for executor in process.executors:
            executor.kill()
        for one in process.greenlets:
            if one is not getcurrent():
                self.world.kill(one)

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
            failed = self._invoke(Process(self, name, queue.namespace), name, messages)
            if not all(self.monitor.refusable(queue.messages[id]) for id in failed):
                self.monitor.violated(Violation("I6", f"after all faults, {failed} are asked for again"))
        self.monitor.settled(flawless=False)
