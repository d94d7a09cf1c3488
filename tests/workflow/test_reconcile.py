"""When the machine itself has died: books and record are brought into agreement, by the event that tells of it."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from harness.cloud import ROOT
from idempotent_receiver import ConditionFailed, errors
from tests.fake_step_functions import FakeStepFunctions
from tests.template import load
from tests.workflow.conftest import MOVED, TRANSFER, UNMOVED

if TYPE_CHECKING:
    from tests.workflow.conftest import Bank

EVENT = (Path(__file__).parent / "aborted.json").read_text()
"""As AWS documents it; of other statuses only what the handler reads differs."""
DIED = ("FAILED", "TIMED_OUT", "ABORTED")
NAME = "1" * 64
ID = f"transfers#{NAME}"
ARN = f"arn:aws:states:us-east-1:123456789012:execution:transfers:{NAME}"
CONTEXT = SimpleNamespace(
    get_remaining_time_in_millis=lambda: 30_000,
    aws_request_id="1",
    function_name="reconcile",
    memory_limit_in_mb=512,
    invoked_function_arn="arn:aws:lambda:us-east-1:123456789012:function:reconcile",
)


def event(status: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(EVENT.replace("NAME", NAME).replace("ABORTED", status))
    return found


def reconcile(told: str | dict[str, Any]) -> str:
    """What comes of this event, or of that of an execution with this status."""
    told = event(told) if isinstance(told, str) else told
    return str(import_module("app.workflow.reconcile").lambda_handler(told, CONTEXT))


@pytest.fixture
def handed_over(bank: Bank) -> Bank:
    """A bank in which the execution of the events has the key."""
    bank.hand_over(ARN, id=ID)
    return bank


def log(monkeypatch: pytest.MonkeyPatch, level: str) -> list[Any]:
    """What will be logged."""
    logged: list[Any] = []
    logger = import_module("app.workflow.wiring").logger
    monkeypatch.setattr(logger, level, lambda text, **fields: logged.append((text, fields)))
    return logged


def played(bank: Bank, *steps: str) -> None:
    """As far as the machine came."""
    for step in steps:
        bank.handlers[step](TRANSFER, CONTEXT)


@pytest.mark.parametrize("status", DIED)
def test_what_was_not_debited_will_not_be(handed_over: Bank, status: str) -> None:
    """A debit that is still on its way meets an entry of nothing."""
    assert reconcile(status) == "returned"
    assert handed_over.entries() == {"t1#1": ("alice", 0)}
    with pytest.raises(errors.PermanentError):
        played(handed_over, "debit")
    assert handed_over.balances() == UNMOVED
    assert handed_over.failure(ID)["type"] == status


@pytest.mark.parametrize("status", DIED)
def test_what_was_debited_is_given_back(handed_over: Bank, status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    played(handed_over, "debit")
    logged = log(monkeypatch, "info")
    assert reconcile(status) == "returned"
    assert logged == [("reconciled", {"execution": ARN, "status": status, "came_of_it": "returned"})]
    assert handed_over.balances() == UNMOVED
    assert handed_over.record(ID)["status"] == "FAILED"
    with pytest.raises(errors.PermanentError):
        played(handed_over, "credit")
    assert handed_over.balances() == UNMOVED


@pytest.mark.parametrize("status", DIED)
@pytest.mark.parametrize("came_to", [("debit", "credit"), ("debit", "credit", "receipt")], ids=lambda steps: steps[-1])
def test_what_has_arrived_is_completed(handed_over: Bank, status: str, came_to: tuple[str, ...]) -> None:
    played(handed_over, *came_to)
    assert reconcile(status) == "completed"
    assert handed_over.balances() == MOVED
    (message,) = handed_over.messages()
    found = handed_over.record(ID)
    assert (found["status"], json.loads(found["data"])["message_id"]) == ("COMPLETED", message["MessageId"])


@pytest.mark.parametrize("status", DIED)
@pytest.mark.parametrize(
    "said",
    [
        {"status": "COMPLETED", "data": '{"transfer_id": "t1", "message_id": "m"}'},
        {"status": "FAILED", "error": '{"type": "PermanentError", "status": 422}'},
    ],
    ids=["completed", "failed"],
)
def test_a_machine_that_said_everything_is_left_alone(handed_over: Bank, status: str, said: dict[str, str]) -> None:
    handed_over.hand_over(ARN, id=ID, **said)
    before = handed_over.record(ID)
    assert reconcile(status) == "settled"
    assert (handed_over.record(ID), handed_over.entries()) == (before, {})


@pytest.mark.parametrize("status", ["RUNNING", "SUCCEEDED"])
def test_an_execution_that_lives_or_succeeded_is_left_alone(handed_over: Bank, status: str) -> None:
    assert reconcile(status) == "settled"
    assert (handed_over.record(ID)["status"], handed_over.entries()) == ("INPROGRESS", {})


def test_the_rule_sends_every_status_that_is_a_death_and_no_other() -> None:
    pattern = load(ROOT / "deploy" / "workflow.yaml")["Resources"]["MachineDied"]["Properties"]["EventPattern"]
    for status in (*DIED, "RUNNING", "SUCCEEDED"):
        told = event(status)
        assert told["source"] in pattern["source"]
        assert told["detail-type"] in pattern["detail-type"]
        assert (told["detail"]["status"] in pattern["detail"]["status"]) == (status in DIED)


def test_a_record_that_nobody_was_handed_is_the_executions_too(bank: Bank) -> None:
    bank.hand_over(None, id=ID)
    assert reconcile("ABORTED") == "returned"
    assert bank.record(ID)["execution"] == ARN


def test_a_receipt_that_the_machine_could_not_send_is_sent(handed_over: Bank) -> None:
    played(handed_over, "debit", "credit")
    handed_over.hand_over(ARN, id=ID, status="COMPLETED", data='{"transfer_id": "t1", "message_id": ""}')
    before = handed_over.record(ID)
    assert reconcile("FAILED") == "completed"
    assert len(handed_over.messages()) == 1
    assert handed_over.record(ID) == before


def test_a_refund_that_is_possible_by_now_ends_the_need_for_a_person(handed_over: Bank) -> None:
    played(handed_over, "debit")
    handed_over.hand_over(ARN, id=ID, status="FAILED", error='{"type": "NeedsAPerson"}')
    assert reconcile("FAILED") == "returned"
    assert handed_over.balances() == UNMOVED
    assert handed_over.failure(ID)["type"] == "FAILED"


@pytest.mark.parametrize(
    ("attributes", "counted"), [({"status": "FAILED", "error": '{"type": "NeedsAPerson"}'}, True), ({}, False)]
)
def test_a_refund_that_still_fails_is_counted_for_the_alarm_and_tried_again(
    handed_over: Bank,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    attributes: dict[str, str],
    counted: bool,
) -> None:
    """One that fails for the first time needs nobody yet."""
    handed_over.hand_over(ARN, id=ID, **attributes)
    before = handed_over.record(ID)

    def away(event: Any, context: Any) -> Any:
        raise errors.StoreUnavailable("t1", "throttled", ran=False)

    monkeypatch.setattr(import_module("app.steps.refund"), "lambda_handler", away)
    with pytest.raises(errors.StoreUnavailable):
        reconcile("FAILED")
    printed = capsys.readouterr().out
    assert ('"NeedsAPerson":[1.0]' in printed) is counted
    assert ('"Dimensions":[["service"]]' in printed) is counted, "as the alarm has it"
    assert handed_over.record(ID) == before


def test_a_refund_that_is_refused_for_good_needs_a_person(
    handed_over: Bank, capsys: pytest.CaptureFixture[str]
) -> None:
    played(handed_over, "debit")
    handed_over.table("accounts").delete_item(Key={"account_id": "alice"})
    assert reconcile("TIMED_OUT") == "person"
    assert '"NeedsAPerson":[1.0]' in capsys.readouterr().out
    assert handed_over.failure(ID)["type"] == "NeedsAPerson"


def test_books_are_put_right_even_where_the_record_is_gone(bank: Bank) -> None:
    played(bank, "debit")
    assert reconcile("ABORTED") == "stranger"
    assert bank.balances() == UNMOVED
    assert bank.table("workflows").scan()["Items"] == []


def test_a_debit_that_comes_between_question_and_posting_is_given_back(
    handed_over: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    wiring = import_module("app.steps.wiring")
    legs, asked = type(wiring.ledger_reader).legs, []

    def racing(self: Any, transfer: Any) -> Any:
        found = legs(self, transfer)
        if not asked:
            asked.append(1)
            played(handed_over, "debit")
        return found

    monkeypatch.setattr(type(wiring.ledger_reader), "legs", racing)
    assert reconcile("ABORTED") == "returned"
    assert handed_over.entries() == {"t1#1": ("alice", -30), "t1#2": ("alice", 30)}
    assert handed_over.balances() == UNMOVED


@pytest.mark.parametrize(("outrun", "posted"), [(2, True), (3, False)])
def test_a_refund_is_called_three_times_as_a_debit_and_a_credit_may_each_outrun_it(
    handed_over: Bank, monkeypatch: pytest.MonkeyPatch, outrun: int, posted: bool
) -> None:
    refund, calls = import_module("app.steps.refund"), []
    posting = refund.lambda_handler

    def call(*given: Any) -> Any:
        calls.append(given)
        if len(calls) <= outrun:
            raise ConditionFailed
        return posting(*given)

    monkeypatch.setattr(refund, "lambda_handler", call)
    if posted:
        assert reconcile("FAILED") == "returned"
    else:
        with pytest.raises(ConditionFailed):
            reconcile("FAILED")
    assert calls == [(TRANSFER, CONTEXT)] * 3


def test_an_input_too_long_for_an_event_is_asked_for(handed_over: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    wiring, told = import_module("app.workflow.wiring"), event("ABORTED")
    machines = FakeStepFunctions()
    machines.executions[NAME] = {"status": "ABORTED", "input": told["detail"]["input"]}
    monkeypatch.setattr(wiring.workflow, "client", machines)
    told["detail"] |= {"input": None, "inputDetails": {"included": False}}
    assert reconcile(told) == "returned"


# The sweep.


def sweep(bank: Bank, machines: FakeStepFunctions, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    monkeypatch.setattr(import_module("app.workflow.wiring").workflow, "client", machines)
    found: dict[str, int] = import_module("app.workflow.sweep").lambda_handler({}, CONTEXT)
    return found


def orphan(bank: Bank, name: str, arn: str | None, **attributes: Any) -> None:
    bank.hand_over(arn, id=f"transfers#{name}", in_progress_expiration=1_700_000_000_000, **attributes)


def test_a_sweep_starts_what_was_never_started_and_reconciles_what_died(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = FakeStepFunctions()
    told = event("ABORTED")["detail"]["input"]
    orphan(bank, "never-started", None, input='{"payload": 1}')
    orphan(bank, NAME, ARN)
    machines.executions[NAME] = {"status": "ABORTED", "input": told}
    bank.hand_over(ARN, id="transfers#running", in_progress_expiration=1_900_000_000_000)
    bank.hand_over(ARN, id="transfers#done", status="COMPLETED", in_progress_expiration=None)
    assert sweep(bank, machines, monkeypatch) == {"started": 1, "returned": 1}
    assert machines.executions["never-started"] == {"status": "RUNNING", "input": '{"payload": 1}'}
    assert bank.record(ID)["status"] == "FAILED"
    assert sweep(bank, machines, monkeypatch) == {}


def forsaken(bank: Bank, *names: str, arn: str | None = None) -> None:
    """Orphans, each for a little longer than the one before it."""
    for number, name in enumerate(names):
        orphan(bank, name, arn and arn.replace(NAME, name), input='{"payload": 1}')
        bank.table("workflows").update_item(
            Key={"id": f"transfers#{name}"},
            UpdateExpression="SET in_progress_expiration = :at",
            ExpressionAttributeValues={":at": 1_700_000_000_000 - number},
        )


def test_a_sweep_begins_with_the_longest_forsaken_and_ends_with_its_time(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are left are found by the next one."""
    forsaken(bank, "orphan-0", "orphan-1", "orphan-2")
    machines = FakeStepFunctions()
    start = machines.start_execution

    def slow(**asked: Any) -> Any:
        monkeypatch.setattr(import_module("app.workflow.sweep"), "_STOP_SECONDS", 31 if machines.executions else 8)
        return start(**asked)

    monkeypatch.setattr(machines, "start_execution", slow)
    assert sweep(bank, machines, monkeypatch) == {"started": 2, "left": 1}
    assert list(machines.executions) == ["orphan-2", "orphan-1"]


def test_orphans_that_cannot_be_tended_do_not_keep_others_waiting(
    bank: Bank, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are counted for the alarm, and found again by the next sweep."""
    monkeypatch.setattr(import_module("app.workflow.sweep"), "_PAGE", 2)
    forsaken(bank, "sound")
    forsaken(bank, "broken-1", "broken-2", "broken-3", arn=ARN)
    machines = FakeStepFunctions()
    for name in ("broken-1", "broken-2", "broken-3"):
        machines.executions[name] = {"status": "ABORTED", "input": "not JSON"}
    logged, broken = log(monkeypatch, "error"), ("broken-3", "broken-2", "broken-1")
    assert sweep(bank, machines, monkeypatch) == {"failed": 3, "started": 1}
    assert "sound" in machines.executions
    assert '"SweepFailures":[3.0]' in capsys.readouterr().out
    assert [fields["execution"] for _, fields in logged] == list(broken)
    assert logged[0] == ("an orphan could not be recovered", {"execution": "broken-3", "error_type": "JSONDecodeError"})

    forsaken(bank, "refused")
    machines.refuses = ClientError({"Error": {"Code": "ThrottlingException"}}, "StartExecution")
    logged.clear()
    assert sweep(bank, machines, monkeypatch)["failed"] == 4
    refused = {"execution": "refused", "reason": "StartExecution: ThrottlingException"}
    assert ("an orphan could not be recovered", refused) in logged


def test_a_stopped_execution_whose_id_was_anothers_is_settled(handed_over: Bank) -> None:
    """That transfer's refund has the step's key: a person is called, and the record says so."""
    told = event("ABORTED")
    asked = json.loads(told["detail"]["input"])
    told["detail"]["input"] = json.dumps({**asked, "payload": {**TRANSFER, "amount": 7}})
    played(handed_over, "debit", "refund")
    before = handed_over.balances()
    assert reconcile(told) == "person"
    assert handed_over.failure(ID)["type"] == "NeedsAPerson"
    assert handed_over.balances() == before


def test_a_start_that_takes_effect_after_the_giving_up_is_told_as_it_ended(handed_over: Bank) -> None:
    """Its own outcome is refused, for the record says that nothing was started; the books know what it has done."""
    never = json.dumps({"type": "NeverStarted", "text": "no execution could be started", "status": 500})
    handed_over.hand_over(None, id=ID, status="FAILED", in_progress_expiration=None, error=never)
    played(handed_over, "debit", "credit", "receipt")
    assert reconcile("FAILED") == "completed"
    assert (handed_over.record(ID)["status"], handed_over.balances()) == ("COMPLETED", MOVED)


def test_a_stranger_is_told_to_a_person(handed_over: Bank, capsys: pytest.CaptureFixture[str]) -> None:
    """Another execution has the record, and this one's money went somewhere all the same."""
    handed_over.hand_over(ARN.replace("transfers:", "others:"), id=ID)
    played(handed_over, "debit", "credit", "receipt")
    assert reconcile("FAILED") == "stranger"
    assert '"NeedsAPerson":[1.0]' in capsys.readouterr().out
