"""The runs of a trial, each on a fresh local cloud.

1. Without faults, one message at a time: shows how each message changes the tables, and which always fail.
2. With workers killed, and every message delivered at least twice. Takes as long as a lease; meanwhile:
3. Without faults, in another order: differences from the first run say nothing about faults.
4. One message in a batch fails once; the others do not.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from idempotent_receiver.local import witness
from idempotent_receiver.local.cloud import Cloud
from idempotent_receiver.local.consumers import chosen_function, consumers_of
from idempotent_receiver.local.effects import Attribute, ContentByTable, Difference, Reference, Step, referred
from idempotent_receiver.local.project import LocalProject
from idempotent_receiver.local.samples import Sample
from idempotent_receiver.local.trial import LEASE_MARGIN_SECONDS, Say, Trial
from idempotent_receiver.local.verdict import FINE, EffectVerdict, Ended, Evidence, judged, kills, unexplained, worst

TRIAL_STACK = "trial"
QUIET_SECONDS = 30.0
"""The maximum duration of a run without killed workers."""
ALONE_SECONDS = 15.0
"""How long messages are sent one at a time; after that, the rest are sent at once."""
NO_REDRIVE = (
    "The queue has no redrive policy: a message that always fails is redelivered until its retention ends, then "
    "deleted. Give the queue a dead-letter queue."
)


@dataclass(frozen=True, kw_only=True)
class Found:
    """The results of the runs."""

    messages: Sequence[Ended]
    killed: Sequence[str] = ()
    """The points at which workers were killed."""
    inside: bool
    """Whether the handler uses this library's consumer, which the runs can observe."""
    named: Sequence[str] = ()
    """If it does not seem to, the consumers that its module has."""
    claims: bool
    incomparable: Sequence[Attribute] = ()
    unexplained: Sequence[Difference] = ()
    """Differences in the tables in items or attributes that no message writes in fault-free runs."""
    missing: Sequence[str] = ()
    """What the template lacks."""
    accepts_unseen: bool = False
    """Whether the caller knows that what this handler does cannot be seen here."""

    @property
    def fine(self) -> bool:
        """Whether every message ended correctly, with nothing missing or unexplained. If all ended as dead letters,
        the events do not suit the handler, and this is False.
        """
        verdicts = {each.verdict for each in self.messages}
        took_effect = {EffectVerdict.ONCE, EffectVerdict.UNSEEN} if self.accepts_unseen else {EffectVerdict.ONCE}
        fine = verdicts <= took_effect | FINE and bool(verdicts & took_effect)
        return fine and not self.missing and not self.unexplained


@dataclass(frozen=True)
class TrialRuns:
    """Performs the runs. `cloud` starts a local cloud, `tell` reports each step, and `progress` counts messages."""

    project: LocalProject
    samples: Sequence[Sample]
    function: str | None
    seconds: float
    cloud: Callable[[], AbstractContextManager[Cloud]]
    tell: Callable[[str], None]
    progress: Callable[[str, int], AbstractContextManager[Say]]
    printed: list[tuple[str, Path]] = field(default_factory=list)
    """For each run, its name and the file with the function's output."""

    def found(self) -> Found:
        """Perform the runs. Raises DeployError and TrialError."""
        if self.function is None and len(known := self.project.consumers()) > 1:
            chosen_function(known, None)
        self.tell(f"building {self.project.template} and deploying it on a local cloud")
        found, steps, ended = self._alone("without faults, one message at a time", self.samples)
        failing = [each for each in ended if each.verdict is not EffectVerdict.ONCE]
        names = {each.name for each in failing}
        able = [each for each in self.samples if each.name not in names]
        if not able:
            return found
        if any(names.intersection(step.names) and step.before != step.after for step in steps):
            # Exclude from the comparison what failing messages leave in the tables.
            _, steps, _ = self._alone("again, without the messages that always fail", able)
        with self._run("with workers killed: takes until their leases end", witness.KILLS) as killed:
            killed.send(able)
            reference = referred(steps, self._reordered(able))
            runs = [self._one_fails(able, reference)] if found.inside else []
            self._wait(killed, self.seconds)
            runs.append(killed.evidence(reference))
        messages = worst([failing, *map(judged, runs)])
        order = [each.name for each in self.samples]
        return replace(
            found,
            messages=sorted(messages, key=lambda each: order.index(each.name)),
            killed=kills(runs[-1].lines),
            incomparable=sorted(reference.incomparable),
            unexplained=[each for run in runs for each in unexplained(run)],
        )

    def _alone(self, what: str, samples: Sequence[Sample]) -> tuple[Found, list[Step], list[Ended]]:
        """A run without faults: one step per message, plus one for all messages that had to be redelivered."""
        with self._run(what, witness.NONE) as trial:
            steps, tables, ends = list[Step](), trial.tables(), time.monotonic() + ALONE_SECONDS
            with self.progress("out of queue", len(samples)) as say:
                for sample in samples:
                    trial.send([sample])
                    trial.wait_for(sample.name, ends - time.monotonic())
                    tables = _step(steps, [sample.name], tables, trial)
                    say(len(trial.sent), len(samples))
                trial.wait(QUIET_SECONDS)
            _step(steps, [each.name for each in samples if trial.failed(each.name)], tables, trial)
            evidence = trial.evidence()
        ended = judged(evidence)
        missing = [] if trial.redrive_policy else [NO_REDRIVE]
        found = Found(messages=ended, inside=trial.inside, named=trial.named, claims=evidence.claims, missing=missing)
        return found, steps, ended

    def _reordered(self, samples: Sequence[Sample]) -> ContentByTable:
        """The tables after a run in another order: the groups are reversed, but each keeps its internal order."""
        groups: dict[str, list[Sample]] = {}
        with self._run("without faults, in another order", witness.NONE) as trial:
            for place, sample in enumerate(samples):
                groups.setdefault(sample.group if trial.fifo else str(place), []).append(sample)
            trial.send_at_once([sample for group in reversed(groups.values()) for sample in group])
            self._wait(trial, QUIET_SECONDS)
            return trial.tables()

    def _one_fails(self, samples: Sequence[Sample], reference: Reference) -> Evidence:
        with self._run("one message in a batch fails once", witness.ONE_FAILS) as trial:
            trial.send_at_once(samples)
            self._wait(trial, QUIET_SECONDS)
            return trial.evidence(reference)

    def _wait(self, trial: Trial, seconds: float) -> None:
        with self.progress("out of queue", len(trial.sent)) as say:
            trial.wait(seconds, say)

    @contextmanager
    def _run(self, what: str, faults: str) -> Iterator[Trial]:
        with self.cloud() as cloud:
            stack = self.project.deployed(cloud, TRIAL_STACK, witnessed=True)
            consumers = {each.name: each for each in consumers_of(cloud, stack)}
            consumer = consumers[chosen_function([*consumers], self.function)]
            folder = self.project.folder / f"run-{len(self.printed) + 1}"
            folder.mkdir(parents=True)
            self.printed.append((what, folder / "printed.log"))
            trial = Trial(cloud, stack, [*consumers.values()], consumer, folder, faults)
            timeout = trial.prepare()
            if len(self.printed) == 1:
                visibility = timeout + LEASE_MARGIN_SECONDS
                self.tell(f"{consumer.name}: timeout {timeout} s, visibility timeout {visibility} s")
            self.tell(what)
            yield trial


def _step(steps: list[Step], names: Sequence[str], before: ContentByTable, trial: Trial) -> ContentByTable:
    after = trial.tables()
    steps.append(Step(names, before, after))
    return after
