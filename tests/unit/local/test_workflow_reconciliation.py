"""Reconciliation of the workflow's run notices whatever is not as promised, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from local.workflow_reconciliation import Execution, WorkflowReconciliation
from local.workload.evidence import DeadLetter, Entry
from local.workload.transfers import DEATHS, FAILING, WORKFLOW, Kind, TransferMessage, generate

KINDS = [*WORKFLOW.shares, Kind.GOOD]
FAILS = FAILING & set(KINDS)
KILLS = set(DEATHS) & set(KINDS)


def entries_of(message: TransferMessage, opening: Any) -> list[Entry]:
    """What the ledger has for a transfer that has come to its end."""
    name, arrived = message.name, message.kind not in FAILS
    if message.kind is Kind.OVERDRAWN or message.payer not in opening:
        return []
    to = message.payee if arrived else message.payer
    legs = [
        Entry(transfer=name, account=message.payer, amount=-message.amount),
        Entry(transfer=name, account=to, amount=message.amount),
    ]
    return legs + ([Entry(transfer=name, account=message.payee, amount=0)] if arrived else [])


@pytest.fixture
def found() -> WorkflowReconciliation:
    """Every kind once, and all of it as it must be."""
    workload = generate(1, len(KINDS), WORKFLOW)
    entries = [entry for message in workload.messages for entry in entries_of(message, workload.opening)]
    closing = dict(workload.opening)
    for entry in entries:
        closing[entry.account] += entry.amount
    return WorkflowReconciliation(
        workload=workload,
        protected=True,
        sent={name: name for name in workload.by_name},
        entries=entries,
        closing=closing,
        records={},
        dead_letters=[],
        left=0,
        log=[],
        executions=[
            Execution(
                transfer=message.name,
                status="ABORTED" if message.kind is Kind.ABORTED else "SUCCEEDED",
                record="FAILED" if message.kind in FAILS else "COMPLETED",
            )
            for message in workload.messages
        ],
        repeats=2,
        swept=2,
        killed=len(KILLS),
    )


def test_what_is_as_promised_gives_no_complaint(found: WorkflowReconciliation) -> None:
    assert found.complaints == []
    line = found.line()
    assert (line["asked"], line["as_expected"], line["balanced"], line["doubled"]) == (17, 17, True, 0)
    assert (line["completed"], line["failed"]) == (17 - len(FAILS), len(FAILS))


def without_second_leg(found: WorkflowReconciliation) -> dict[str, Any]:
    (good,) = (message for message in found.workload.messages if message.kind is Kind.GOOD)
    entries = [entry for entry in found.entries if (entry.transfer, entry.amount) != (good.name, good.amount)]
    return {"entries": entries, "closing": {**found.closing, good.payee: found.closing[good.payee] - good.amount}}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda found: {"executions": [*found.executions, found.executions[0]]}, "doubled is 1"),
        (lambda found: {"executions": found.executions[1:]}, "unfinished is 1"),
        (lambda found: {"executions": [replace(each, record="INPROGRESS") for each in found.executions]}, "unfinished"),
        (
            lambda found: {"executions": [replace(each, record="FAILED") for each in found.executions]},
            "not as expected",
        ),
        (lambda found: {"closing": dict.fromkeys(found.closing, 0)}, "do not balance"),
        (without_second_leg, "do not balance"),
        (lambda found: {"killed": 0}, "kills that did not happen"),
        (lambda found: {"dead_letters": [DeadLetter(message_id="m", reason=None)]}, "dead letters is 1"),
        (
            lambda found: {"entries": [each for each in found.entries if each.amount]},
            "receipts missing",
        ),
        (
            lambda found: {"executions": [replace(each, status="SUCCEEDED") for each in found.executions]},
            "aborts that did not happen",
        ),
    ],
)
def test_what_is_not_as_promised_is_a_complaint(found: WorkflowReconciliation, change: Any, said: str) -> None:
    broken = replace(found, **change(found))
    assert any(said in complaint for complaint in broken.complaints), broken.complaints
