"""Findings at the end of a run, from comparing it with the fault-free run message by message and item by item."""

from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from idempotent_receiver.testing.baseline import Baseline, arguments_of, result_of, subtracted
from idempotent_receiver.testing.calls import Call
from idempotent_receiver.testing.explored_run import ExploredRun
from idempotent_receiver.testing.varying import without

ALL_OF_IT = (
    "write it through the Transaction, or keep effects='any': effects='transaction' promises that the handler has no "
    "other effects, and without a claim two workers can handle one message at the same time"
)
"""The remedy for an unclaimed handler that has effects outside its transaction."""


OUTSIDE_OF_IT = "write it through the Transaction, or pass an idempotency key so that the other side can deduplicate"


NO_LOCK = (
    "hold no lock while calling a fake, or replace the lock with contextlib.nullcontext(): workers share your module "
    "here, and a worker that crashes or waits keeps its lock"
)


KEPT_RESULT = (
    "let the @idempotent function return a value that comes back from JSON as its return annotation, without a change: "
    "its log says what would differ. Or remove the annotation: a replay then returns the result's JSON form"
)


SAME_EFFECTS = (
    "a message must have the same effects whenever it is handled, however many attempts came before: name the data "
    "that effects depend on in `tx.get(..., attributes=[...])`, so that they commit only if it has not changed, "
    "and write it with `tx.update`"
)


UNACKNOWLEDGED = "unacknowledged"


class HandlerFinding(NamedTuple):
    """A problem. Findings with the same `subject` are the same problem; `text` describes it in one run."""

    subject: str
    text: str
    remedy: str
    by_value: bool = False
    """Whether the finding compares values, which can depend on the time of day."""


def unfinished(fault_free: ExploredRun) -> Iterator[HandlerFinding]:
    """Messages that are never acknowledged even in the fault-free run, or that never reach the handler."""
    for id in fault_free.setup.record_ids:
        if id not in fault_free.ends:
            yield HandlerFinding(
                f"{UNACKNOWLEDGED} {id}",
                f"{id} is never acknowledged, even in the fault-free run{because(fault_free, id)}",
                "let the handler succeed, or raise PermanentError: a handler that always fails cannot be explored",
            )
        elif not fault_free.handled:
            yield HandlerFinding(
                f"handled {id}",
                f"the handler never runs for {id}{because(fault_free, id)}",
                "pass at least one body that the handler accepts: a handler that never runs cannot be explored",
            )


def early(run: ExploredRun) -> Iterator[HandlerFinding]:
    """Messages that SQS deletes too early."""
    for id in run.early:
        yield HandlerFinding(
            f"early {id}",
            f"{id} was acknowledged although its record is not COMPLETED",
            _remedy_of_early(run, id),
        )


def _remedy_of_early(run: ExploredRun, id: str) -> str:
    if not run.setup.keeps_its_key(id):
        return (
            "use `key=message_id`, or make the key from the body: a redriven message has a new messageId, and with it "
            "another key, so a message that was done may run again"
        )
    if run.setup.decorated:
        return "decorators around the consumer must pass on the event, the response and any exception unchanged"
    return "this is a bug in the store or the library: please report it"


def unseen(fault_free: ExploredRun) -> Iterator[HandlerFinding]:
    """A handler without observable effects, whose runs cannot be compared."""
    if not fault_free.touched and set(fault_free.ends.values()) == {"completed"}:
        yield HandlerFinding(
            "unseen",
            "the handler runs but has no visible effect: it touches no table, no state and no fake",
            "declare what it changes: tables={...} for its Transaction, state={...} for module-level state, "
            "calls.replace(...) for functions that it calls. If it changes nothing, say why: "
            "no_effects='it only counts'",
        )


def because(run: ExploredRun, id: str) -> str:
    """Why a message failed, after a colon, or nothing if the run does not know."""
    return f":\n  {run.why[id]:.300}" if id in run.why else ""


def all_of(run: ExploredRun, baseline: Baseline) -> Iterator[HandlerFinding]:
    """Everything wrong with a run."""
    wanted, unstable = baseline.run, baseline.unstable
    yield from early(run)
    yield from in_vain(run)
    unclaimed = run.setup.consumer.options.effects == "transaction"
    ends, effects = [*_ends(run, wanted)], [*_effects_of(run, baseline, unclaimed=unclaimed)]
    if run.setup.at_most_once and run.ends != wanted.ends:
        # The messages that failed for good may lack their effects. Which effects, only a single message tells.
        effects = [one for one in effects if len(wanted.ends) == 1 and not _as_before(run, *one.subject.split(" ", 1))]
    refused = _refused(run, wanted)
    # A message whose call was refused may end differently, but must end.
    yield from (ends if not refused else [one for one in ends if one.subject.startswith(UNACKNOWLEDGED)])
    for finding in _calls(run.calls, wanted.calls):
        yield finding._replace(remedy=ALL_OF_IT) if unclaimed else finding
    yield from _missing(run, wanted, {message for _, message in refused})
    yield from unawaited(run)
    yield from _one_key(run, baseline)
    yield from _twice_with_one_key(wanted)
    for name, message in _additional(run, wanted):
        if message not in {one.message for one in run.refused}:
            yield HandlerFinding(
                f"additional {name}",
                f"{name} was called for {message}, but not in the fault-free run",
                "a lost answer does not mean that nothing happened: repeat the same call with the same key, or "
                "do not catch the error; declare a look-up with no_effects='it only reads'",
            )
    if not refused:
        yield from effects
        return
    # A fake that refused did not write its own data, so missing data there says nothing about the handler.
    effects = [one for one in effects if tuple(one.subject.split(" ", 1)) not in wanted.faked]
    if not (ends or effects or _additional(run, wanted)) and _results(run, unstable) == _results(wanted, unstable):
        for name, message in refused:
            yield HandlerFinding(
                f"refused {name}",
                f"{name} was refused for {message}, which ends as if the call had succeeded",
                "do not catch the error of a refused call, so that the message is redelivered, or let the message end "
                "differently: with a PermanentError, or with another status in the data that it writes",
            )


def _as_before(run: ExploredRun, kind: str, name: str) -> bool:
    """Whether a table or state is as it was when the run started."""
    (tables, state), found = run.before, {**run.tables} if kind == "table" else run.state
    return bool(found.get(name, []) == (tables if kind == "table" else state).get(name, []))


def in_vain(run: ExploredRun) -> Iterator[HandlerFinding]:
    """Calls whose messages then failed for good, because a condition of their transactions failed."""
    for call in run.in_vain:
        yield HandlerFinding(
            f"in vain {call.name}",
            f"{call.name} was called for {call.message}, whose transaction was then refused for good",
            "let the transaction call it (`tx.call`), or send a message (`tx.send`): then it happens only if the "
            "transaction commits; declare a look-up with no_effects='it only reads'",
        )


def _refused(run: ExploredRun, wanted: ExploredRun) -> Sequence[tuple[str, str | None]]:
    """The fake and message of each call that was refused and never succeeded, but succeeds in the fault-free run."""
    found, expected = by_message(run.calls), by_message(wanted.calls)
    return [who for who in by_message(run.refused) if _effects(found.get(who, [])) < _effects(expected.get(who, []))]


def _additional(run: ExploredRun, wanted: ExploredRun) -> Sequence[tuple[str, str | None]]:
    """The fake and message of each call that the fault-free run does not make."""
    expected = by_message(wanted.calls)
    return [who for who in by_message(run.calls) if who not in expected and who[1] is not None]


def _results(run: ExploredRun, unstable: AbstractSet[str]) -> Sequence[Any]:
    return [without(result, unstable, result_of(id)) for id, result in run.results.items()]


def unawaited(run: ExploredRun) -> Iterator[HandlerFinding]:
    """Calls whose coroutines had not finished when the handler returned."""
    for call in run.unawaited:
        yield HandlerFinding(
            f"unawaited {call.name}",
            f"{call.name} was called for {call.message} and had not been awaited when the handler returned",
            "await it in an `async def` handler: a task left running is cancelled, and a coroutine that is not awaited "
            "never runs",
        )


def _effects_of(run: ExploredRun, baseline: Baseline, *, unclaimed: bool) -> Iterator[HandlerFinding]:
    """Tables and state that differ from the fault-free run."""
    wanted, unstable = baseline.run, baseline.unstable
    for table in sorted(run.tables.keys() | wanted.tables.keys()):
        found, expected = (
            [without(item, unstable, table) for item in one.tables.get(table, [])] for one in (run, wanted)
        )
        yield from _items(table, found, expected, own=table in run.setup.own)
    for name in sorted(run.state):
        left, right = (without(one.state[name], unstable, name) for one in (run, wanted))
        if left != right:
            yield HandlerFinding(
                f"state {name}",
                f"{name} is {left!r} at the end, and {right!r} in the fault-free run",
                ALL_OF_IT if unclaimed else OUTSIDE_OF_IT,
                by_value=True,
            )


def _ends(run: ExploredRun, wanted: ExploredRun) -> Iterator[HandlerFinding]:
    for id, end in wanted.ends.items():
        found = run.ends.get(id)
        if found != end and not (run.setup.at_most_once and found in ("dead letter", "failed for good")):
            if "different event loop" in run.why.get(id, ""):
                remedy = NO_LOCK
            elif "ResultUnavailable" in run.why.get(id, ""):
                remedy = KEPT_RESULT
            elif len(run.setup.groups()) > 1:
                remedy = "SQS can deliver these messages in any order: each must end the same way in every order"
            else:
                remedy = "a later attempt must be able to repeat what the first one did"
            told = f"{id} is {found or 'never acknowledged'}, but {end} in the fault-free run"
            yield HandlerFinding(f"end {id}" if found else f"{UNACKNOWLEDGED} {id}", told, remedy)


def _calls(found: Sequence[Call], wanted: Sequence[Call]) -> Iterator[HandlerFinding]:
    expected = by_message(wanted)
    for (name, message), calls in by_message(found).items():
        if calls[0].at_least_once:
            continue
        whose = f"for {message}" if message is not None else "outside any message"
        before = expected.get((name, message), [])
        keys = distinct(calls)
        if len(keys) > max(1, len(distinct(before))):
            text = f"{name} was called again {whose} with a different key: {', '.join(keys)}"
            remedy = "pass message.idempotency_key, or a key made from it: it is the same on every attempt"
            yield HandlerFinding(f"key {name}", text, remedy)
        keyless, once = (sum(call.key is None for call in some) for some in (calls, before))
        if keyless > max(once, 0 if before else 1):
            times = "once" if keyless == 1 else f"{keyless} times"
            text = f"{name} was called {times} {whose}, without an idempotency key"
            remedy = (
                'pass message.idempotency_key to it, in the parameter that its fake\'s key="..." names. If the target '
                "knows no key, say why: at_least_once='SES takes no key'; if it only reads: no_effects='it only reads'"
            )
            yield HandlerFinding(f"call {name}", text, remedy)


def _missing(run: ExploredRun, wanted: ExploredRun, refused: Container[str | None]) -> Iterator[HandlerFinding]:
    """Calls that were never made, although none was refused and their messages ended as expected."""
    if run.ends != wanted.ends:
        return
    found = by_message(run.calls)
    for (name, message), expected in by_message(wanted.calls).items():
        calls = found.get((name, message), [])
        # A call without a message comes from a thread, which may outlive the run.
        if message is not None and message not in refused and _effects(calls) < _effects(expected):
            made = "was never called" if not calls else "was called too few times"
            yield HandlerFinding(
                f"missing {name}",
                f"{name} {made} for {message}, which ended as it does in the fault-free run",
                "make the call in every attempt, with message.idempotency_key: an earlier attempt may have "
                "crashed before the call; declare a look-up with no_effects='it only reads'",
            )


def _one_key(run: ExploredRun, baseline: Baseline) -> Iterator[HandlerFinding]:
    """Different calls, for one message or several, that share a key."""
    by_key: dict[tuple[str, str], list[Call]] = defaultdict(list)
    for call in run.calls:
        if call.key is not None and not call.at_least_once:
            by_key[call.name, repr(call.key)].append(call)
    bodies = {run.setup.key_of(of or id): _body(run, id) for id, of in run.setup.record_ids.items()}
    for (name, _), calls in by_key.items():
        different = _distinct_by([without(call.given, baseline.unstable, arguments_of(call)) for call in calls], calls)
        whose = {call.message: bodies[call.message] for call in calls if call.message in bodies}
        if len(different) > 1:
            yield HandlerFinding(
                f"arguments {name}",
                f"{name} received the same key for different calls: {', '.join(map(str, different))}",
                "give each call its own key, such as f'{message.idempotency_key}-freight', and the same arguments "
                "on every attempt: a service ignores or refuses a key that it has already seen",
                by_value=True,
            )
        elif len(set(whose.values())) > 1:
            yield HandlerFinding(
                f"shared {name}",
                f"{name} received the same key for two messages: {calls[0]} for {' and '.join(map(str, whose))}",
                "make the key from message.idempotency_key, unique to each message: a service ignores a key that it "
                "has already seen",
            )


def _twice_with_one_key(fault_free: ExploredRun) -> Iterator[HandlerFinding]:
    """Calls that reuse a key within one run of the handler, although nothing went wrong."""
    made = Counter(
        (one.name, repr(one.key), one.message, one.run) for one in fault_free.calls if one.key and not one.at_least_once
    )
    for (name, _, message, run), times in made.items():
        if times > 1 and run is not None:
            yield HandlerFinding(
                f"twice {name}",
                f"{name} received the same key for two identical calls for {message}",
                "give each call its own key, such as f'{message.idempotency_key}-1': a service treats the second "
                "as a repeat of the first",
            )


def _body(run: ExploredRun, id: str) -> str:
    return next(str(record["body"]) for record in run.setup.records if record["messageId"] == id)


def _distinct_by(given: Sequence[object], calls: Sequence[Call]) -> Sequence[Call]:
    """One call for each distinct value in `given`."""
    return [call for place, call in enumerate(calls) if given.index(given[place]) == place]


def _effects(calls: Sequence[Call]) -> int:
    """The number of effects that calls count as: one per key, and one per group of identical calls without a key."""
    return len({repr(call.key) if call.key is not None else str(call) for call in calls})


def by_message(calls: Sequence[Call]) -> Mapping[tuple[str, str | None], list[Call]]:
    """Calls grouped by fake and message."""
    found: dict[tuple[str, str | None], list[Call]] = defaultdict(list)
    for call in calls:
        found[call.name, call.message].append(call)
    return found


def distinct(calls: Sequence[Call]) -> list[str]:
    """The distinct keys of calls, as printed."""
    return list(dict.fromkeys(repr(call.key) for call in calls if call.key is not None))


def _items(table: str, found: list[Any], expected: list[Any], *, own: bool) -> Iterator[HandlerFinding]:
    extra, missing = subtracted(found, expected), subtracted(expected, found)
    if not extra and not missing:
        return
    ends = f"holds {_told(extra)}" if extra else f"lacks {_told(missing)}"
    instead = f" instead of {_told(missing)}" if extra and missing else ""
    yield HandlerFinding(
        f"table {table}",
        f"{'' if own else 'the table '}{table} {ends}{instead}",
        OUTSIDE_OF_IT if own else SAME_EFFECTS,
        by_value=True,
    )


def _told(items: list[Any]) -> str:
    return ", ".join(f"{item!r:.200}" for item in items[:3]) + (" ..." if len(items) > 3 else "")
