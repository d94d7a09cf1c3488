"""`explore`: does a consumer survive it? Its handler, and all of the library, played through every schedule in turn."""

import textwrap
import threading
import typing
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from idempotent_receiver import options
from idempotent_receiver.sqs.consumer import Consumer
from idempotent_receiver.testing import outside, stuck, verdict
from idempotent_receiver.testing.baseline import Baseline
from idempotent_receiver.testing.cast import Cast
from idempotent_receiver.testing.events import body_of, sqs_event
from idempotent_receiver.testing.memory import Item, MemoryStore, Table
from idempotent_receiver.testing.schedule import Schedule
from idempotent_receiver.testing.setup import CONTAINERS, Container, Setup
from idempotent_receiver.testing.trial import Trial
from idempotent_receiver.testing.verdict import Finding

DELAYS = 2
"""How often one worker or message may wait for the others in a schedule."""

MOST_VIOLATIONS = 3
LONGEST_STORY = 30
WIDTH = 80
MOST_WORKERS, MOST_FAULTS = 4, 3


_alone = threading.RLock()
"""Held by whoever explores: fakes and the network are the process's."""


@dataclass(frozen=True)
class Violation:
    """A promise that the handler breaks: what is wrong, what helps, how it comes about, and how to play that again."""

    what: str
    remedy: str
    story: tuple[str, ...]
    replay: str

    def __str__(self) -> str:
        lines = [f"  {number}. {line}" for number, line in enumerate(self.story, 1)]
        again = f'  Again: explore(..., replay="{self.replay}")'
        remedy = textwrap.fill(f"  Remedy: {self.remedy}.", WIDTH, subsequent_indent="    ", break_on_hyphens=False)
        return "\n".join([self.what, *lines, remedy, again])


class Called(NamedTuple):
    """How a fake was called for one message: how often at most in one schedule, and with how many keys."""

    name: str
    message: str | None
    times: int
    keys: int


@dataclass
class Exploration:
    """What `explore` has seen."""

    schedules: int = 0
    complete: bool = False
    """Whether all schedules were played that `faults` allows: not where `most_schedules`, `replay` or the third
    violation ended it.
    """
    violations: list[Violation] = field(default_factory=list)
    effects: dict[str, list[Item]] = field(default_factory=dict)
    """The items of all tables in the end, where nothing goes wrong."""
    acknowledged: dict[str, str] = field(default_factory=dict)
    """How each message ends, by its messageId: `completed`, `dead letter` or `failed for good`."""
    calls: list[Called] = field(default_factory=list)
    played: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often each thing happened: `("commit", "crash-before")`, for example."""
    unstable: list[str] = field(default_factory=list)
    """What differs from run to run even if nothing goes wrong, and was not compared."""

    def check(self) -> None:
        """Raise AssertionError with the story of each violation, if there is one."""
        __tracebackhide__ = True
        if self.violations:
            raise AssertionError(str(self))

    def __str__(self) -> str:
        ends, found = Counter(self.acknowledged.values()), len(self.violations)
        lines = [f"{found} violation{'s' * (found > 1)}:\n", *(f"{one}\n" for one in self.violations)] if found else []
        lines.append(f"{self.schedules} schedules{'' if self.complete else ', and not all'}")
        lines += [f"messages {end}: {count}" for end, count in ends.items()]
        lines += [f"{name}: {len(items)} items" for name, items in self.effects.items()]
        lines += [f"{one.name} for {one.message}: {_times(one)}" for one in self.calls]
        if self.unstable:
            lines.append(f"not compared, because it differs from run to run: {', '.join(self.unstable)}")
        return "\n".join(lines)


def _times(called: Called) -> str:
    if called.times == 1:
        return "never more than once"
    keys = "without a key" if called.keys == 0 else "same key" if called.keys == 1 else f"{called.keys} keys"
    return f"at least once, at most {called.times} times, {keys}"


def explore(
    handler: Callable[..., Any],
    messages: object,
    *,
    tables: Mapping[str, str | tuple[str, ...] | Table] | None = None,
    state: Mapping[str, Container] | None = None,
    workers: int = 2,
    faults: int = 1,
    most_schedules: int = 2000,
    seconds: float = 30.0,
    replay: str | None = None,
    check: bool = True,
    store: Callable[..., MemoryStore] = MemoryStore,
    network: str | None = None,
    no_effects: str | None = None,
) -> Exploration:
    """Play a decorated handler through what SQS, Lambda and the network do to it. Raise AssertionError with a story of
    each way in which a message takes effect twice, or not at all.

        def test_my_consumer_survives_it(calls):
            calls.replace(orders, "charge", key="idempotency_key")
            assert explore(orders.lambda_handler, [{"order": "o-1", "cents": 100}], tables={"orders": "order"}).complete

    `handler` is what `@sqs_consumer(...)` made, with all that decorates it. The shipped code runs with a store in
    memory, in virtual time; the handler's own options stay. `messages` are bodies in a list (str, or what can be JSON),
    or an event of `sqs_event`. `tables` are those of the handler's `Transaction`, as in `MemoryStore`; a `Table` may
    have items, and fakes may read and write it. `state` names what else the handler changes, such as the dict of a
    fake, or the `MemoryStore` of an `@idempotent` function. Tables and state are put back before each schedule, and
    compared after it.

    In every schedule, `workers` receive the messages at once, and what was not acknowledged comes again once the leases
    have ended, is redriven in the end, and is delivered once more after all. In between at most `faults` go wrong, at
    any call of the store, of SQS, or of a fake: a worker crashes before or after it, the answer is lost, the request
    arrives late or never, a fake refuses, the handler raises; and at most two calls are so slow that others go first.

    A violation is: tables or state that are not as they are where nothing goes wrong; a message acknowledged that is
    not COMPLETED, or never acknowledged; a fake called again with another key, or without one, or never called for a
    message that is done, or only where something goes wrong, or never awaited, or with one key for two messages or for
    two calls; a fake that refused a message which ends as if it had not. The same call again with the same key is
    allowed. So is another run of a handler of `effects="transaction"` at the same time: nothing claims its message, and
    its effects are there once.

    Two more violations can be allowed by their reason: a request by a client of the handler's own (boto3 is refused,
    also under moto, and sockets do not connect), by `network="DynamoDB Local"`; and a handler that touches no table,
    state or fake, by `no_effects="it only counts"`.

    The same input gives the same result. `most_schedules` bounds it, with a warning: assert that the result is
    `complete`. Those with the fewest faults come first. `replay` plays one schedule, as a story names it. `check=False`
    returns the violations instead of raising them. `seconds` is the function's time limit. `store` makes the store of
    each schedule, a `MemoryStore` or a class made from it.

    Raises TypeError or ValueError for what cannot be explored, with the remedy.
    """
    __tracebackhide__ = True
    consumer = _consumer_of(handler)
    options.require_numbers(seconds=seconds)
    options.require_count(most_schedules, "most_schedules")
    counts: list[tuple[str, object, int, int]] = [
        ("workers", workers, 1, MOST_WORKERS),
        ("faults", faults, 0, MOST_FAULTS),
    ]
    for name, value, least, most in counts:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"{name} must be a whole number from {least} to {most}; it is {value!r}")
    reasons: list[tuple[str, object]] = [("network", network), ("no_effects", no_effects)]
    for name, why in reasons:
        if why is not None and (not isinstance(why, str) or not why.strip()):
            raise TypeError(f"{name} must be the reason, a str such as 'a local emulator'; it is {why!r:.100}")
    for name, mapping in (("tables", tables), ("state", state)):
        if mapping is not None and not isinstance(mapping, Mapping):
            raise TypeError(f"{name} must be a dict with a name for each, {{'orders': ...}}; it is {mapping!r:.100}")
    made = None if tables is None else {name: _table(one) for name, one in tables.items()}
    containers = {} if state is None else dict(state)
    _require_containers(containers)
    only = None if replay is None else Schedule.parsed(replay)
    _require_store_class(store)
    setup = Setup(
        handler=handler,
        consumer=consumer,
        records=_records(messages),
        tables=made,
        state=containers,
        workers=workers,
        seconds=seconds,
        make_store=store,
    )
    with _alone, outside.closed(but=network) as requests, stuck.watched():
        cast = Cast(setup)
        search = _Search(cast, faults, most_schedules, requests)
        try:
            with cast.in_place():
                search.run(only, may_do_nothing=no_effects is not None)
        except stuck.Stuck:
            search.stop_stuck()
        finally:
            setup.restore()
    if check:
        search.result.check()
    if not search.result.complete and not search.result.violations and only is None:
        warnings.warn(
            f"explore played {most_schedules} schedules and not all of them: raise most_schedules, or lower workers, "
            "faults or the number of messages",
            stacklevel=2,
        )
    return search.result


class _Search:
    """Schedules in the order of how much happens in them, and what they have shown."""

    def __init__(self, cast: Cast, faults: int, most_schedules: int, requests: Sequence[str]) -> None:
        self.result = Exploration()
        self._requests = requests
        """What was refused because it would have left the test."""
        self._cast, self._faults, self._most = cast, faults, most_schedules
        self._told: list[_Told] = []
        self._calls: dict[tuple[str, str | None], tuple[int, int]] = {}
        self._repeated: dict[str, Schedule] = {}
        """For each fake that was called again with its key: the first schedule in which it was."""

    def run(self, only: Schedule | None, *, may_do_nothing: bool) -> None:
        """Play all schedules, or only one."""
        self._baseline = Baseline(lambda: self._cast.play(Schedule(), alone=True))
        undisturbed = self._baseline.trial
        self.result.effects, self.result.acknowledged = undisturbed.tables, undisturbed.ends
        found = [
            *self._sent(),
            *verdict.early(undisturbed),
            *verdict.unawaited(undisturbed),
            *verdict.unfinished(undisturbed),
        ]
        if not may_do_nothing and self._baseline.unrepeatable is None:
            found += verdict.unseen(undisturbed)
        if found and found[0].subject.startswith((verdict.UNACKNOWLEDGED, "handled")):
            _cut(undisturbed.story, after=f"leaves {found[0].subject.split()[1]} to be delivered again")
        # The first is the reason for the others: a handler that cannot send fails.
        self._tell(found[:1], undisturbed)
        if self._told or not self._repeats():
            return
        waiting: deque[tuple[Schedule, str]] = deque([(Schedule() if only is None else only, "")])
        while waiting and len(self._told) < MOST_VIOLATIONS and self.result.schedules < self._most:
            schedule, label = waiting.popleft()
            self.result.schedules += 1
            trial = self._played(schedule, label, slowly=only is not None)
            if trial is None:
                return
            self._count(trial)
            if only is None:
                for longer in schedule.extended(trial.decisions.points, self._faults, DELAYS):
                    waiting.append((longer, trial.decisions.points[longer[-1][0]].label))
        self.result.complete = only is None and not waiting
        if only is None and not self._told:
            for schedule in dict.fromkeys(self._repeated.values()):
                self._played(schedule, slowly=True)
        self.result.calls = [Called(*who, *most) for who, most in sorted(self._calls.items(), key=repr)]
        self.result.unstable = sorted(f"{one})" if "(" in one else one for one in self._baseline.unstable)

    def stop_stuck(self) -> None:
        """Tell where the handler did not go on."""
        told = f"the handler did not go on for {stuck.MOST_SECONDS:g} seconds, and was stopped"
        remedy = f"end every loop and every wait, and {verdict.NO_LOCK}"
        trial = self._cast.trial
        _cut(trial.story, after="does not go on")
        self._tell([Finding("stuck", told, remedy)], trial)

    def _sent(self) -> list[Finding]:
        """What the handler would have sent, past its transaction and every fake."""
        what = "by a client of its own, and nothing takes that back after a crash"
        remedy = (
            "write by the Transaction, or put a fake in the client's place, as the fixture calls does; what only reads "
            "may be a plain function. Where a client must have its server, say which: network='DynamoDB Local'"
        )
        return [Finding(one, f"the handler {one} {what}", remedy) for one in dict.fromkeys(self._requests)]

    def _repeats(self) -> bool:
        why = self._baseline.unrepeatable
        if why is not None:
            told = f"the same messages from the same tables end differently from one time to the next: {why}"
            self._tell(_not_repeatable(told), self._baseline.trial)
        return why is None

    def _played(self, schedule: Schedule, label: str = "", *, slowly: bool = False) -> Trial | None:
        """The trial of a schedule; None where there can be no more. `slowly`, so that a key made of the time is another
        on the next attempt: in a schedule that is played fast, a second is almost always the same.
        """
        trial = self._cast.play(schedule, slowly=slowly)
        last = schedule[-1][0] if schedule else -1
        if trial.decisions.diverged or (label and label != trial.decisions.points[last].label):
            self._tell(_not_repeatable("the handler makes other calls from one schedule to the next"), trial)
            return None
        found = list(verdict.findings(trial, self._baseline))
        if any(one.by_value for one in found) and self._baseline.look_again():
            if not self._repeats():
                return None
            found = list(verdict.findings(trial, self._baseline))
        new = self._new(found)
        # A key made of the time is found again when a second has passed.
        if new and not (self._found_again(new, schedule, slowly) or self._found_again(new, schedule, slowly=True)):
            self._tell(_not_repeatable("the same schedule ends differently from one time to the next"), trial)
            return None
        self._tell([*self._sent(), *found], trial)
        return trial

    def _found_again(self, wanted: Sequence[Finding], schedule: Schedule, slowly: bool) -> bool:
        """Whether it was the schedule, and not chance."""
        trial = self._cast.play(schedule, slowly=slowly)
        return {one.subject for one in wanted} <= {one.subject for one in verdict.findings(trial, self._baseline)}

    def _new(self, findings: Sequence[Finding]) -> Sequence[Finding]:
        """What no earlier trial has found."""
        known = frozenset().union(*(told.subjects for told in self._told))
        return [one for one in findings if one.subject not in known]

    def _count(self, trial: Trial) -> None:
        self.result.played.update((trial.decisions.points[at].kind, what) for at, what in trial.schedule)
        for who, calls in verdict.by_message(trial.calls).items():
            times, keys = self._calls.get(who, (0, 0))
            self._calls[who] = max(times, len(calls)), max(keys, len(verdict.distinct(calls)))
        for name in trial.repeated:
            self._repeated.setdefault(name, trial.schedule)

    def _tell(self, findings: Sequence[Finding], trial: Trial) -> None:
        """Add what no earlier trial has found. Of trials with as few faults, the shortest story stays."""
        by_subject = {one.subject: one for one in findings}
        for place, told in enumerate(self._told):
            shorter = len(trial.schedule) <= len(told.schedule) and len(trial.story) < len(told.story)
            if shorter and told.subjects <= by_subject.keys():
                self._told[place] = _Told([by_subject[one.subject] for one in told.findings], trial)
        new = self._new(findings)
        if new:
            self._told.append(_Told(new, trial))
        self.result.violations = [told.violation for told in self._told]


class _Told:
    """What one trial has shown to be wrong."""

    def __init__(self, findings: Sequence[Finding], trial: Trial) -> None:
        self.findings, self.story, self.schedule = findings, trial.story, trial.schedule
        self.subjects = frozenset(one.subject for one in findings)

    @property
    def violation(self) -> Violation:
        """With the first remedy: what is done about the first finding often ends the others."""
        what = "\n".join(one.text for one in self.findings)
        return Violation(what, self.findings[0].remedy, tuple(_short(self.story)), str(self.schedule))


def _cut(story: list[str], *, after: str) -> None:
    """Leave out what comes later: the same again."""
    last = next((place for place, line in enumerate(story) if line.endswith(after)), len(story))
    del story[last + 1 :]


def _short(story: list[str]) -> list[str]:
    """A long story without its middle."""
    return story if len(story) <= LONGEST_STORY else [*story[: LONGEST_STORY - 10], "...", *story[-9:]]


def _not_repeatable(why: str) -> Sequence[Finding]:
    remedy = (
        "give what the handler keeps in its module (a cache, a counter) as state={'name': ...}, so that each schedule "
        "begins with it as it was; replace what draws random numbers or reads the time; and let a look-up whose answer "
        "is kept be a plain function, without a fake of `Calls`"
    )
    return [Finding("repeat", why, remedy)]


def _consumer_of(handler: object) -> Consumer:
    """The consumer, below whatever decorates it. Raises TypeError for anything else."""
    found: Any = handler
    while not isinstance(found, Consumer) and hasattr(found, "__wrapped__"):
        found = found.__wrapped__
    if isinstance(found, Consumer):
        return found
    name = getattr(handler, "__qualname__", repr(handler))
    raise TypeError(
        f"explore takes the handler that @sqs_consumer(...) has made, and {name} is none: decorate it, with decorators "
        "outside that use functools.wraps. What "
        "@http_endpoint or @idempotent has made cannot be explored: call it twice with a MemoryStore"
    )


def _records(messages: object) -> Sequence[Item]:
    """The messages as Lambda delivers them. Raises TypeError or ValueError where there are none."""
    if isinstance(messages, Mapping) and isinstance(messages.get("Records"), list):
        records: Sequence[Item] = messages["Records"]
    else:
        several = isinstance(messages, Sequence | Iterator) and not isinstance(messages, str | bytes)
        bodies = typing.cast("Iterable[object]", messages) if several else [messages]
        records = sqs_event(*map(body_of, bodies))["Records"]
    if not records:
        raise ValueError("explore needs a message at least: explore(handler, [{...}]), or an event of sqs_event")
    lacking = [
        name
        for name in ("messageId", "body", "attributes", "eventSourceARN", "messageAttributes")
        if any(name not in record for record in records)
    ]
    if lacking:
        raise ValueError(f"the event's messages lack {', '.join(lacking)}: make it with sqs_event(...)")
    ids = [record["messageId"] for record in records]
    if len(set(ids)) < len(ids):
        raise ValueError(f"messages must have messageIds of their own; they are {ids}")
    return records


def _table(one: object) -> Table:
    if isinstance(one, Table):
        return one
    if isinstance(one, str) or (isinstance(one, tuple) and one and all(isinstance(name, str) for name in one)):
        return Table(one)
    raise TypeError(f"tables names each table's key, {{'orders': 'order_id'}}, or is a Table; it has {one!r}")


def _require_store_class(store: object) -> None:
    if not callable(store) or (isinstance(store, type) and not issubclass(store, MemoryStore)):
        raise TypeError(f"store must be MemoryStore, or a class made from it; it is {store!r:.100}")


def _require_containers(state: Mapping[str, object]) -> None:
    for name, one in state.items():
        if not isinstance(one, CONTAINERS):
            kinds = "a dict, a list, a set, or the MemoryStore of an @idempotent function, or vars(...) of an object"
            raise TypeError(f"state must hold what can be put back, {kinds}; {name} is {one!r:.100}")
