"""Lambda's context, as far as the ways in look at it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.manual_clock import ManualClock


@dataclass
class Context:
    """An invocation that has `seconds` on a held clock, from when the context is made."""

    clock: ManualClock
    seconds: float = 30.0
    aws_request_id: str = "invocation-1"
    function_name: str = "function"

    def __post_init__(self) -> None:
        self.ends = self.clock.seconds + self.seconds

    def get_remaining_time_in_millis(self) -> int:
        """What is left."""
        return int((self.ends - self.clock.seconds) * 1000)
