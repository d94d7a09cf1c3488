"""The shipped templates on a local cloud, with the shipped code under an overlay of faults.

Three settings of template.yaml are changed, with a note: its timeout, so that leases end within the run; its
concurrency; and dead letters sent by the consumer, so that no one waits for five receives of a permanent failure. The
API is deployed next to it, because some transfers come over HTTP.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from harness.beside import deploy_beside, joined
from harness.caller import at_local_cloud
from harness.cloud import LOOPBACK, NAMED_BY, ROOT, in_containers, running_cloud
from harness.deploy import HOST_BUILD, code_uri_of, deploy
from harness.emulator import MACHINES
from harness.serving import serving
from harness.workload.stack_client import StackClient
from idempotent_receiver.local.deployment import create, packaged

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from harness.cloud import Cloud
    from harness.workload.fake_service import FakeService
    from harness.workload.report import Report
    from idempotent_receiver.local.deployment import Stack

ARCHITECTURE = MACHINES.get(platform.machine().lower(), "arm64")
LAMBDA_BUILD = HOST_BUILD.with_name(f"python3.13-{ARCHITECTURE}")
"""For a cloud that runs functions in this machine's containers."""
OVERLAY = Path(__file__).parents[1] / "overlay"
RECEIPTS = Path(__file__).with_name("receipts.yaml")
EVIDENCE = ROOT / ".build" / "run"
MOST_LOG_LINES = 50_000

EDITS = ("Dead letters at once",)
VALUES = {"Timeout": 10}
PARAMETERS = {"MaximumConcurrency": "4"}
OVERLAID = {
    "app/consumer.py": ("app/shipped.py", "consumer"),
    "app/steps/wiring.py": ("app/steps/shipped_wiring.py", "steps"),
    "app/workflow/wiring.py": ("app/workflow/shipped_wiring.py", "start"),
}
"""The replaced files: where the shipped one is kept, and the overlay module that replaces it."""
PLAIN_START = b"from harness.overlay.start import plain_start as lambda_handler\n"


def overlay_of(port: int, *, protected: bool, receipts: str = "") -> dict[str, bytes]:
    """Return the files laid over the code folder, by path. `receipts` is the URL of the queue that transfers send
    theirs to, if they do.
    """
    files = _overlay_files()
    settings = {"host": LOOPBACK, "port": port, "protection": protected, "receipts": receipts}
    files["harness/overlay/settings.json"] = json.dumps(settings).encode()
    for replaced, (kept, module) in OVERLAID.items():
        files[kept] = (HOST_BUILD / replaced).read_bytes()
        files[replaced] = files[f"harness/overlay/{module}.py"]
    return files if protected else files | {"app/workflow/start.py": PLAIN_START}


def _overlay_files() -> dict[str, bytes]:
    files = {f"harness/overlay/{path.name}": path.read_bytes() for path in OVERLAY.glob("*.py")}
    return {**files, "harness/__init__.py": b""}


@contextlib.contextmanager
def deployed(
    service: FakeService,
    report: Report,
    *,
    protected: bool = True,
    name: str | None = None,
    parameters: Mapping[str, str] | None = None,
    api: Mapping[str, str] | None = None,
    named: bool = False,
    receipts: bool = False,
    port: int | None = None,
    also_at: str = LOOPBACK,
) -> Iterator[tuple[Cloud, StackClient]]:
    """A local cloud for the block, with template.yaml and these parameters, under this name or a unique one, and the
    API with its own. `named`: whether their tables and queues are named by logical ids. `receipts`: whether transfers
    send receipts to a second consumer, in a stack of its own.

    In containers, functions run as built for Lambda, because they could not reach the fake service.
    """
    name, next_one = name or f"receiver-{os.getpid()}", None
    said = report.step("local cloud")
    with serving(service.respond) as service_port, running_cloud(port=port, also_at=also_at) as cloud:
        said(f"{cloud.endpoint_url}, {cloud.whose}")
        given, of_lambda = {**PARAMETERS, **(parameters or {})}, {}
        if in_containers():
            if not protected:
                raise ValueError(f"PROTECTION=off needs functions that are processes of this machine: unset {NAMED_BY}")
            report.note("functions run in containers there, without kills or faults")
            code, overlay = LAMBDA_BUILD, {}
            of_lambda = {"Architectures": f"[{ARCHITECTURE}]"}
        else:
            next_one = _next_consumer(cloud, name) if receipts else None
            to = "" if next_one is None else next_one.outputs["ReceiptsQueueUrl"]
            code, overlay = HOST_BUILD, overlay_of(service_port, protected=protected, receipts=to)
        said = report.step("stack")
        stack = deploy(
            cloud,
            name=name,
            code=code,
            overlay=overlay,
            edits=EDITS,
            values={**VALUES, **of_lambda},
            parameters=given,
            named=named,
        )
        beside = deploy_beside(
            cloud, stack, "api", code=code, overlay=overlay, values=of_lambda, parameters=api, named=named
        )
        settings = {**VALUES, **of_lambda, **given}.items()
        changed = [*(each.lower() for each in EDITS), *(f"{setting}={value}" for setting, value in settings)]
        also = "; and a second consumer, of receipts" if next_one else ""
        said(f"template.yaml with {', '.join(changed)}; and deploy/api.yaml{also}")
        report.note("DeadLetterArrivals is false: this cloud has no metric math, so no alarm fires for arrivals")
        whole = joined(stack, beside)
        yield cloud, client_of(cloud, whole if next_one is None else joined(whole, next_one))


def _next_consumer(cloud: Cloud, name: str) -> Stack:
    """The consumer of what transfers send, which no fault hits."""
    code_uri = code_uri_of(cloud, HOST_BUILD, _overlay_files())
    text = packaged(cloud, RECEIPTS.read_text(), RECEIPTS.parent, lambda _path: code_uri)
    return create(cloud, f"{name}-receipts", text, {})


def client_of(cloud: Cloud, stack: Stack) -> StackClient:
    return StackClient(stack=stack, clients=cloud, api=at_local_cloud(cloud, stack))


def keep_logs(cloud: Cloud, group: str, file: str) -> Path:
    """Keep the logs of the functions and of the local cloud; returns the folder."""
    EVIDENCE.mkdir(parents=True, exist_ok=True)
    (EVIDENCE / "cloud.log").write_text(cloud.log())
    pages = cloud.client("logs").get_paginator("filter_log_events")
    found = pages.paginate(logGroupName=group, PaginationConfig={"MaxItems": MOST_LOG_LINES})
    (EVIDENCE / file).write_text("\n".join(event["message"] for page in found for event in page["events"]))
    return EVIDENCE


def timeline_of(run: str | None, seed: int, number: int, *, protected: bool) -> Path:
    """The file for a run's timeline; runs with other options have their own."""
    which = [run or "queue", f"seed-{seed}", f"{number}", *([] if protected else ["control"])]
    return EVIDENCE / f"timeline-{'-'.join(which)}.html"
