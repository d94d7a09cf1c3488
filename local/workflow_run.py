"""`make run WORKFLOW=1`: play transfers through the workflow on the local cloud, and close the books.

API, machine, queue and consumer, as both templates deploy them. Processes die in every step, on either side of its
write, and between claim, start and hand-over; executions are stopped from outside; clients ask again, or never do. Its
last line is one JSON object, and its status 0 only if everything in it is as promised.

It takes N, SEED and PROTECTION from the environment. PROTECTION=off is the control: the same machine without records.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from botocore.credentials import Credentials

from local.caller import Caller, api_url
from local.cloud import ACCOUNT, NAMED_BY, REGION, ROOT, in_containers, running_cloud
from local.deploy import HOST_BUILD, deploy
from local.program import run_to_its_end
from local.run import PARAMETERS, wish_of
from local.show import Show
from local.stage import Stage
from local.workflow_books import Ended, Posted, WorkflowBooks
from local.workflow_stack import deploy_workflow
from local.workflow_story import CURRENCY, FORSAKEN, OPENING, Mishap, Part, tell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.cloud import Cloud
    from local.deploy import Stack

HERE = Path(__file__).parent
EVIDENCE = ROOT / ".build" / "run"

NUMBER = 40
AT_ONCE = 4
"""Executions at a time, about: each function in use is a process of this machine."""
REPEATS = 3
REST_SECONDS = 300.0
POLL_SECONDS = 0.5
SWEEP_SECONDS = 3.0
ABORT_SECONDS = 60.0
FAILED = 500
"""From this status on, a client does not know what has become of its request."""
NO_ANSWER = 599

STEPS_WIRING = """
from app.steps.shipped_wiring import *
from local_faults import Faults

faults = Faults(dynamodb, store.table_name)
{protection}
"""
STEPS_PROTECTED = "faults.in_steps(store)"
STEPS_PLAIN = """
from functools import partial
from local_control import plain_step
step = partial(plain_step, faults, dynamodb)
"""
START_WIRING = """
import os
from app.workflow.shipped_wiring import *
from local_faults import Faults

Faults(dynamodb, os.environ["STEPS_TABLE"]).in_start(workflow)
"""
PLAIN_START = """
from app.workflow.wiring import workflow
from local_control import plain_start

lambda_handler = plain_start(workflow)
"""


def overlay(*, protected: bool) -> dict[str, bytes]:
    """The files that are laid over the code folder, by their path in it."""
    app = HOST_BUILD / "app"
    files = {
        "local_faults.py": (HERE / "workflow_faults.py").read_bytes(),
        "app/steps/shipped_wiring.py": (app / "steps" / "wiring.py").read_bytes(),
        "app/steps/wiring.py": STEPS_WIRING.format(protection=STEPS_PROTECTED if protected else STEPS_PLAIN).encode(),
        "app/workflow/shipped_wiring.py": (app / "workflow" / "wiring.py").read_bytes(),
        "app/workflow/wiring.py": START_WIRING.encode(),
    }
    if not protected:
        files["local_control.py"] = (HERE / "workflow_control.py").read_bytes()
        files["app/workflow/start.py"] = PLAIN_START.encode()
    return files


class Bank:
    """Both stacks, with what clients, operators and bookkeepers do to them."""

    def __init__(self, cloud: Cloud, stage: Stage, workflow: Stack, *, protected: bool) -> None:
        url = api_url(workflow, cloud.endpoint_url)
        assert url is not None, "the workflow has an API"
        self.cloud = cloud
        self.stage = stage
        self.workflow = workflow
        self.protected = protected
        self.caller = Caller(url=f"{url}/workflows", credentials=Credentials(ACCOUNT, "test"), region=REGION)
        self.machines = cloud.client("stepfunctions")
        self.repeats = 0
        self.swept = 0

    # Clients.

    def play(self, part: Part) -> None:
        """Ask for a transfer as its story has it, once there is room for another execution."""
        self._await_room()
        if part.mishap is Mishap.REPEATED:
            with ThreadPoolExecutor(REPEATS) as pool:
                list(pool.map(lambda _: self.ask(part), range(REPEATS)))
            self.repeats += REPEATS - 1
        elif self.ask(part) >= FAILED and part.mishap not in FORSAKEN:
            self._ask_again(part)
        if part.mishap is Mishap.ABORTED:
            self._abort(part)

    def ask(self, part: Part) -> int:
        """Send one request; return its status, or NO_ANSWER."""
        try:
            return self.caller.post(part.body, part.key).status
        except OSError:
            return NO_ANSWER

    def _await_room(self) -> None:
        deadline = time.monotonic() + REST_SECONDS
        machine = self.workflow.outputs["MachineArn"]
        while time.monotonic() < deadline:
            running = self.machines.list_executions(stateMachineArn=machine, statusFilter="RUNNING")["executions"]
            if len(running) < AT_ONCE:
                return
            time.sleep(POLL_SECONDS)

    def _ask_again(self, part: Part) -> None:
        deadline = time.monotonic() + REST_SECONDS
        while time.monotonic() < deadline:
            self.repeats += 1
            if self.ask(part) < FAILED:
                return
            time.sleep(POLL_SECONDS)

    def _abort(self, part: Part) -> None:
        """Stop a transfer's execution once it has debited."""
        deadline = time.monotonic() + ABORT_SECONDS
        while time.monotonic() < deadline:
            if self._held(part):
                for arn, transfer, status in self._executions():
                    if transfer == part.name and status == "RUNNING":
                        self.machines.stop_execution(executionArn=arn, error="Operator", cause="make run stops it")
                        return
            time.sleep(POLL_SECONDS)

    def _held(self, part: Part) -> bool:
        table = self.workflow.resources["Steps"]
        found = self.stage.dynamodb.get_item(TableName=table, Key={"id": {"S": f"held#{part.name}"}})
        return "Item" in found

    # Operators.

    @contextmanager
    def sweeping(self) -> Iterator[None]:
        """Let the sweep run more often than its schedule does."""
        over = threading.Event()

        def sweep() -> None:
            while not over.wait(SWEEP_SECONDS):
                self.sweep()

        thread = threading.Thread(target=sweep, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def sweep(self) -> None:
        """Let the sweep run once."""
        answer = self.cloud.client("lambda").invoke(FunctionName=self.workflow.outputs["SweepName"])
        told = json.loads(answer["Payload"].read())
        if "errorType" not in told:
            self.swept += sum(count for kind, count in told.items() if kind not in ("tended", "failed", "left"))

    # Bookkeepers.

    def _executions(self) -> list[tuple[str, str, str]]:
        """Every execution's ARN, transfer and status."""
        machine = self.workflow.outputs["MachineArn"]
        pages = self.machines.get_paginator("list_executions").paginate(stateMachineArn=machine)
        found = [each["executionArn"] for page in pages for each in page["executions"]]
        described = [self.machines.describe_execution(executionArn=arn) for arn in found]
        return [
            (each["executionArn"], json.loads(each["input"])["payload"]["transfer_id"], each["status"])
            for each in described
        ]

    def ended(self) -> list[Ended]:
        """Every execution, with what its key's record says."""
        table = self.workflow.resources["Workflows"]
        pages = self.stage.dynamodb.get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
        statuses = {item["id"]["S"]: item["status"]["S"] for page in pages for item in page["Items"]}
        return [
            Ended(transfer, status, statuses.get(f"transfers#{arn.rpartition(':')[2]}"))
            for arn, transfer, status in self._executions()
        ]

    def at_rest(self, parts: list[Part]) -> bool:
        """Whether nothing goes on any more."""
        ended = self.ended()
        if self.protected and {each.transfer for each in ended} != {part.name for part in parts}:
            return False
        open_ones = [each for each in ended if each.status == "RUNNING" or each.record == "INPROGRESS"]
        return not open_ones and self.stage.backlog(self.stage.queue).total == 0

    def close(self, parts: list[Part]) -> WorkflowBooks:
        """Count everything."""
        steps = self.stage.dynamodb.scan(TableName=self.workflow.resources["Steps"], ConsistentRead=True)["Items"]
        return WorkflowBooks(
            parts=parts,
            protected=self.protected,
            repeats=self.repeats,
            executions=self.ended(),
            entries=self._entries(),
            closing=self.stage.balances([*OPENING, "nobody"]),
            killed=sum(item["id"]["S"].startswith("killed#") for item in steps),
            swept=self.swept,
            dead_letters=len(self.stage.dead_letters()),
        )

    def _entries(self) -> dict[str, Posted]:
        table = self.stage.stack.resources["Entries"]
        pages = self.stage.dynamodb.get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
        return {
            item["entry_id"]["S"]: Posted(item["transfer_id"]["S"], item["account_id"]["S"], int(item["amount"]["N"]))
            for page in pages
            for item in page["Items"]
        }


def perform(show: Show) -> int:
    """Play what the environment asks for, and close the books; return the exit status."""
    wish = wish_of({"N": str(NUMBER), **{name: value for name, value in os.environ.items() if value}})
    if wish.stack is not None or wish.number == 0:
        raise ValueError("WORKFLOW=1 plays one transfer or more on the local cloud: raise N, and leave out STACK")
    parts = tell(wish.seed, wish.number)
    handler = "the shipped workflow" if wish.protected else "a machine without records, the control"
    show.begin(f"{wish.number} transfers, seed {wish.seed}", f"from the API to the consumer by {handler}")
    said = show.step("local cloud")
    with running_cloud() as cloud:
        said(f"{cloud.endpoint_url}, {cloud.whose}")
        if in_containers():
            raise ValueError(f"WORKFLOW=1 kills functions that are processes of this machine: unset {NAMED_BY}")
        bank = _set_up(cloud, show, protected=wish.protected)
        books = _played(bank, parts, show)
        if books.complaints:
            _keep_log(bank)
    for name, value in books.line().items():
        show.note(f"{name}: {value}")
    show.verdict(books.complaints, "every transfer ended as it must, and the books balance")
    sys.stdout.write(json.dumps(books.line()) + "\n")
    sys.stdout.flush()
    return 1 if books.complaints else 0


def _set_up(cloud: Cloud, show: Show, *, protected: bool) -> Bank:
    said = show.step("stacks")
    consumer = deploy(cloud, parameters=PARAMETERS)
    workflow = deploy_workflow(cloud, consumer, overlay=overlay(protected=protected))
    said("template.yaml and workflow.yaml as they stand; the definition with one error's name more (workflow_stack.py)")
    stage = Stage(
        stack=consumer, sqs=cloud.client("sqs"), dynamodb=cloud.client("dynamodb"), functions=cloud.client("lambda")
    )
    stage.open_accounts(OPENING, CURRENCY)
    return Bank(cloud, stage, workflow, protected=protected)


def _played(bank: Bank, parts: list[Part], show: Show) -> WorkflowBooks:
    said = show.step("played")
    with bank.sweeping():
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(bank.play, parts))
        deadline = time.monotonic() + REST_SECONDS
        while not bank.at_rest(parts) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
    said(f"{len(parts)} transfers, {bank.repeats} requests more for the same")
    return bank.close(parts)


def _keep_log(bank: Bank) -> None:
    EVIDENCE.mkdir(parents=True, exist_ok=True)
    pages = bank.cloud.client("logs").get_paginator("filter_log_events")
    said = [
        event["message"]
        for page in pages.paginate(logGroupName=bank.workflow.outputs["LogGroup"])
        for event in page["events"]
    ]
    (EVIDENCE / "workflow.log").write_text("\n".join(said))


def main() -> int:
    """Play, whatever comes between; return the exit status."""
    show = Show()
    return run_to_its_end(lambda: perform(show), show)


if __name__ == "__main__":
    sys.exit(main())
