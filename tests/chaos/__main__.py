"""`make chaos`: 20,000 messages through worker processes under many faults, and reconciliation.

Its options come from the environment: N, SEED, SEATS, PROTECTION, CAST (standard, fifo or workflow), and EFFECTS:
"any", "transaction" for workers that claim nothing, or "mixed" for some of each. Its last line is one JSON object, and
its status 0 only if everything in it is as promised, and the faults did happen.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from harness.cloud import ROOT, embedded_cloud
from harness.deploy import Stack
from harness.program import options_of, run_to_its_end, whole
from harness.serving import serving
from harness.workload import report as tables
from harness.workload.driver import Pace, collect, drive
from harness.workload.evidence import Log, lines_of
from harness.workload.stack_client import StackClient
from harness.workload.transfers import ASKED_FOR, CHAOS, CURRENCY, FIFO, generate
from tests.chaos.clients import Clients, Requests, WorkflowClient
from tests.chaos.consumers import TwoConsumers, in_pairs
from tests.chaos.event_source_mapping import EventSourceMapping
from tests.chaos.machine import create
from tests.chaos.network_faults import LONGEST_DELAY_SECONDS
from tests.chaos.next_consumer import NextConsumer, create_receipts
from tests.chaos.proxy import Proxy
from tests.chaos.reconciliation import ChaosReconciliation
from tests.chaos.redriver import HOLD_SECONDS
from tests.chaos.settings import (
    ACCOUNTS,
    ENTRIES,
    PREFIXES,
    RECEIPTS,
    RECORDS,
    TRANSFERS,
    VISIBILITY_SECONDS,
    Cast,
    Effects,
    Settings,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from enum import StrEnum

    from harness.cloud import Cloud
    from harness.program import Options
    from harness.workload.report import Report, Row
    from tests.chaos.event_source_mapping import Batches

Chosen = TypeVar("Chosen", bound="StrEnum")
EVIDENCE = ROOT / ".build" / "chaos"
"""Where the log is kept for inspection; the next run empties it."""
MOST_QUEUED = 400
HOW = dict(zip(Effects, ("with claims", "without claims", "every other one without claims"), strict=True))
MIXES = {Cast.STANDARD: CHAOS, Cast.FIFO: FIFO}
CONTROL = "a plain partial-batch handler, the control"
PACE = Pace(poll_seconds=0.25, stall_seconds=60.0, limit_seconds=120.0, limit_seconds_a_message=0.2)


def run(
    options: Options, report: Report, *, effects: Effects, cast: Cast, slots: int, evidence: Path
) -> ChaosReconciliation:
    if cast is Cast.WORKFLOW:
        workload = generate(options.seed, options.number, ASKED_FOR)
    else:
        workload = in_pairs(generate(options.seed, options.number // 2, MIXES[cast]))
    shutil.rmtree(evidence, ignore_errors=True)
    evidence.mkdir(parents=True)
    pace = replace(PACE, most_queued=min(MOST_QUEUED, max(20, options.number // 3)))
    with embedded_cloud() as cloud:
        client = client_of(cloud, cast)
        client.open_accounts(workload.opening, CURRENCY)
        port = int(cloud.endpoint_url.rpartition(":")[2])
        network = Proxy(port, options.seed, Log(evidence / "proxy.jsonl"))
        with serving(network.respond) as proxy_port:
            common = Settings(
                port=proxy_port, log=str(evidence), outputs={}, protected=options.protected, effects=effects, cast=cast
            )
            sources = client.sources(common, port)
            mapping = _mapping(sources, Log(evidence / "mapping.jsonl"), options, slots)
            with NextConsumer(cloud), mapping, report.progress(options.number) as say:
                sent, gave_up = drive(client, workload, mapping, pace, say)
            # Requests in flight may still arrive, and must do no harm.
            network.await_quiet(LONGEST_DELAY_SECONDS * 2)
            time.sleep(HOLD_SECONDS)
        found = collect(client, workload, sent)
        if not options.protected:  # the control sends none
            found["receipt_counts"] = None
        return ChaosReconciliation(
            **found,
            protected=options.protected,
            log=sorted(client.told(lines_of(evidence), sent), key=lambda line: line.at_ms),
            swept=mapping.swept,
            gave_up=gave_up,
            without_claims=effects is not Effects.ANY,
            cast=cast,
            requests=network.requests,
            shared=network.shared,
        )


def _mapping(sources: Sequence[Batches], log: Log, options: Options, slots: int) -> EventSourceMapping:
    """One of this many invocations of a slot is killed, and one frozen: even a short run needs some."""
    if isinstance(sources[0], Requests):
        fault_in = min(160, max(16, options.number // 10))  # each invocation has one message
        return Clients(sources, log, slots=slots, seed=options.seed, fault_in=fault_in)
    fault_in = min(16, max(6, options.number // 40))
    return EventSourceMapping(sources, log, slots=slots, seed=options.seed, fault_in=fault_in)


def chosen(environment: Mapping[str, str], name: str, among: type[Chosen]) -> Chosen:
    """Read EFFECTS or CAST; nothing is the first. Raises ValueError."""
    text = environment.get(name) or str(next(iter(among)))
    try:
        return among(text)
    except ValueError:
        raise ValueError(f"{name} is {', '.join(among)}; it is {text!r}") from None


def client_of(cloud: Cloud, cast: Cast) -> TwoConsumers | WorkflowClient:
    """Make the tables and the queues; return their client. It goes straight to the cloud, without faults."""
    dynamodb, sqs = cloud.client("dynamodb"), cloud.client("sqs")
    records = ((RECORDS, "id"),) if cast is not Cast.WORKFLOW else ()
    for table, key in (*records, (ACCOUNTS, "account_id"), (ENTRIES, "entry_id")):
        dynamodb.create_table(
            TableName=table,
            KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
    if cast is Cast.WORKFLOW:
        return WorkflowClient(stack=_with_queues(sqs, TRANSFERS, cast, StateMachine=create(cloud)), clients=cloud)
    receipts = create_receipts(cloud)
    (first, second), hide = (_with_queues(sqs, name, cast, **receipts) for name in PREFIXES), cast is Cast.FIFO
    other = StackClient(stack=second, clients=cloud, groups_hide=hide)
    return TwoConsumers(stack=first, clients=cloud, groups_hide=hide, second=other)


def _with_queues(sqs: Any, name: str, cast: Cast, **more: str) -> Stack:
    """A consumer's stack: the tables, which are all consumers', and its queue with its dead-letter queue."""
    outputs = {"Namespace": PREFIXES[name].rstrip("#"), **more}
    attributes = {"VisibilityTimeout": str(VISIBILITY_SECONDS)} | ({"FifoQueue": "true"} if cast.suffix else {})
    for output, queue in ("DeadLetterQueueUrl", f"{name}-dead"), ("QueueUrl", name):
        outputs[output] = url = sqs.create_queue(QueueName=queue + cast.suffix, Attributes=attributes)["QueueUrl"]
        found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
        outputs["QueueArn"] = found["QueueArn"]
        redrive = {"deadLetterTargetArn": found["QueueArn"], "maxReceiveCount": cast.most_receives}
        attributes["RedrivePolicy"] = json.dumps(redrive)
    resources = {"Records": RECORDS, "Accounts": ACCOUNTS, "Entries": ENTRIES}
    resources |= {"Receipts": RECEIPTS} if "ReceiptsQueueUrl" in more else {}
    return Stack(name=name, outputs=outputs, resources=resources)


def _workers(found: ChaosReconciliation) -> list[Row]:
    return [
        (found.line()["runs"], "runs of the handler", "by its own log"),
        (found.kills[False], "killed at random", "SIGKILL in the middle of a batch"),
        (found.kills[True], "killed at the time-out", "as Lambda does"),
        (len(found.frozen), "frozen past their leases", "SIGSTOP, and SIGCONT when others had their messages"),
        (found.acknowledged_early, "acknowledged early", "before they were done, or with the dead letters"),
        (found.fenced["frozen"], "zombies' writes refused", "by those that had been frozen, over another's claim"),
        (found.fenced["other"], "other late writes refused", "for instance one of a dead worker's that arrived late"),
        (len(found.redriven), "redriven", "dead letters sent back, by sweeps that were killed and frozen as well"),
        (len(found.runs.late_starts), "late starts", "by those that had been frozen, after their lease: fenced only"),
    ]


def perform(report: Report) -> int:
    options, slots = options_of(os.environ, number=20_000), whole(os.environ, "SEATS", 4, least=2)
    effects, cast = chosen(os.environ, "EFFECTS", Effects), chosen(os.environ, "CAST", Cast)
    if cast is Cast.WORKFLOW and (effects is not Effects.ANY or not options.protected):
        raise ValueError("CAST=workflow runs the shipped endpoint: leave out EFFECTS and PROTECTION")
    evidence, begun = Path(os.environ.get("EVIDENCE") or EVIDENCE), time.monotonic()
    handler = f"the shipped consumer, {HOW[effects]}" if options.protected else CONTROL
    what = f"{options.number:,} messages, seed {options.seed}"
    report.begin(what, f"{slots} workers run {handler}, on a {cast} queue")
    report.note("Workers are killed and frozen; their requests and answers are delayed, refused and dropped.")
    report.note("The seed says which and how often; when, is up to this machine.")
    found = run(options, report, effects=effects, cast=cast, slots=slots, evidence=evidence)
    report.note(f"all logs are kept in {os.path.relpath(evidence)}")
    shown: dict[str, list[Row]] = {
        "Messages": tables.messages(found),
        "Workers": _workers(found),
        "Requests that met with": [(count, name, "") for name, count in sorted(found.injected.items())],
        "Requests": [
            (found.requests.total(), "requests", f"{found.requests_a_message:.2f} a message"),
            *((count, name, "") for name, count in found.requests.most_common()),
            (found.shared_faults, "faults of several", "transactions of several messages that met with one"),
        ],
        "Books": tables.money(found),
    }
    fine = f"nothing lost, nothing doubled, {'' if found.without_claims else 'no two at once, '}balanced"
    return report.conclude(found, shown, fine, seconds=round(time.monotonic() - begun))


if __name__ == "__main__":
    sys.exit(run_to_its_end(perform))
