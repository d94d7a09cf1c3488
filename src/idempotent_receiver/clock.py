"""The only source of time and randomness. No other module reads a clock or draws a random number."""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from idempotent_receiver.durable import durable_refusal, is_durable_context


class Clock(Protocol):
    """The time and randomness that the protocol needs."""

    def epoch_ms(self) -> int:
        """The wall clock, in milliseconds since 1970; it may step."""

    def monotonic_seconds(self) -> float:
        """A clock that never steps, from an arbitrary start."""

    def sleep(self, seconds: float) -> None:
        """Wait for that many seconds."""

    def fraction(self) -> float:
        """A random number in [0, 1), for jitter."""

    def versions(self, count: int) -> Sequence[str]:
        """`count` unique strings."""


class SystemClock:
    """The machine's clocks, and the operating system's entropy.

    Every call draws from the system: a generator in this process would repeat its numbers in copies of the process made
    by a snapshot or a fork.
    """

    def epoch_ms(self) -> int:
        """The wall clock, in milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    # A batch calls these most often, so they have no Python wrapper.
    monotonic_seconds = staticmethod(time.monotonic)
    """A clock that never steps, from an arbitrary start."""

    sleep = staticmethod(time.sleep)
    """Block this thread for that many seconds."""

    def fraction(self) -> float:
        """A random number in [0, 1)."""
        return secrets.randbelow(1 << 53) / (1 << 53)

    def versions(self, count: int) -> Sequence[str]:
        """`count` strings of 128 random bits, in hexadecimal, drawn at once: each draw can yield to another thread."""
        drawn = secrets.token_hex(16 * count)
        return [drawn[start : start + 32] for start in range(0, len(drawn), 32)]


def since_boot_seconds() -> float:
    """A clock that all processes on a Linux machine share and that keeps running while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Moment(NamedTuple):
    """One reading of the clocks: seconds since the invocation's start, and seconds left, which may be negative.

    `left_to_start_seconds` is the time left by whichever clock leaves less. Use it only to refuse claims and starts: a
    wall clock that steps forward must not drop finished work or make live leases look expired. `now_ms` is in epoch
    milliseconds, unaffected by clock steps since the start.
    """

    elapsed_seconds: float
    left_seconds: float
    left_to_start_seconds: float
    now_ms: int


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time by which this invocation's process must have ended, and the time left until then.

    The wall clock is read once, at the start, and advanced by the monotonic clock, so a step of the wall clock during
    the invocation changes neither a lease nor the time left. Only new starts use both clocks: while a machine is
    suspended, its monotonic clock stands still, but leases end and other workers take over.
    """

    clock: Clock
    started_epoch_ms: int
    started_monotonic_seconds: float
    budget_seconds: float

    @classmethod
    def of_invocation(cls, context: Any, clock: Clock | None) -> "Deadline":
        """The deadline of the invocation with this Lambda context. Raises TypeError if the context has no deadline."""
        require_context(context)
        return cls.after(clock, context.get_remaining_time_in_millis())

    @classmethod
    def after(cls, clock: Clock | None, milliseconds: int) -> "Deadline":
        """The deadline `milliseconds` from now. `clock` defaults to the system's."""
        clock = SystemClock() if clock is None else clock
        return cls(clock, clock.epoch_ms(), clock.monotonic_seconds(), milliseconds / 1000)

    @property
    def elapsed_seconds(self) -> float:
        """Seconds since the start."""
        return self.clock.monotonic_seconds() - self.started_monotonic_seconds

    @property
    def left_seconds(self) -> float:
        """Seconds until the deadline; negative afterwards."""
        return self.budget_seconds - self.elapsed_seconds

    def moment(self) -> Moment:
        """Read both clocks once."""
        elapsed = self.clock.monotonic_seconds() - self.started_monotonic_seconds
        left = self.budget_seconds - elapsed
        by_wall_clock = (self.clock.epoch_ms() - self.started_epoch_ms) / 1000
        to_start = min(left, self.budget_seconds - by_wall_clock)
        return Moment(elapsed, left, to_start, self.started_epoch_ms + int(elapsed * 1000))

    @property
    def now_ms(self) -> int:
        """Now, in epoch milliseconds, unaffected by clock steps since the start."""
        return self.started_epoch_ms + int(self.elapsed_seconds * 1000)

    @property
    def ends_ms(self) -> int:
        """The deadline itself, in epoch milliseconds."""
        return self.started_epoch_ms + int(self.budget_seconds * 1000)


def require_context(context: object) -> None:
    """Raise TypeError for a context that does not say how much time is left, or that is a durable function's."""
    if is_durable_context(context):
        raise durable_refusal("the handler")
    if not hasattr(context, "get_remaining_time_in_millis"):
        raise TypeError(
            "the handler needs Lambda's context, because the lease depends on its deadline: in a test, pass an object "
            "with get_remaining_time_in_millis(), aws_request_id and function_name"
        )
