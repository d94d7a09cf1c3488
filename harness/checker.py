"""Decides from a history alone (`history.py`) whether everything took effect once, and nothing was reported too early.

It imports nothing from the library, so it cannot share its errors: it knows no records, versions or leases, only what
clients saw.

**Why the check is complete.** For its clients a key is a register that is written once: an effect writes it, and an
acknowledgement or a reply that says "done" reads it as written. None ever reads "not done": a failure makes no claim.
So a key's operations have a legal order if and only if there is at most one write, every read returns the payload and
result of that write, and no read ended before the write can have happened. (Place the write at the first possible
moment, and each read at its end: that respects all intervals, and each read follows the write.) Keys share nothing, so
a history is linearisable if each key's is. Where general checkers search, this takes one pass.

Everything else is a rule of its own:

LOST     at the end every message has taken effect, is a dead letter, or is still in its queue
DOUBLED  no effect takes place twice, nor one that may be repeated once it is done, nor two payloads' under one key
WRONG    an effect moves what its message says; a forbidden effect, or that of a failed handler, does not happen
EARLY    nothing is acknowledged, or answered, before its effect has been applied or its dead letter confirmed
ANSWER   all answers to a key have its effect's result, and all but one are marked as replayed
AGAIN    no handler starts with a claim for a key that is done
BOTH     nothing is done and a dead letter. One exception: a late duplicate of a dead letter may be done, so its run
         must have started after the one that made the dead letter had ended
OVERLAP  while a claim is live, no other worker runs that key with a claim, and its own only after another run
LATE     no handler starts after its claim's end, except in a paused worker
ORDER    no message of a FIFO group starts or takes effect before all earlier ones are done or dead letters
MONEY    every account has its initial balance plus what the effects moved
STRANGER nothing happens to a message that was not sent, or in a worker that did not receive or start it
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from harness.by_key import NEVER, ByKey
from harness.history import Answered, Balance, Effect, Sent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from harness.by_key import Key, Run
    from harness.history import Event


class Finding(NamedTuple):
    """A violation: the rule, the key or message, and the events that show it."""

    rule: str
    of: str
    what: str
    events: tuple[Event, ...] = ()

    @property
    def told(self) -> str:
        return "; ".join([f"{self.of} {self.what}", *(str(event) for event in self.events)])


def check(history: Iterable[Event]) -> list[Finding]:
    """All violations in a history. Events at the same time are in the given order, and none of them counts as early."""
    seen = ByKey(sorted(history, key=lambda event: event.at))
    found = [finding for key in seen.keys.values() for finding in _of_key(key, seen)]
    found += [Finding("STRANGER", of, what, (event,)) for of, what, event in seen.strangers]
    return [*found, *_in_order(seen), *_balanced(seen)]


def _of_key(key: Key, seen: ByKey) -> Iterator[Finding]:
    done = _done_since(key)
    yield from _lost(key, seen)
    yield from _effects(key, done)
    yield from _early(key)
    yield from _answers(key)
    yield from _again(key, done, seen)
    yield from _both(key, done, seen)
    yield from _overlaps(key, seen)


def _done_since(key: Key) -> dict[str, float]:
    """Since when payloads of a key are certainly done: applied permanently, acknowledged, or answered as done."""
    payloads = {sent.message: sent.payload for sent in key.sent}
    confirmed = {letter.message for letter in key.letters}
    told = [(payloads[each.message], each.at) for each in key.acknowledged if each.message not in confirmed]
    told += [(answer.payload, answer.at) for answer in key.answers]
    since: dict[str, float] = {}
    for payload, at in (*told, *((effect.payload, effect.at) for effect in key.effects if effect.once)):
        since[payload] = min(at, since.get(payload, NEVER))
    return since


def _lost(key: Key, seen: ByKey) -> Iterator[Finding]:
    dead = {letter.message for letter in key.letters}
    applied = {effect.payload for effect in key.effects}
    for sent in key.sent:
        if sent.payload in applied:
            continue
        if sent.must or not (sent.message in dead or sent.message in seen.left):
            what = "must take effect, and never did" if sent.must else "is gone: no effect, no dead letter"
            yield Finding("LOST", sent.message, what, (sent, *key.acknowledged))


def _effects(key: Key, done: Mapping[str, float]) -> Iterator[Finding]:
    once = [effect for effect in key.effects if effect.once]
    for first, other in pairwise(once):
        yield Finding("DOUBLED", key.name, "took effect more than once", (first, other))
    for first, other in pairwise(key.effects):
        if first.payload != other.payload and not (first.once and other.once):
            yield Finding("DOUBLED", key.name, "two payloads took effect", (first, other))
    for effect in key.effects:
        run = key.maker(effect)
        if run is not None and run.failed and effect.once:
            yield Finding("WRONG", key.name, "took effect, and its handler failed", (run.start, effect))
        if not effect.once and _began(effect, run) > done.get(effect.payload, NEVER):
            yield Finding("DOUBLED", key.name, "took effect again after it was done", (effect,))
        for of in (each for each in key.sent if each.payload == effect.payload):
            if of.must is False:
                yield Finding("WRONG", of.message, "took effect, and must not", (of, effect))
            elif of.moves is not None and sorted(of.moves) != sorted(effect.moves):
                yield Finding("WRONG", of.message, "has another effect than it should", (of, effect))


def _began(effect: Effect, run: Run | None) -> float:
    """When it was decided that this takes place: during its run. Whether a claim may start is for AGAIN to judge."""
    if run is None or (run.end is not None and run.end.at < effect.earliest):
        return effect.earliest
    return run.start.at if run.start.until is None else 0.0


def _early(key: Key) -> Iterator[Finding]:
    earliest: dict[str, float] = {}
    for effect in key.made:
        earliest[effect.payload] = min(effect.earliest, earliest.get(effect.payload, NEVER))
    confirmed = {letter.message: letter.at for letter in reversed(key.letters) if letter.confirmed}
    payloads = {sent.message: sent.payload for sent in key.sent}
    for each in key.acknowledged:
        payload = payloads[each.message]
        if each.at < min(earliest.get(payload, NEVER), confirmed.get(each.message, NEVER)):
            yield Finding("EARLY", each.message, "was acknowledged before it was done", (each, *key.effects))
    for answer in key.answers:
        if answer.at < earliest.get(answer.payload, NEVER):
            yield Finding("EARLY", key.name, "was answered before it was done", (answer, *key.effects))


def _answers(key: Key) -> Iterator[Finding]:
    """The one result is the effect's, or the first answer's if the effect was not observed."""
    told: list[Effect | Answered] = [*key.effects, *key.answers]
    results = [one.result for one in told if one.result is not None]
    for answer in key.answers:
        if results and answer.result != results[0]:
            yield Finding("ANSWER", key.name, f"the result is {results[0]}, but an answer had another", (answer,))
        applied = max((effect.at for effect in key.effects if effect.payload == answer.payload), default=NEVER)
        if not answer.replayed and answer.since > applied:
            yield Finding("ANSWER", key.name, "it was done before the request, but not marked", (answer,))
    first = [answer for answer in key.answers if not answer.replayed]
    if len(first) > 1:
        yield Finding("ANSWER", key.name, "two requests were answered as the first", tuple(first))


def _again(key: Key, done: Mapping[str, float], seen: ByKey) -> Iterator[Finding]:
    for run in key.runs:
        start = run.start
        if start.until is None:
            continue
        late = start.at >= start.until
        if late and seen.paused_before(run):
            continue
        if late:
            yield Finding("LATE", start.message, "started after its claim had ended", (start,))
        if start.at > min(done.values(), default=NEVER):
            yield Finding("AGAIN", start.message, "started although its key was done", (start, *key.effects))


def _both(key: Key, done: Mapping[str, float], seen: ByKey) -> Iterator[Finding]:
    for letter in key.letters:
        if letter.worker is None:
            continue
        payload = seen.sent[letter.message].payload
        failed = _latest(key.runs, letter.worker, letter.at, letter.message)
        given = seen.delivered[letter.message, letter.worker]
        began = failed.start.at if failed else max((at for at in given if at <= letter.at), default=letter.at)
        over = failed.end.at if failed and failed.end else began
        if done.get(payload, NEVER) < began:
            yield Finding("BOTH", letter.message, "became a dead letter after it was done", (letter, *key.effects))
            continue
        for effect in key.effects:
            if effect.once and effect.payload == payload:
                ran = _latest(key.runs, effect.worker, effect.at)
                if (effect.earliest if ran is None else ran.start.at) < over:
                    yield Finding("BOTH", letter.message, "is a dead letter, but took effect", (letter, effect))


def _latest(runs: Sequence[Run], worker: str | None, at: float, message: str | None = None) -> Run | None:
    """The latest run that this worker had started by then."""
    for run in reversed(runs):
        if run.start.worker == worker and run.start.at <= at and message in (None, run.start.message):
            return run
    return None


def _overlaps(key: Key, seen: ByKey) -> Iterator[Finding]:
    holder: Run | None = None
    for run in key.runs:
        if run.start.until is None:
            continue
        if holder is not None and run.start.at < holder.holds_until and not _runs_again(holder, run):
            late = run.start.at >= run.start.until and seen.paused_before(run)
            if not late:
                what = f"{run.start.worker} started it, which {holder.start.worker} holds until {holder.holds_until}"
                yield Finding("OVERLAP", key.name, what, (holder.start, run.start))
        if holder is None or run.holds_until > holder.holds_until:
            holder = run


def _runs_again(holder: Run, run: Run) -> bool:
    """Whether the key's holder runs its handler again, because what it had read has changed."""
    same = (holder.start.worker, holder.start.message) == (run.start.worker, run.start.message)
    return same and holder.end is not None and holder.end.at <= run.start.at


def _in_order(seen: ByKey) -> Iterator[Finding]:
    groups: dict[str, list[Sent]] = defaultdict(list)
    for sent in seen.all(Sent):
        if sent.group is not None:
            groups[sent.group].append(sent)
    for group in groups.values():
        free_at, blocked_by = 0.0, None
        for sent in group:
            key = seen.keys[sent.key]
            for event in _doings(key, sent):
                if event.at < free_at:
                    what = f"came before {blocked_by} of its group had ended"
                    yield Finding("ORDER", sent.message, what, (event,))
            ended = _ended_at(key, sent)
            if ended > free_at:
                free_at, blocked_by = ended, sent.message


def _doings(key: Key, sent: Sent) -> Iterator[Event]:
    """The runs of a message, or the effect of its key if no runs were observed. A later run has no earlier effect."""
    yield from (run.start for run in key.runs if run.start.message == sent.message)
    if not key.runs and sent is key.sent[0]:
        yield from key.effects


def _ended_at(key: Key, sent: Sent) -> float:
    """When this stops blocking its group."""
    letters = (letter.at for letter in key.letters if letter.message == sent.message and letter.confirmed)
    effects = (effect.earliest for effect in key.made if effect.payload == sent.payload)
    return min(min(letters, default=NEVER), min(effects, default=NEVER))


def _balanced(seen: ByKey) -> Iterator[Finding]:
    balances = {event.account: event for event in seen.all(Balance)}
    moved: Counter[str] = Counter()
    for effect in seen.all(Effect) if balances else ():
        for account, amount in effect.moves:
            moved[account] += amount
    for account in sorted({*balances, *moved}):
        balance = balances.get(account)
        if balance is None:
            if moved[account]:
                yield Finding("MONEY", account, f"{moved[account]} went to an account that does not exist")
        elif balance.closing != balance.opening + moved[account]:
            yield Finding("MONEY", account, f"the effects have moved {moved[account]}", (balance,))
