"""Runs a consumer under schedules, delivering messages as SQS does until each has an outcome."""

from collections.abc import Sequence
from contextlib import AbstractContextManager

from idempotent_receiver.clock import SystemClock
from idempotent_receiver.testing import schedule as options
from idempotent_receiver.testing.calls import watched_by
from idempotent_receiver.testing.explored_run import ExploredRun
from idempotent_receiver.testing.fake_calls import FakeCalls
from idempotent_receiver.testing.memory import TableItem
from idempotent_receiver.testing.schedule import Schedule
from idempotent_receiver.testing.setup import Setup, received
from idempotent_receiver.testing.workers import ExploredWorkers
from idempotent_receiver.testing.world import START_EPOCH_SECONDS

NEXT_WORKER_SECONDS = 0.5
MOST_RECEIVES = 3
"""How often a message is received before its redrive, and again after its redrive; with `max_attempts`, so many more
times: a redrive gives a message all of them again.
"""


class ExploredRuns:
    """One consumer's runs. `last` is the latest run to start, even if it was cut short."""

    last: ExploredRun

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._workers = ExploredWorkers(setup)
        self._undisturbed = 0

    def in_place(self) -> AbstractContextManager[None]:
        """Make other decorators around the consumer call the invoked worker."""
        return self._workers.in_place()

    def run(self, schedule: Schedule, *, alone: bool = False, slowly: bool = False) -> ExploredRun:
        """Run to the end under a schedule. With `alone`, run without faults and slower each time, so that anything that
        depends on the remaining time varies. With `slowly`, a second of real time passes before the first redelivery.
        """
        run = self.last = ExploredRun(self._setup, schedule, alone)
        self._undisturbed += alone
        run.network.round_trip_seconds *= self._undisturbed if alone else 1
        before = run.observed()
        with watched_by(FakeCalls(run)):
            try:
                _Deliveries(run, self._workers, slowly=slowly).deliver_all()
                run.conclude(before)
            finally:
                run.end()
        if run.interrupt is not None:
            raise run.interrupt
        return run


class _Deliveries:
    """Delivers the messages of one run, each time to the next worker."""

    def __init__(self, run: ExploredRun, workers: ExploredWorkers, *, slowly: bool) -> None:
        self._run, self._setup, self._workers, self._slowly = run, run.setup, workers, slowly
        self._invoked = 0

    def deliver_all(self) -> None:
        """Deliver until each message has ended or has used up its receives."""
        run = self._run
        if run.alone:
            self._one_by_one()
        else:
            self._first()
            self._again(self._setup.records)
        copies = self._redriven()
        run.network.arrive(everything=True)
        run.decisions.quiet = True
        self._again(copies)
        if not run.alone:
            self._copies()

    def _one_by_one(self) -> None:
        """Deliver each message alone, once the previous message has ended: handlers for one batch can overlap."""
        for record in self._setup.records:
            self._deliver([record], 1)
            self._run.world.run()
            self._again([record])

    def _first(self) -> None:
        """Deliver all messages to every worker at once, or different messages to each worker."""
        records = self._setup.records
        parts = [(records, receive) for receive in range(1, self._setup.workers + 1)]
        dealt = self._setup.dealt()
        choose = self._run.decisions.choose
        if len(dealt) > 1 and choose("delivery", "the delivery", (options.DEALT,)) is not None:
            parts = [(part, 1) for part in dealt]
        for number, (part, receive) in enumerate(parts):
            self._deliver(part, receive, after=number * NEXT_WORKER_SECONDS)
        self._run.world.run()

    def _again(self, records: Sequence[TableItem]) -> None:
        most = MOST_RECEIVES + (self._setup.consumer.options.max_attempts or 0)
        for receive in range(2, most + 1):
            left = [record for record in records if self._run.awaits_delivery(self._run.first_id(record["messageId"]))]
            if not left:
                return
            self._end_leases()
            self._deliver(left, receive + self._setup.workers - 1)
            self._run.world.run()

    def _redriven(self) -> list[TableItem]:
        """Redrive messages that failed for good, under their keys, like `receiver dlq redrive`. Returns the copies."""
        run = self._run
        ended = {id for id, end in run.ends.items() if end == "completed"}
        failed = [record for record in self._setup.records if run.first_id(record["messageId"]) not in ended]
        copies = [self._setup.redriven(record) for record in failed]
        run.redriven = True
        run.failing.clear()
        run.refusing.clear()
        for record in failed:
            run.story.append(f"{record['messageId']} failed for good, and is redriven under its key")
            run.ends.pop(record["messageId"], None)
            run.redriven_records[record["messageId"]] = run.record_of(record["messageId"])
            run.network.dead_letters.discard(record["messageId"])
        if copies:
            self._end_leases()
            self._deliver(copies, 1)
            run.world.run()
        return copies

    def _copies(self) -> None:
        """Deliver completed messages once more, with the same messageIds and with new ones."""
        run = self._run
        done = [record for record in self._setup.records if run.ends.get(record["messageId"]) == "completed"]
        if done:
            told = len(run.story)
            self._end_leases()
            self._deliver([*done, *map(self._setup.redriven, done)], MOST_RECEIVES + 1)
            run.world.run()
            if not any("runs the handler" in line for line in run.story[told:]):
                del run.story[told:]

    def _deliver(self, records: Sequence[TableItem], receive: int, after: float = 0.0) -> None:
        if self._run.interrupt is not None:
            return
        worker = self._workers.join(self._invoked, self._run)
        self._invoked += 1
        worker.deliver(*(received(record, receive) for record in records), after=after, seconds=self._setup.seconds)

    def _end_leases(self) -> None:
        if self._slowly:
            self._slowly = False  # once is enough
            clock = SystemClock()
            clock.sleep(1.001 - clock.epoch_ms() % 1000 / 1000)
        world, items = self._run.world, self._run.memory.items
        leases = {id: item.get("in_progress_expiration", 0) / 1000 for id, item in items.items()}
        live = [id for id, end in leases.items() if end - START_EPOCH_SECONDS > world.now]
        if any(items[id]["status"] == "INPROGRESS" for id in live):
            self._run.story.append("the lease ends")
        world.now = max([world.now, *(end - START_EPOCH_SECONDS for end in leases.values())]) + 1
