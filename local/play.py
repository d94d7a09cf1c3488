"""Plays a story on a stage: sends it, delivers some of it again, and waits for the end. Every wait has a bound."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from local.stage import StageError
from local.standin import Delivery
from local.story import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from local.stage import Backlog, Stage
    from local.standin import Line, Standin
    from local.story import Part, Story

MESSAGES_A_CALL = 10
ACTS_AT_ONCE = 3
POSTS = 3
"""How often a transfer is asked for over HTTP."""
QUIET_POLLS = 3
"""How often in a row the queue must say that it is empty: SQS counts approximately."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often to look, and for how long. `stall_seconds` is how long nothing at all may change."""

    poll_seconds: float
    stall_seconds: float
    limit_seconds: float
    limit_seconds_a_message: float = 0.1


LOCAL = Pace(poll_seconds=0.25, stall_seconds=45.0, limit_seconds=120.0)
REMOTE = Pace(poll_seconds=2.0, stall_seconds=180.0, limit_seconds=900.0)
SILENCE_SECONDS = 30.0
"""How long a function may take until its first word: it starts in a second or two, or not at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What is seen while the story plays."""

    sent: int
    queue: Backlog
    dead_letters: Backlog
    delivered_again: int


class Prompter(Protocol):
    """Says when the cue for an act has come, and with which record to play it."""

    def cue(self, part: Part) -> dict[str, Any] | None:
        """The part's SQS record, once its time has come."""

    def over(self, part: Part) -> None:
        """The part's act is over."""

    def check(self) -> None:
        """Raise what makes the evidence worthless, if anything does."""


class Player:
    """One performance."""

    def __init__(self, stage: Stage, story: Story, prompter: Prompter, sent: dict[str, str] | None = None) -> None:
        self.sent = {} if sent is None else sent
        self.delivered_again = 0
        self.replayed = 0
        self._stage = stage
        self._story = story
        self._prompter = prompter
        self._waiting = [part for part in story.parts if part.kind in _TIMES]
        self._acting: list[_Act] = []

    def send(self, said: Callable[[Progress], None]) -> None:
        """Send all of the story's messages, in its order, and play the acts whose cue comes meanwhile."""
        parts = self._story.parts
        for start in range(0, len(parts), MESSAGES_A_CALL):
            some = parts[start : start + MESSAGES_A_CALL]
            for part in (part for part in some if part.kind is Kind.POSTED):
                self.sent[part.name] = self._stage.post(part, POSTS)
                self.replayed += POSTS - 1
            direct = [part for part in some if part.kind is not Kind.POSTED]
            if direct:
                self.sent.update(self._stage.send(direct))
            self._act()
            said(self.progress())

    def finish(self, pace: Pace, said: Callable[[Progress], None]) -> str | None:
        """Wait until all acts are over and the queue is empty; None then, else what was waited for in vain."""
        limit_seconds = pace.limit_seconds + len(self.sent) * pace.limit_seconds_a_message
        begun = changed = time.monotonic()
        before, quiet = None, 0
        while True:
            self._act()
            now, seen = time.monotonic(), self.progress()
            said(seen)
            changed = changed if seen == before else now
            before = seen
            quiet = quiet + 1 if seen.queue.total == 0 and not self._waiting and not self._acting else 0
            if quiet == QUIET_POLLS:
                return None
            if now - changed > pace.stall_seconds:
                return f"for {pace.stall_seconds:.0f} s nothing changed: {self._state(seen)}"
            if now - begun > limit_seconds:
                return f"after {limit_seconds:.0f} s the story was not over: {self._state(seen)}"
            time.sleep(pace.poll_seconds)

    def progress(self) -> Progress:
        """What is to be seen now."""
        return Progress(
            sent=len(self.sent),
            queue=self._stage.backlog(self._stage.queue),
            dead_letters=self._stage.backlog(self._stage.dead_letter_queue),
            delivered_again=self.delivered_again,
        )

    def _state(self, seen: Progress) -> str:
        acts = f", and {len(self._waiting) + len(self._acting)} messages to deliver again" if self._waiting else ""
        return f"{seen.queue.waiting} messages in the queue and {seen.queue.in_flight} in flight{acts}"

    def _act(self) -> None:
        """Take in the acts that are over, and start those whose cue has come."""
        self._prompter.check()
        for act in [act for act in self._acting if act.over]:
            self._acting.remove(act)
            self.delivered_again += act.deliveries
            act.raise_failure()
        for part in [part for part in self._waiting if part.name in self.sent]:
            if len(self._acting) == ACTS_AT_ONCE:
                return
            record = self._prompter.cue(part)
            if record is not None:
                self._waiting.remove(part)
                self._acting.append(_Act(self._stage, part, record, self._prompter))


_TIMES = {Kind.AGAIN: 1, Kind.AT_ONCE: 2}
"""How many deliveries of our own a kind gets, all at the same time."""


class _Act:
    """A message's record, delivered again, beside everything else. Daemon threads: a Ctrl-C does not wait for AWS."""

    def __init__(self, stage: Stage, part: Part, record: Mapping[str, Any], prompter: Prompter) -> None:
        self.deliveries = _TIMES[part.kind]
        self._failure: Exception | None = None
        self._threads = [
            threading.Thread(target=self._deliver, args=(stage, record), daemon=True) for _ in range(self.deliveries)
        ]
        for thread in self._threads:
            thread.start()
        self._last = threading.Thread(target=self._close, args=(part, prompter), daemon=True)
        self._last.start()

    @property
    def over(self) -> bool:
        """Whether all deliveries were answered."""
        return not self._last.is_alive()

    def raise_failure(self) -> None:
        """Raise what went wrong, if anything did."""
        if self._failure is not None:
            raise self._failure

    def _deliver(self, stage: Stage, record: Mapping[str, Any]) -> None:
        try:
            stage.invoke(record)
        except Exception as error:  # noqa: BLE001  # raised again where the story is played
            self._failure = error

    def _close(self, part: Part, prompter: Prompter) -> None:
        for thread in self._threads:
            thread.join()
        prompter.over(part)


class StandinPrompter:
    """Cues from the stand-in, with the record that it saw delivered."""

    def __init__(self, standin: Standin) -> None:
        self._standin = standin
        self._begun = time.monotonic()

    def cue(self, part: Part) -> dict[str, Any] | None:
        """When its handler has ended well; or when it has started, and is held for us."""
        heard = self._standin.ended if part.kind is Kind.AGAIN else self._standin.started
        return self._standin.records[part.name] if part.name in heard else None

    def over(self, part: Part) -> None:
        """Let the handler go on that was held for this."""
        if part.kind is Kind.AT_ONCE:
            self._standin.let_go(part.name)

    def check(self) -> None:
        """Raise what the stand-in could not answer."""
        if self._standin.trouble is not None:
            raise StageError("the stand-in could not read the ledger") from self._standin.trouble
        if time.monotonic() - self._begun > SILENCE_SECONDS and not self._standin.lines():
            raise StageError(f"nothing was heard of the function for {SILENCE_SECONDS:.0f} s: it does not start")


class LedgerPrompter:
    """Cues where there is no stand-in: by what the ledger says. Logs what we deliver, as the stand-in would."""

    def __init__(
        self, stage: Stage, posted: Callable[[Sequence[str]], frozenset[str]], sent: Mapping[str, str]
    ) -> None:
        self.log: list[Line] = []
        self._stage = stage
        self._posted = posted
        self._sent = sent

    def cue(self, part: Part) -> dict[str, Any] | None:
        """When it is posted; or at once, to race with the queue."""
        done = part.name in self._posted([part.name])
        if part.kind is Kind.AGAIN and not done:
            return None
        id = self._sent[part.name]
        for place in range(_TIMES[part.kind]):
            now = time.time_ns() // 1_000_000
            line = Delivery(at_ms=now, invocation=f"ours-{place}", message_id=id, name=part.name, done=done)
            self.log.append(line)
        return self._stage.record_of(part, id)

    def over(self, part: Part) -> None:
        """Nothing is held."""

    def check(self) -> None:
        """The ledger is asked directly, and raises by itself."""
