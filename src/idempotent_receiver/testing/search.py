"""The search for violations: runs schedules in order of complexity, and collects their findings."""

from collections import deque
from collections.abc import Sequence

from idempotent_receiver.testing import findings, stuck
from idempotent_receiver.testing.baseline import Baseline
from idempotent_receiver.testing.explored_run import ExploredRun
from idempotent_receiver.testing.findings import HandlerFinding
from idempotent_receiver.testing.report import Called, Exploration, Violation
from idempotent_receiver.testing.runs import ExploredRuns
from idempotent_receiver.testing.schedule import Schedule

DELAYS = 2
"""The maximum number of delays in one schedule."""

MOST_VIOLATIONS = 3
LONGEST_STORY = 30


class Search:
    """Schedules in order of complexity, and their findings."""

    def __init__(self, runs: ExploredRuns, faults: int, most_schedules: int, requests: Sequence[str]) -> None:
        self.result = Exploration()
        self._requests = requests
        """Requests that were refused, because they would have reached the network."""
        self._runs, self._faults, self._most = runs, faults, most_schedules
        self._told: list[_Told] = []
        self._calls: dict[tuple[str, str | None], tuple[int, int]] = {}
        self._repeated: dict[str, Schedule] = {}
        """For each fake that was called again with a key, the first schedule in which that happened."""

    def run(self, only: Schedule | None, *, may_do_nothing: bool) -> None:
        """Run all schedules, or just `only`."""
        self._baseline = Baseline(lambda: self._runs.run(Schedule(), alone=True))
        fault_free = self._baseline.run
        self.result.effects, self.result.acknowledged = fault_free.tables, fault_free.ends
        refused = [(id, end) for id, end in fault_free.ends.items() if end != "completed"]
        self.result.notes += [f"{id}: {end}{findings.because(fault_free, id)}" for id, end in refused]
        found = [
            *self._sent(),
            *findings.early(fault_free),
            *findings.unawaited(fault_free),
            *findings.unfinished(fault_free),
        ]
        if not may_do_nothing and self._baseline.unrepeatable is None:
            found += findings.unseen(fault_free)
        if found and found[0].subject.startswith((findings.UNACKNOWLEDGED, "handled")):
            _cut(fault_free.story, after=f"leaves {found[0].subject.split()[1]} for redelivery")
        # The first finding causes the others: for example, a handler whose request is refused also fails.
        self._tell(found[:1], fault_free)
        if self._told or not self._repeats():
            return
        waiting: deque[tuple[Schedule, str]] = deque([(Schedule() if only is None else only, "")])
        while waiting and len(self._told) < MOST_VIOLATIONS and self.result.schedules < self._most:
            schedule, label = waiting.popleft()
            self.result.schedules += 1
            run = self._played(schedule, label, slowly=only is not None)
            if run is None:
                return
            self._count(run)
            if only is None:
                for longer in schedule.extended(run.decisions.points, self._faults, DELAYS):
                    waiting.append((longer, run.decisions.points[longer[-1][0]].label))
        self.result.complete = only is None and not waiting
        if only is None and not self._told:
            for schedule in dict.fromkeys(self._repeated.values()):
                self._played(schedule, slowly=True)
        self.result.calls = [Called(*who, *most) for who, most in sorted(self._calls.items(), key=repr)]
        self.result.unstable = sorted(f"{one})" if "(" in one else one for one in self._baseline.unstable)

    def stop_stuck(self) -> None:
        """Report where the handler got stuck."""
        told = f"the handler made no progress for {stuck.MOST_SECONDS:g} seconds and was stopped"
        remedy = f"limit every loop and every wait, and {findings.NO_LOCK}"
        run = self._runs.last
        _cut(run.story, after="makes no progress")
        self._tell([HandlerFinding("stuck", told, remedy)], run)

    def _sent(self) -> list[HandlerFinding]:
        """Requests that the handler tried to send, bypassing its transaction and every fake."""
        what = "with its own client, and nothing undoes that after a crash"
        remedy = (
            "read with `tx.get` and write through the Transaction, or replace the client with a fake from the `calls` "
            "fixture; calls that only read can be plain functions. If a client needs a server, name it: "
            "network='DynamoDB Local'"
        )
        return [HandlerFinding(one, f"the handler {one} {what}", remedy) for one in dict.fromkeys(self._requests)]

    def _repeats(self) -> bool:
        why = self._baseline.unrepeatable
        if why is not None:
            told = f"the same messages and tables give different results from run to run: {why}"
            self._tell(_not_repeatable(told), self._baseline.run)
        return why is None

    def _played(self, schedule: Schedule, label: str = "", *, slowly: bool = False) -> ExploredRun | None:
        """Run a schedule. Returns None if the search must stop. With `slowly`, a time-based key changes between
        attempts; otherwise, attempts almost always fall in the same second.
        """
        run = self._runs.run(schedule, slowly=slowly)
        last = schedule[-1][0] if schedule else -1
        if run.decisions.diverged or (label and label != run.decisions.points[last].label):
            self._tell(_not_repeatable("the handler makes different calls from run to run"), run)
            return None
        found = list(findings.all_of(run, self._baseline))
        if any(one.by_value for one in found) and self._baseline.look_again():
            if not self._repeats():
                return None
            found = list(findings.all_of(run, self._baseline))
        new = self._new(found)
        # A problem with a time-based key reappears only if a second passes between attempts.
        if new and not (self._found_again(new, schedule, slowly) or self._found_again(new, schedule, slowly=True)):
            self._tell(_not_repeatable("the same schedule gives different results from run to run"), run)
            return None
        self._tell([*self._sent(), *found], run)
        return run

    def _found_again(self, wanted: Sequence[HandlerFinding], schedule: Schedule, slowly: bool) -> bool:
        """Whether the schedule, not chance, caused the findings."""
        run = self._runs.run(schedule, slowly=slowly)
        return {one.subject for one in wanted} <= {one.subject for one in findings.all_of(run, self._baseline)}

    def _new(self, found: Sequence[HandlerFinding]) -> Sequence[HandlerFinding]:
        """Findings that are new in this run."""
        known = frozenset().union(*(told.subjects for told in self._told))
        return [one for one in found if one.subject not in known]

    def _count(self, run: ExploredRun) -> None:
        self.result.played.update((run.decisions.points[at].kind, what) for at, what in run.schedule)
        for who, calls in findings.by_message(run.calls).items():
            times, keys = self._calls.get(who, (0, 0))
            self._calls[who] = max(times, len(calls)), max(keys, len(findings.distinct(calls)))
        for name in run.repeated:
            self._repeated.setdefault(name, run.schedule)

    def _tell(self, found: Sequence[HandlerFinding], run: ExploredRun) -> None:
        """Add new findings. Known findings get this run's story if it is shorter and the run has no more faults."""
        by_subject = {one.subject: one for one in found}
        for place, told in enumerate(self._told):
            shorter = len(run.schedule) <= len(told.schedule) and len(run.story) < len(told.story)
            if shorter and told.subjects <= by_subject.keys():
                self._told[place] = _Told([by_subject[one.subject] for one in told.findings], run)
        new = self._new(found)
        if new:
            self._told.append(_Told(new, run))
        self.result.violations = [told.violation for told in self._told]


class _Told:
    """One run's findings."""

    def __init__(self, found: Sequence[HandlerFinding], run: ExploredRun) -> None:
        self.findings, self.story, self.schedule = found, run.story, run.schedule
        self.subjects = frozenset(one.subject for one in found)

    @property
    def violation(self) -> Violation:
        """The violation, with the first remedy: fixing the first finding often fixes the others."""
        what = "\n".join(one.text for one in self.findings)
        return Violation(what, self.findings[0].remedy, tuple(_short(self.story)), str(self.schedule))


def _cut(story: list[str], *, after: str) -> None:
    """Drop the lines after the one that ends with `after`: they only repeat earlier ones."""
    last = next((place for place, line in enumerate(story) if line.endswith(after)), len(story))
    del story[last + 1 :]


def _short(story: list[str]) -> list[str]:
    """The story, without its middle if it is long."""
    return story if len(story) <= LONGEST_STORY else [*story[: LONGEST_STORY - 10], "...", *story[-9:]]


def _not_repeatable(why: str) -> Sequence[HandlerFinding]:
    remedy = (
        "pass the handler's module-level state (a cache, a counter) as state={'name': ...}, so that each schedule "
        "starts from the same values; replace sources of randomness and time; and use a plain function, not a fake "
        "from `Calls`, for a look-up whose answer is cached"
    )
    return [HandlerFinding("repeat", why, remedy)]
