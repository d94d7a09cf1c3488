"""An executor without threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class AtOnce:
    """An executor that runs each job at once, and reports it at the next step."""

    def __init__(self) -> None:
        self.finished: list[tuple[Callable[[Any], None], Any]] = []

    def start(self, job: Callable[[], Any], then: Callable[[Any], None]) -> None:
        self.finished.append((then, job()))

    def start_async(self, job: Any, then: Any) -> None:
        raise NotImplementedError

    def tell(self, then: Callable[[Any], None], result: Any) -> None:
        self.finished.append((then, result))

    def step(self, timeout_seconds: float | None) -> None:
        finished, self.finished = self.finished, []
        assert finished, "the receiver waits, and nothing is under way"
        for then, result in finished:
            then(result)

    def cancel_async(self) -> None: ...

    def close(self, within_seconds: float | None) -> None: ...
