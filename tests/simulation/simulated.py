"""One simulated world: four workers, eight messages, a queue, a table, and a seed that says what goes wrong.

Faults come for a while; then everything is quiet, and everything must settle. In the end every message is COMPLETED and
deleted, or dead with a reason, its effect is there exactly once, and one more delivery of everything is acknowledged.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING

from greenlet import getcurrent, greenlet

from idempotent_receiver import PermanentError
from tests.simulation import invariants
from tests.simulation.clockwork import Clockwork
from tests.simulation.invariants import Violation
from tests.simulation.process import BUDGET_SECONDS, Invocation, Process
from tests.simulation.sqs_model import Mail, Queue
from tests.simulation.watch import Watch
from tests.simulation.weather import FAULTS
from tests.simulation.world import Context, failed_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WORKERS = 4
MESSAGES = 8
QUIET_FROM_SECONDS = 60.0
LATEST_SECONDS = 4 * 60 * 60.0
"""Backoffs, leases and visibilities may add up, but not to more than this."""
OUTAGE_SECONDS = 12.0
CLOCKS_OFF_SECONDS = 1.4
"""Two clocks that are off by this, to either side, still differ by less than the lease margin."""


class Odds:
    """What a seed's world is like, and how often which faults befall it."""

    def __init__(self, random: Random, seed: int) -> None:
        self.fifo = random.random() < 0.4
        self.transactional = random.random() < 0.5
        self.letters = random.random() < 0.5
        self.concurrency = random.choice([1, 1, 2, 4, 8])
        self.visibility_seconds = random.choice([5.0, 15.0, 60.0])
        self.duplicates = 0.0 if self.fifo else random.choice([0.0, 0.02, 0.2])
        self.faults = random.choice([0.0, 0.02, 0.1, 0.1, 0.3])
        self.kinds = random.sample(list(FAULTS), random.randint(1, len(FAULTS)))
        self.crashes = self.faults / 2
        self.lost_deletes = self.faults / 2
        self.fails = random.choice([0.0, 0.05, 0.2])
        # Where handlers take no time, what they leave is recorded together.
        self.takes_seconds = random.choice([[0.0], [0.0, 0.0, 0.005, 0.3, 2.0, 5.0]])
        self.freezes = random.choice([0.0, 0.0, 0.1])
        self.outage_from = random.choice([None, None, 1.0, 30.0])
        # From a source of its own, which leaves all else in a seed's world as it is without.
        self.suspended = Random(f"suspended {seed}")
        self.suspensions = self.suspended.choice([0.0, 0.0, 0.0, 0.1])

    @property
    def flawless(self) -> bool:
        """Whether nothing goes wrong at all."""
        wrong = self.faults or self.fails or self.freezes or self.suspensions or self.duplicates or self.outage_from
        return not wrong


class Simulation:
    """The world of a seed. `clocks_off_seconds` is how far off true time a clock may be, to either side."""

    def __init__(
        self, seed: int, clocks_off_seconds: float = CLOCKS_OFF_SECONDS, say: Callable[[str], None] | None = None
    ) -> None:
        self.random = random = Random(seed)
        self.world = Clockwork(seed)
        self.odds = odds = Odds(random, seed)
        self.clocks_off_seconds = clocks_off_seconds
        self.queue = Queue(random, odds.fifo, odds.visibility_seconds, odds.duplicates)
        for number, at in enumerate(sorted(random.choices([0.0, 0.0, 1.0, 10.0, 40.0], k=MESSAGES))):
            self.queue.send(f"m{number}", random.choice("gh") if odds.fifo else None, at)
        self._say = say
        self.watch = Watch(self.world, self.queue, self.say, effects=odds.transactional)
        self.live: list[Process] = []
        self.ending = False
        self.calls = self.groups = self.faults = self.invocations = 0

    def run(self) -> None:
        """From the first message to the last. Raises Violation."""
        try:
            for slot in range(WORKERS):
                self.world.spawn(partial(self._poll, slot), after=self.random.random())
            self.world.run()
            self.watch.settled(flawless=self.odds.flawless)
            self.world.spawn(self._once_more)
            self.world.run()
        finally:
            self.world.end()
        if self.watch.violations:
            raise self.watch.violations[0]

    @property
    def quiet(self) -> bool:
        """Whether nothing goes wrong any more."""
        return self.ending or self.world.now >= QUIET_FROM_SECONDS

    def say(self, what: str) -> None:
        """Tell what happens, where somebody listens."""
        if self._say is not None:
            self._say(f"{self.world.now:10.4f}  {what}")

    def fault(self) -> str | None:
        """The fault that the next call meets, if any."""
        odds, out = self.odds, self.odds.outage_from
        if self.quiet:
            return None
        if out is not None and out <= self.world.now < out + OUTAGE_SECONDS:
            fault: str | None = "lost request"
        else:
            fault = self.random.choice(odds.kinds) if self.random.random() < odds.faults else None
        self.faults += fault is not None
        return fault

    def _poll(self, slot: int) -> None:
        """A slot of the poller: one process after the other."""
        process = None
        number = 0
        while not self.queue.empty and not self.watch.violations:
            if self.world.now > LATEST_SECONDS:
                left = [mail.id for mail in self.queue.mails.values() if not mail.gone]
                return self.watch.broken(
                    Violation("I6", f"{left} have not settled after {LATEST_SECONDS} quiet seconds")
                )
            mails = self.queue.receive(self.world.now, self.random.choice([1, 2, 5, 10]))
            if not mails:
                wait = max(0.2, self.queue.next_visible() - self.world.now)
                self.world.sleep(wait + self.random.random() * 0.5)
                continue
            if process not in self.live:
                process = Process(self, f"w{slot}.{number}")
            number += 1
            assert process is not None, "there is one now"
            self._invoke(process, f"{process.name}/{number}", mails)
        return None

    def _invoke(self, process: Process, name: str, mails: Sequence[Mail]) -> list[str]:
        """Invoke a process, and wait until it has answered or died; what it acknowledges is deleted."""
        self.invocations += 1
        handles = {mail.id: mail.handle for mail in mails}
        process.clock.skew_seconds = self.random.uniform(-1, 1) * self.clocks_off_seconds
        self.say(f"{name} starts: {', '.join(handles.values())}, clock {process.clock.skew_seconds:+.1f} s")
        mine = process.invocation = Invocation(name, mails, self.world.now)
        others = [other for one in self.live for other in one.under_way if other is not mine]
        self.live = [one for one in self.live if one is not process] + [process]
        self.watch.begun(mine, others)
        answers: list[list[str]] = []
        process.greenlets = [self.world.spawn(partial(self._answer, process, mine, answers, getcurrent()))]
        self._disturb(process, mine)
        self.world.sleep(BUDGET_SECONDS)
        if not answers:
            self.kill(process)
            return list(handles)
        self.watch.answered(mine, answers[0])
        # A delete that is lost lets the message come again.
        if self.quiet or self.random.random() >= self.odds.lost_deletes:
            self.queue.delete(handle for id, handle in handles.items() if id not in answers[0])
        process.invocation = Invocation("nobody", (), 0.0)
        return answers[0]

    def _answer(self, process: Process, mine: Invocation, answers: list[list[str]], poller: greenlet) -> None:
        context = Context(self.world, mine.started + BUDGET_SECONDS, aws_request_id=mine.name)
        records = [self.queue.record(mail) for mail in mine.mails]
        try:
            answers.append(failed_ids(process.handler({"Records": records}, context)))
        except Exception as error:  # noqa: BLE001  # judged like any other answer
            self.watch.broken(Violation("ANSWER", f"{mine.name} raised {error!r}"))
        self.world.wake(poller)

    def _disturb(self, process: Process, mine: Invocation) -> None:
        """Let the process die, freeze, or its clock step, at some time."""
        if self.quiet:
            return
        odds, poller = self.odds, getcurrent()
        disturbances: list[tuple[float, Callable[[], None]]] = [
            (odds.crashes, partial(self.kill, process)),
            (odds.freezes, partial(self._freeze, process, mine, poller)),
            (0.1, partial(self._step_clock, process, mine)),
        ]
        for often, disturb in disturbances:
            if self.random.random() < often:
                self.world.spawn(disturb, after=self.random.random() * BUDGET_SECONDS)
        if odds.suspended.random() < odds.suspensions:
            suspend = partial(self._suspend, process, mine, poller)
            self.world.spawn(suspend, after=odds.suspended.random() * BUDGET_SECONDS)

    def _step_clock(self, process: Process, invocation: Invocation) -> None:
        if process.invocation is invocation:
            step = self.random.choice([-3600, -60, 60, 3600])
            # Of two clocks, one that stands still and one that goes back, neither says that it is later.
            process.clock.skew_seconds += 0 if invocation.suspended else step
            invocation.stepped |= step > 0

    def _freeze(self, process: Process, invocation: Invocation, poller: greenlet) -> None:
        """Let a process stand still past its deadline, and then go on as if nothing had been."""
        if process not in self.live or process.invocation is not invocation:
            return
        seconds = self.random.uniform(0, 3 * BUDGET_SECONDS)
        self.say(f"{invocation.name} freezes for {seconds:.1f} s")
        self._stand_still(process, invocation, poller, seconds)

    def _suspend(self, process: Process, invocation: Invocation, poller: greenlet) -> None:
        """Let the machine of a process stand still, its monotonic clock included, and then go on."""
        if (
            process not in self.live
            or process.invocation is not invocation
            or process.clock.skew_seconds < -CLOCKS_OFF_SECONDS
        ):
            return
        seconds = self.odds.suspended.choice([2.0, 20.0, 3600.0])
        self.say(f"{invocation.name} is suspended for {seconds:.0f} s")
        invocation.suspended = True
        process.clock.suspended_seconds += seconds
        self._stand_still(process, invocation, poller, seconds)

    def _stand_still(self, process: Process, invocation: Invocation, poller: greenlet, seconds: float) -> None:
        invocation.troubles += 2
        self.world.delay([poller, *process.greenlets, *(job for one in process.executors for job in one.jobs)], seconds)

    def kill(self, process: Process) -> None:
        """A crash, or Lambda's time-out: nothing of the process goes on."""
        if process not in self.live:
            return
        self.say(f"{process.invocation.name} is dead")
        self.live.remove(process)
        for executor in process.executors:
            executor.kill()
        for one in process.greenlets:
            if one is not getcurrent():
                self.world.kill(one)

    def handle(self, invocation: Invocation, id: str) -> None:
        """What the handler does: it takes its time, and fails at times."""
        self.say(f"{invocation.name}: the handler starts {id}")
        self.watch.started(invocation, id, [other.invocation for other in self.live])
        invocation.running.add(id)
        how, quiet = self.random.random(), self.quiet
        try:
            self.world.sleep(0.001 if quiet else self.random.choice(self.odds.takes_seconds))
            if how < self.odds.fails and not quiet:
                invocation.failed = True
                if how < self.odds.fails / 20:
                    self.world.sleep(2 * BUDGET_SECONDS)
                raise PermanentError("refused") if how < self.odds.fails / 4 else RuntimeError("failed")
            self.watch.succeeded.add((invocation.name, id))
        finally:
            invocation.running.discard(id)

    def _once_more(self) -> None:
        """A lease later, whatever was sent is delivered once more, the dead letters too: all is acknowledged."""
        if self.watch.violations:
            return
        self.ending = True
        self.world.sleep(BUDGET_SECONDS + 2 * invariants.LEASE_MARGIN_SECONDS)
        failed = self._invoke(Process(self, "last"), "last", list(self.queue.mails.values()))
        if failed:
            self.watch.broken(Violation("I6", f"after all faults, {failed} are asked for again"))
        self.watch.settled(flawless=False)
