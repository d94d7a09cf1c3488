"""A world of virtual time that can be ended where it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from greenlet import GreenletExit, greenlet

from tests.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Callable


class Clockwork(World):
    """A world that can be ended with all its greenlets."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.over = False
        self._spawned: list[greenlet] = []

    def spawn(self, job: Callable[[], object], after: float = 0.0) -> greenlet:
        self._spawned.append(super().spawn(job, after))
        return self._spawned[-1]

    def sleep(self, seconds: float) -> None:
        if self.over:
            raise GreenletExit
        super().sleep(seconds)

    def stop(self) -> Any:
        """What runs here never goes on."""
        if not self.over:
            self._hub.switch()
        raise GreenletExit

    def end(self) -> None:
        """End every greenlet where it stands."""
        self.over = True
        for one in self._spawned:
            while not one.dead:
                one.throw(GreenletExit)
