"""Lambda's context: the parts that the library uses."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.manual_clock import ManualClock


@dataclass
class Context:
    """An invocation with that many seconds on a manual clock, from the creation of the context.

    Without a clock its time stands still.
    """

    clock: ManualClock = field(default_factory=ManualClock)
    seconds: float = 30.0
    aws_request_id: str = "invocation-1"
    function_name: str = "function"

    def __post_init__(self) -> None:
        self.ends = self.clock.seconds + self.seconds

    def get_remaining_time_in_millis(self) -> int:
        """The time left."""
        return int((self.ends - self.clock.seconds) * 1000)
