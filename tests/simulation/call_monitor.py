"""Checks what callers are told, and what is written for them, against what the table and the handlers have done."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from idempotent_receiver.handler.attempt import marked
from idempotent_receiver.testing.world import START_EPOCH_SECONDS
from tests.simulation import call_process, invariants
from tests.simulation.call_process import CHARGE, ORDERS, PAY, SHIP, Reply, Request
from tests.simulation.invariants import Violation
from tests.simulation.reached import declare, mark
from tests.simulation.recorder import CallRecorder
from tests.simulation.table_monitor import HALF_MS, TableMonitor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.simulation.call_simulation import CallSimulation
    from tests.simulation.invariants import Item
    from tests.simulation.process import Invocation


A_WHILE_SECONDS = 1.0
LONG_SECONDS = 24 * 60 * 60
"""With such a retention nothing expires, so each key is written once."""
ANSWERS = {
    PAY: ("0", "201", "201 again", "409", "410", "422", "500", "500 again", "503"),
    SHIP: ("0", "201", "409", "410", "422", "503"),
    CHARGE: ("0", "201", "409", "410", "503"),
    ORDERS: ("201", "503"),
}
declare("answers to callers", [f"{name}: {status}" for name, statuses in ANSWERS.items() for status in statuses])


@dataclass(frozen=True)
class Done:
    """A completion: whose it was, what it keeps as its result, and until when."""

    owner: str
    content: Any
    expires_ms: float


class CallMonitor(TableMonitor):
    def __init__(self, simulation: CallSimulation) -> None:
        super().__init__(simulation.world, simulation.log)
        self.simulation = simulation
        self.amounts: dict[str, int] = {}
        """Each invocation's payload."""
        self.raised: set[str] = set()
        """The ids whose handlers have raised."""
        self._succeeded: set[tuple[str, str]] = set()
        self._done: dict[str, list[Done]] = {}
        self._payloads: dict[tuple[str, str], int] = {}
        self._completions: Counter[str] = Counter()
        self._noted: Counter[str] = Counter()
        self.history = CallRecorder(simulation.world)

    def written(self, before: Item | None, after: Item, writer: str) -> None:
        id = after["id"]
        if after.get("validation") is not None and after.get("owner") == writer:
            self._payloads.setdefault((id, after["validation"]), self.amounts[writer])
        # Shorter retentions than a worker's clock is off have to be judged by that clock.
        invariants.check_write(before, after, writer, self.latest_ms, self._succeeded, failures=self._final(id))
        invariants.check_settled(before, after, writer)
        if after["status"] == "COMPLETED":
            self._completions[id] += 1
            self._done.setdefault(id, []).append(Done(writer, self._kept(after), after["expiration"] * 1000))
        if self.simulation.plan.transactional and not id.startswith(f"{ORDERS}#"):
            self._check_effect(id, writer)

    def _final(self, id: str) -> bool:
        return self.simulation.plan.replay and id.startswith(f"{PAY}#")

    def _kept(self, item: Item) -> Any:
        """The content that a completed record keeps, or leads to. Raises Violation if it leads nowhere."""
        place = marked(item["data"])
        data = item["data"]
        if place is not None and place["result"] == "s3":
            data = self.simulation.bucket.get(place["key"])
            if data is None:
                raise Violation("RESULT", f"{item['id']} says that its result is in {place}, where nothing is")
        elif place is not None:
            return None
        found = json.loads(data)
        return json.loads(found["body"]) if item["id"].startswith(f"{PAY}#") else found

    def _check_effect(self, id: str, writer: str) -> None:
        """EFFECT: what its handlers have written is there once for each completion, of which one may be at a time."""
        times = int(self.memory.tables["Entries"].items.get((id,), {}).get("times", 0))
        for _ in range(self._noted[id], times):
            self.history.applied(id, self.amounts[writer], writer)
        self._noted[id] = times
        if times != self._completions[id]:
            raise Violation("EFFECT", f"{id} was completed {self._completions[id]} times, its effect is there {times}")

    def handler_started(self, invocation: Invocation, request: Request) -> None:
        self.history.asked(request)
        id = request.id
        under_way = [other for one in self.simulation.live for other in one.under_way]
        facts = (id, invocation.name, self.item(id), self.latest_ms, self.running(id, under_way))
        self.check(lambda: invariants.check_start(*facts, failures=self._final(id)))

    def ended_well(self, invocation: Invocation, request: Request) -> None:
        self._succeeded.add((invocation.name, request.id))

    def answered(self, invocation: Invocation, request: Request, reply: Reply) -> None:
        self.log(f"{invocation.name} answers {request.id}: {reply}")
        self.replied(invocation, request, reply)
        took = self.world.now - invocation.started
        waits = self.simulation.plan.wait_seconds if request.function == PAY else 0
        if reply.status == call_process.CONFLICT and invocation.fault_count == 0 and took > waits + A_WHILE_SECONDS:
            self.violated(Violation("HTTP", f"{invocation.name} says {reply} after {took} s, and may wait {waits} s"))
        if self.left_nothing(invocation) and not reply.final:
            self.violated(Violation("I9", f"{invocation.name}, uncontended, answers {reply} to {request}"))

    def replied(self, invocation: Invocation, request: Request, reply: Reply) -> None:
        """HTTP and CALL: check what a caller is told."""
        self.history.asked(request)
        self.history.answered(request, reply, invocation.started)
        mark(f"{request.function}: {reply.status}{' again' if reply.replayed else ''}")
        if not self._true(invocation, request, reply):
            rule = "HTTP" if request.function == PAY else "CALL"
            stood = [invariants.shown(item) for item in self.stood(request.id, invocation.asked)]
            self.violated(Violation(rule, f"{invocation.name} answers {reply} to {request}: {stood}"))

    def _true(self, invocation: Invocation, request: Request, reply: Reply) -> bool:
        stood = [item for item in self.stood(request.id, invocation.asked) if item is not None]
        match reply.status:
            case call_process.CREATED:
                return any(self._is_of(done, invocation, request, reply) for done in self._done.get(request.id, ()))
            case call_process.CONFLICT:
                return any(one["status"] == "INPROGRESS" and one.get("owner") != invocation.name for one in stood)
            case call_process.MISMATCH:
                payloads = [self._payloads.get((request.id, str(one.get("validation")))) for one in stood]
                return any(amount not in (None, request.amount) for amount in payloads)
            case call_process.GONE:
                return any((marked(one.get("data") or "") or {}).get("result") == "dropped" for one in stood)
            case call_process.FAILED_FOR_GOOD:
                failed = any(one["status"] == "FAILED" for one in stood)
                return failed and self._final(request.id) and request.id in self.raised
            case call_process.RAISED:
                return invocation.failed and not self._final(request.id)
            case call_process.AGAIN:
                return reply.content is None or reply.content["run"] == invocation.name
        return False

    def _is_of(self, done: Done, invocation: Invocation, request: Request, reply: Reply) -> bool:
        """Whether a reply is that of a completion which had not expired when the invocation began."""
        if done.expires_ms + HALF_MS < (START_EPOCH_SECONDS + invocation.started) * 1000:
            return False
        own = done.owner == invocation.name
        if request.function == ORDERS:
            return True
        # Its own result, which the record could not keep, is known to whoever made it.
        content = {"run": done.owner, "of": request.told} if own and done.content is None else done.content
        if content is None or reply.content is None:
            return False
        same = content["of"] == reply.content["of"] == request.told and content["run"] == reply.content["run"]
        # A process that does not know whether a commit was its own marks it as a replay too.
        return same and (reply.replayed is not own or (own and invocation.fault_count > 0))

    def settled(self, requests: Iterable[Request]) -> None:
        """Check that nothing is held in the end. A late claim of a dead process may be there: its lease is over."""
        for id in {id for request in requests for id in request.ids}:
            if invariants.live(self.item(id), self.now_ms):
                self.violated(Violation("I6", f"{id} is still claimed: {invariants.shown(self.item(id))}"))
        for violation in self.history.judge() if self.judged else ():
            self.violated(violation)

    @property
    def judged(self) -> bool:
        """Whether its history is one to judge: effects are seen, and none may recur because a record expired."""
        plan = self.simulation.plan
        return plan.transactional and plan.retention_seconds >= LONG_SECONDS
