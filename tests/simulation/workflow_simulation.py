"""One random world of workflows: clients request executions, and a schedule sweeps; a seed decides.

Step Functions runs what was started, sooner or later and perhaps not to its end: executions fail, time out or are
stopped. Starters die between claim, start and hand-over. In the quiet phase everybody is answered, and every record
says how its execution has ended.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from idempotent_receiver.http.response import REPLAYED
from idempotent_receiver.protocol.store import NotApplied
from idempotent_receiver.workflow import Workflow, workflow_endpoint
from idempotent_receiver.workflow.executions import name_of
from tests.simulation import invariants, oracle, step_functions_model
from tests.simulation.adapters import EXECUTION_SECONDS, MACHINE_ARN, swept
from tests.simulation.explored_clients import StepFunctions
from tests.simulation.invariants import Violation
from tests.simulation.network_faults import UNKNOWN, NetworkStore
from tests.simulation.plan import CLOCKS_OFF_SECONDS
from tests.simulation.process import Process
from tests.simulation.random_world import ClientPlan, ClientWorld
from tests.simulation.reached import declare, mark
from tests.simulation.step_functions_model import MACHINE, OUTPUT, RUNNING
from tests.simulation.table_monitor import TableMonitor

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from tests.simulation.invariants import Item
    from tests.simulation.process import Invocation
    from tests.simulation.step_functions_model import Executions

CLIENTS = 6
TENANTS, KEYS = ("t", "t1"), ("1k", "k")
NAMESPACE = "transfers"
SWEEP_SECONDS = 15.0
ACCEPTED, DONE, CONFLICT, MISMATCH, FAILED, AGAIN, UNKNOWN_HERE = 202, 200, 409, 422, 500, 503, 404
FINAL = (DONE, MISMATCH, FAILED)

ANSWERS = ("200", "202", "409", "422", "500", "503", "where: 200", "where: 404", "where: 500", "where: 503")
declare("answers of workflows", [f"{NAMESPACE}: {answer}" for answer in ANSWERS])

Wanted = tuple[str, str, int]
"""A request: its tenant, key and amount."""


def id_of(wanted: Wanted) -> str:
    return f"{NAMESPACE}#{name_of(wanted[1], wanted[0])}"


class WorkflowPlan(ClientPlan):
    def __init__(self, random: Random, seed: int) -> None:
        super().__init__(random, seed)
        self.running_status: Any = random.choice([ACCEPTED, CONFLICT])
        self.lasts_seconds = random.choice([[0.0], [0.0, 0.01, 0.5, 5.0], [0.5, 5.0, 2.0 * EXECUTION_SECONDS]])
        self.stopped = random.choice([0.0, 0.1])
        self.amounts = random.choice([[1], [1, 1, 2]])


class WorkflowMonitor(TableMonitor):
    """The table of a workflow, and its executions."""

    def __init__(self, simulation: WorkflowSimulation) -> None:
        super().__init__(simulation.world, simulation.log)
        self.executions: Executions = {}
        self.amounts: dict[str, int] = {}
        """Each invocation's payload."""
        self._payloads: dict[str, int] = {}

    @property
    def items(self) -> dict[str, Item]:
        return self.memory.items

    def written(self, before: Item | None, after: Item, writer: str) -> None:
        if after.get("validation") is not None and writer in self.amounts:
            self._payloads.setdefault(after["validation"], self.amounts[writer])
        oracle.workflow_written(self, before, after, writer)  # type: ignore[arg-type]  # it has what is read of a state

    def ended(self, name: str, status: str | None = None) -> None:
        self.log(f"{name[:8]} ends: {status}")
        self.executions = step_functions_model.ended(self.executions, name, status)

    def answered(self, invocation: Invocation, wanted: Wanted, status: int, response: dict[str, Any]) -> None:
        self.log(f"{invocation.name} answers {wanted}: {response}")
        stood = self.stood(id_of(wanted), invocation.asked)
        if not self._true(invocation, wanted, response, [item for item in stood if item is not None], len(stood)):
            shown = [invariants.shown(item) for item in stood]
            self.violated(Violation("WORKFLOW", f"{invocation.name} answers {response} to {wanted}: {shown}"))
        if self.left_nothing(invocation) and invocation.fault_count == 0 and status == AGAIN:
            self.violated(Violation("I9", f"{invocation.name}, uncontended, answers {response} to {wanted}"))

    def _true(
        self, invocation: Invocation, wanted: Wanted, response: dict[str, Any], stood: list[Item], count: int
    ) -> bool:
        statuses = [item["status"] for item in stood]
        replayed = dict(response["headers"]).get(REPLAYED) == "true"
        execution = self.executions.get(name_of(wanted[1], wanted[0]))
        match response["statusCode"]:
            case 202:
                # A starter whose hand-over was not answered knows no more than that it has started.
                started = execution is not None and (execution.status == RUNNING or invocation.fault_count > 0)
                return "INPROGRESS" in statuses or started
            case 409:
                return "INPROGRESS" in statuses
            case 200 if not replayed and json.loads(response["body"] or "null") != json.loads(OUTPUT):
                # The report at a location.
                return "INPROGRESS" in statuses
            case 200:
                return "COMPLETED" in statuses and execution is not None and execution.done
            case 422:
                payloads = [self._payloads.get(str(item.get("validation"))) for item in stood]
                return any(amount not in (None, wanted[2]) for amount in payloads)
            case 500:
                return "FAILED" in statuses and execution is not None and execution.dead
            case 404:
                return len(stood) < count
        return response["statusCode"] == AGAIN


class WorkflowProcess(Process):
    simulation: WorkflowSimulation

    def __init__(self, world: WorkflowSimulation, name: str) -> None:
        super().__init__(world, name)
        self.workflow = Workflow(
            NetworkStore(self, NAMESPACE),
            client=StepFunctions(self),  # type: ignore[arg-type]  # it has the methods that are called
            state_machine_arn=MACHINE_ARN,
            timeout_seconds=EXECUTION_SECONDS,
            clock=self.clock,
        )
        self.endpoint = workflow_endpoint(
            self.workflow,
            parse=json.loads,
            scope=lambda event: event["headers"]["Tenant"],
            running_status=world.plan.running_status,
        )

    def answer(self, wanted: Wanted, method: str) -> dict[str, Any]:
        """Serve a request, or a question for what became of it."""
        tenant, key, amount = wanted
        headers = {"Idempotency-Key": key, "Tenant": tenant}
        path = "/transfers" if method == "POST" else f"/transfers/{name_of(key, tenant)}"
        event = {"httpMethod": method, "path": path, "headers": headers, "body": json.dumps({"amount": amount})}
        return self.endpoint(event, self.context())

    def sweep(self, name: str) -> Any:
        """Continue what was left behind."""
        deadline = self.workflow.deadline(self.context().get_remaining_time_in_millis())
        return swept(self.workflow, name, deadline, self.invocation.name)

    def ask(self, kind: str, *parts: Any) -> Any:
        """Ask Step Functions, over the faulty network. Nothing retries such a request."""
        world = self.simulation
        world.world.sleep(world.random.uniform(0.001, 0.02))
        fault = world.fault(())
        act = partial(world.act, kind, parts[0])
        if fault is None:
            return (act(),)
        self.invocation.fault_count += 2
        world.log(f"{self.invocation.name}: {kind} meets: {fault}")
        if fault == "throttled":
            return (NotApplied("throttled", retry=True),)
        if fault in ("delayed on the wire", "copied by the network"):
            world.world.spawn(act, after=world.random.choice([0.5, 5.0, 40.0]) * world.random.random())
        if fault == "copied by the network":
            return (act(),)
        if fault in ("lost answer", "sent again by the client", "unknown result", "raises") or world.chance(0.5):
            act()
        if fault == "crash":
            world.kill(self)
            world.world.stop()
        return (UNKNOWN,)


class WorkflowSimulation(ClientWorld):
    plan: WorkflowPlan
    monitor: WorkflowMonitor

    def __init__(
        self, seed: int, clocks_off_seconds: float = CLOCKS_OFF_SECONDS, log: Callable[[str], None] | None = None
    ) -> None:
        super().__init__(seed, clocks_off_seconds, log, WorkflowPlan)
        random, plan = self.random, self.plan
        self.monitor = WorkflowMonitor(self)
        self.new_process: Callable[[str], WorkflowProcess] = partial(WorkflowProcess, self)
        self.wanted = [
            (random.choice(TENANTS), random.choice(KEYS), random.choice(plan.amounts)) for _ in range(CLIENTS)
        ]
        self.names = sorted({name_of(key, tenant) for tenant, key, _ in self.wanted})
        self.waiting = CLIENTS

    def start(self) -> None:
        for wanted in self.wanted:
            self.world.spawn(partial(self._client, wanted), after=self.random.choice([0.0, 0.0, 1.0, 10.0, 40.0]))
        self.world.spawn(self._sweeps)

    def _client(self, wanted: Wanted) -> None:
        """A client sends its request until it is told how its execution has ended; at times it asks at its location."""
        status = None
        while status not in FINAL and not self.violations:
            if self.overdue:
                self.monitor.violated(Violation("I6", f"{wanted} is still not answered: {status}"))
                break
            method = self.random.choice(["POST", "POST", "GET"]) if status else "POST"
            answered = self.ask((id_of(wanted),), partial(self._serve, wanted=wanted, method=method))
            status = AGAIN if answered is None or method == "GET" else answered
            self.world.sleep(self.random.choice([0.05, 2.0, 8.0]) * (0.5 + self.random.random()))
        self.waiting -= 1

    def _serve(self, process: WorkflowProcess, wanted: Wanted, method: str) -> int:
        mine = process.invocation
        self.monitor.amounts[mine.name] = wanted[2]
        try:
            response = process.answer(wanted, method)
        except Exception as error:  # noqa: BLE001  # checked like any other answer
            # Lambda's answer where the store has a defect.
            if not mine.failed:
                self.monitor.violated(Violation("ANSWER", f"{mine.name} raised {error!r} for {wanted}"))
            return AGAIN
        status = int(response["statusCode"])
        mark(f"{NAMESPACE}: {'where: ' if method == 'GET' else ''}{status}")
        self.monitor.answered(mine, wanted, status, response)
        return status

    def _sweeps(self) -> None:
        while self.waiting and not self.violations:
            self.world.sleep(SWEEP_SECONDS * (0.5 + self.random.random()))
            orphans = [id for id, item in self.monitor.items.items() if item["status"] == "INPROGRESS"]
            for id in orphans:
                self.serve((id,), partial(self._sweep, name=id.partition("#")[2]))

    def _sweep(self, process: WorkflowProcess, name: str) -> str:
        try:
            return type(process.sweep(name)).__name__
        except RuntimeError:
            if not process.invocation.failed:
                raise
            return "failed"

    def last(self) -> None:
        """Two sweeps; then every request gets its last word, and every record agrees with its execution."""
        for name in self.names * 2:
            self.serve((f"{NAMESPACE}#{name}",), partial(self._sweep, name=name))
        for wanted in self.wanted:
            status = self.serve((id_of(wanted),), partial(self._serve, wanted=wanted, method="POST"))
            if status not in FINAL:
                self.monitor.violated(Violation("I6", f"after all faults, {wanted} gets {status}"))
            self.monitor.check(oracle.reconciled, self.monitor, id_of(wanted))

    def act(self, kind: str, part: Any) -> Any:
        """What Step Functions does, and its answer."""
        monitor = self.monitor
        if kind == "describe":
            return step_functions_model.describe(monitor.executions, part)
        name, input = part
        before = monitor.executions
        monitor.executions, answer = step_functions_model.start(before, name, input, self.world.now)
        self.log(f"{name[:8]} is {answer}")
        if monitor.executions is not before:
            monitor.check(oracle.execution_started, monitor, name)
            self.world.spawn(partial(self._execute, name))
            self.world.spawn(partial(self._time_out, name), after=float(EXECUTION_SECONDS))
        return answer

    def _execute(self, name: str) -> None:
        """An execution: it works, writes its outcome, and ends; unless somebody stops it."""
        monitor, random = self.monitor, self.random
        stopped = self.chance(self.plan.stopped)
        self.world.sleep(0.1 if self.quiet else random.choice(self.plan.lasts_seconds) * random.random())
        if monitor.executions[name].status != RUNNING:
            return
        if not (stopped and random.random() < 0.5):
            self._write_outcome(name, "FAILED" if random.random() < self.plan.fails else "COMPLETED")
            self.world.sleep(random.choice([0.0, 0.5]))
        if monitor.executions[name].status == RUNNING:
            monitor.ended(name, "ABORTED" if stopped else None)

    def _write_outcome(self, name: str, status: str) -> None:
        monitor, id = self.monitor, f"{NAMESPACE}#{name}"
        change = step_functions_model.outcome_of(name, id, monitor.item(id), status, monitor.now_ms)
        if change is None:
            shown = invariants.shown(monitor.item(id))
            monitor.violated(Violation("WORKFLOW", f"the outcome {status} of a running execution is refused: {shown}"))
            return
        monitor.executions = {**monitor.executions, name: replace(monitor.executions[name], outcome=status)}
        monitor.effect("replace", change, MACHINE)

    def _time_out(self, name: str) -> None:
        if self.monitor.executions[name].status == RUNNING:
            self.monitor.ended(name, "TIMED_OUT")
