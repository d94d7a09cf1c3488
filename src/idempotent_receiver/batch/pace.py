"""How long handlers take, and what it says of those to come: how far claims may run ahead, and when none starts."""

from dataclasses import dataclass

from idempotent_receiver.clock import Deadline

FEW_ROUND_TRIPS_SECONDS = 0.05
"""What is done within so short a time would wait for claims most of it."""

FEW_RUNS = 25
"""How many runs tell a pace, which is the mean of about so many."""

STALL_SECONDS = 0.25
"""After so long without the end of any run or transaction, nobody knows when there will be one."""


@dataclass(slots=True)
class Pace:
    """How long a consumer's handler has taken lately, transactions included; None while too few have run to tell. It is
    kept from one invocation to the next, and nothing but how far claims run ahead depends on it.
    """

    seconds: float | None = None


class Forecast:
    """What a batch's runs so far, and the `pace` of batches before, say of the runs to come.

    Lanes tell of their runs while their caller asks. Two at once may lose a run, which a mean can do without.
    """

    def __init__(self, pace: Pace, deadline: Deadline, *, concurrency: int, stop_margin_seconds: float) -> None:
        self._longest_run_seconds = 0.0
        self._pace = pace
        self._deadline = deadline
        self._concurrency = concurrency
        self._stop_margin_seconds = stop_margin_seconds
        self._runs = 0
        self._mean_seconds = 0.0
        self._progress_seconds = 0.0
        self._turned_slow = False

    def begun(self) -> None:
        """Something starts where nothing was under way."""
        self._progress_seconds = self._deadline.elapsed_seconds

    def run_ended(self, started_seconds: float) -> None:
        """A handler has ended that began then, whatever else it waits for."""
        self._longest_run_seconds = max(self._longest_run_seconds, self._deadline.elapsed_seconds - started_seconds)

    def done(self, started_seconds: float) -> None:
        """A run that began then has ended, and so has its transaction."""
        now_seconds = self._deadline.elapsed_seconds
        self._progress_seconds = now_seconds
        self._runs += 1
        self._mean_seconds += (now_seconds - started_seconds - self._mean_seconds) / min(self._runs, FEW_RUNS)
        if self._runs >= FEW_RUNS:
            self._pace.seconds = self._mean_seconds

    def turn_slow(self) -> None:
        """Count the handlers as slow for the rest of the batch, however quick they are again."""
        self._turned_slow = True

    @property
    def left_seconds(self) -> float:
        """How long runs may still start: until no more is left than the stop margin and the longest run seen."""
        return self._deadline.left_seconds - self._needed_seconds

    def out_of_time(self) -> bool:
        """Whether another run may not fit, by whichever clock says that it is later."""
        return self._deadline.left_to_start_seconds <= self._needed_seconds

    @property
    def _needed_seconds(self) -> float:
        return self._stop_margin_seconds + self._longest_run_seconds

    def stalls_in_seconds(self) -> float:
        """How long until what is under way has taken suspiciously long; 0 where it has."""
        return max(0.0, self._progress_seconds + STALL_SECONDS - self._deadline.elapsed_seconds)

    def in_time(self, items: int) -> bool:
        """Whether so many more will be done, as far as anybody knows, in half of the time in which they may start."""
        return self._expected_seconds() * items / self._concurrency * 2 < self.left_seconds

    def soon_done(self, items: int) -> bool:
        """Whether so many more would be done in a few round trips at the pace so far; and in half of the time left even
        if each took as long as the slowest so far, and all of them stalled.
        """
        if self._pace.seconds is None or self._turned_slow:
            return False
        each = items / self._concurrency
        at_worst = STALL_SECONDS + self._longest_run_seconds * each
        return self._expected_seconds() * each <= FEW_ROUND_TRIPS_SECONDS and at_worst * 2 < self.left_seconds

    def _expected_seconds(self) -> float:
        """How long a run will take: as lately, or as in batches before until enough have run in this one."""
        if self._runs >= FEW_RUNS:
            return self._mean_seconds
        return max(self._mean_seconds, self._pace.seconds or 0.0)
