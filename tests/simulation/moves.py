"""What happens between deliveries, at times that the seed draws: late duplicates, dead letters that are sent back, keys
that are sent again once their records have expired, items that TTL deletes, and a deployment.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from tests.simulation.plan import DAY_SECONDS, Version
from tests.simulation.reached import declare, mark

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.simulation import Simulation

MOST_REDRIVES = 2
"""How often one message is sent back."""
MOVES = ("late duplicate", "redrive with stamp", "redrive without stamp", "sent again under its key", "TTL deletes")
declare("moves", [*MOVES, *(f"deployed: {name}" for name in Version.__dataclass_fields__)])


class Moves:
    """The moves of a simulation, each once, at its time."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation, plan = simulation, simulation.plan
        self.random = random = plan.source("at")
        moves = [self._deliver_late] * plan.late + [self._redrive] * plan.redrives + 3 * [self._delete] * plan.deletions
        self._agenda: list[tuple[float, Callable[[], None]]] = [(random.choice([2, 10, 50, 200]), one) for one in moves]
        if plan.deploy_at is not None:
            self._agenda.append((plan.deploy_at, self._deploy))
        if plan.expires:
            again = [self._send_again, self._deliver_late, self._redrive, self._delete]
            self._agenda += [(DAY_SECONDS, random.choice(again)) for _ in range(10)]
        # Records end a retention after they were written, so what comes then may meet them a little before or after.
        self._agenda = sorted(((at + random.random() * 50, move) for at, move in self._agenda), key=lambda one: one[0])
        self.last_at = self._agenda[-1][0] if self._agenda else 0.0
        if self._agenda:
            simulation.world.spawn(self._run)

    @property
    def next_at(self) -> float:
        return self._agenda[0][0] if self._agenda else inf

    def _run(self) -> None:
        while self._agenda and not self.simulation.monitor.violations:
            at, move = self._agenda[0]
            self.simulation.world.sleep(at - self.simulation.world.now)
            self._agenda.pop(0)
            move()
        self._agenda.clear()

    def _deliver_late(self) -> None:
        """A standard queue delivers a message once more that was deleted."""
        if self.simulation.plan.fifo:
            return
        if deleted := [message for message in self.simulation.messages if message.deleted]:
            message = self.random.choice(deleted)
            message.deleted, message.visible_at = False, self.simulation.world.now
            self.simulation.log(f"{message.id} comes late")
            mark("late duplicate")

    def _redrive(self) -> None:
        """Somebody sends a dead letter back, with our stamp or without."""
        for queue in self.simulation.queues:
            dead = [
                message
                for message in queue.messages.values()
                if (message.id in queue.dead_letters or message.dead_because is not None)
                and message.id not in queue.redriven
                and message.id.count("r") < MOST_REDRIVES
            ]
            if dead:
                message = self.random.choice(dead)
                stamped = self.random.random() < 0.5
                mark(f"redrive {'with' if stamped else 'without'} stamp")
                sent = queue.redrive(message, self.simulation.world.now, stamped=stamped)
                self.simulation.log(f"{message.id} is sent back as {sent.id}, {'with' if stamped else 'without'} stamp")

    def _send_again(self) -> None:
        """A producer sends a message again under its key; on a standard queue the queue may do so."""
        queue = self.random.choice(self.simulation.queues)
        message = self.random.choice([*queue.messages.values()])
        if not self.simulation.plan.keyed:
            return self._deliver_late()
        more = {"body": message.body, "result": message.result, "usable": message.usable}
        id = f"m{len(self.simulation.messages)}s"
        mark("sent again under its key")
        queue.send(id, message.group, self.simulation.world.now, message.key, **more)
        return None

    def _delete(self) -> None:
        """TTL deletes what has expired: at once, or as late as this."""
        self.simulation.monitor.delete_expired()

    def _deploy(self) -> None:
        """From now on new invocations are those of a new version."""
        self.simulation.log("a new version is deployed")
        self.simulation.deployed = True
        for name in (name for name, changed in self.simulation.plan.deployed.items() if changed):
            mark(f"deployed: {name}")
