"""One execution a key, wherever its starter dies."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from idempotent_receiver import MemoryStore
from idempotent_receiver.protocol import transitions
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.protocol.store import NotApplied
from idempotent_receiver.protocol.transitions import AlreadyCompleted, AlreadyFailed, ClaimLost, OtherPayload, Settled
from idempotent_receiver.workflow import (
    Closed,
    NothingToDo,
    Running,
    Start,
    Started,
    Unavailable,
    Workflow,
    accept,
    name_of,
    recover_orphan,
)
from idempotent_receiver.workflow.executions import HAND_OVER_MARGIN_SECONDS
from idempotent_receiver.workflow.orphans import MOST_STARTS
from tests.manual_clock import ManualClock
from tests.fake_step_functions import MACHINE, Killed, FakeStepFunctions

TIMEOUT_SECONDS = 7200
NAME = name_of("key")
ARN = f"arn:aws:states:us-east-1:123456789012:execution:transfers:{NAME}"


class Desk:
    """A workflow, and requests to it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(namespace="transfers")
        self.machines = FakeStepFunctions()
        self.workflow = Workflow(
            self.store,
            client=self.machines,  # type: ignore[arg-type]  # it has the two methods that are called
            state_machine_arn=MACHINE,
            timeout_seconds=TIMEOUT_SECONDS,
            clock=self.clock,
        )

    def ask(self, payload: Any = 1) -> object:
        start = self.workflow.start_of(NAME, f"f{payload}", payload)
        return accept(self.workflow, start, self.workflow.deadline(10_000), "request")

    def sweep(self) -> object:
        return recover_orphan(self.workflow, NAME, self.workflow.deadline(10_000), "sweep")

    def record(self) -> Record:
        (found,) = self.store.read([f"transfers#{NAME}"])
        assert isinstance(found, Record)
        return found

    def lease_seconds(self) -> float:
        until = self.record().in_progress_expiration
        assert until is not None
        return (until - self.clock.epoch_ms()) / 1000

    def let_the_lease_end(self) -> None:
        self.clock.seconds += self.lease_seconds()


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_start_hands_its_claim_over(desk: Desk) -> None:
    """The record is the execution's, for as long as the machine may take and a little longer."""
    assert desk.ask() == Started(ARN)
    assert json.loads(desk.machines.executions[NAME]["input"]) == {
        "record": f"transfers#{NAME}",
        "fingerprint": "f1",
        "payload": 1,
    }
    found = desk.record()
    assert (found.status, found.execution, found.input, found.validation) == ("INPROGRESS", ARN, None, "f1")
    assert desk.lease_seconds() == TIMEOUT_SECONDS + HAND_OVER_MARGIN_SECONDS


def test_asked_again_while_it_runs_nothing_is_started(desk: Desk) -> None:
    desk.ask()
    before = desk.record()
    assert desk.ask() == Running(ARN)
    assert desk.machines.asked == 1
    assert desk.record() == before


def test_asked_again_once_it_is_over_the_outcome_answers(desk: Desk) -> None:
    desk.ask()
    desk.workflow.conclude(ARN, transitions.completed('"done"'), desk.workflow.deadline(10_000))
    answer = desk.ask()
    assert isinstance(answer, AlreadyCompleted)
    assert answer.record.data == '"done"'


def test_a_failure_is_an_answer_and_starts_nothing_again(desk: Desk) -> None:
    desk.ask()
    desk.workflow.conclude(ARN, transitions.failed('{"type": "TransferFailed"}'), desk.workflow.deadline(10_000))
    assert isinstance(desk.ask(), AlreadyFailed)
    assert desk.machines.asked == 1


def test_another_payload_is_a_mismatch(desk: Desk) -> None:
    desk.ask()
    assert isinstance(desk.ask(payload=2), OtherPayload)


def test_a_request_that_is_too_late_by_either_clock_claims_nothing(desk: Desk) -> None:
    """The machine was suspended before its claim: by the clock that stood still there would be time."""
    deadline = desk.workflow.deadline(10_000)
    desk.clock.stepped_seconds += 3600
    answer = accept(desk.workflow, desk.workflow.start_of(NAME, "f1", 1), deadline, "request")
    assert answer == Unavailable("the time to begin is over")
    assert desk.store.items == {}


@pytest.mark.parametrize("dies", ["before", "after"])
@pytest.mark.parametrize("healer", ["the next request", "a sweep"])
def test_a_starter_that_dies_leaves_one_execution_all_the_same(desk: Desk, dies: str, healer: str) -> None:
    """Between claim and start, or between start and hand-over."""
    desk.machines.dies = dies
    with pytest.raises(Killed):
        desk.ask()
    assert desk.ask() == Running(ARN)
    assert desk.sweep() == NothingToDo()
    desk.let_the_lease_end()
    assert (desk.ask() if healer == "the next request" else desk.sweep()) == Started(ARN)
    assert list(desk.machines.executions) == [NAME]
    found = desk.record()
    assert (found.execution, found.attempts, found.validation) == (ARN, 2, "f1")
    assert desk.lease_seconds() == TIMEOUT_SECONDS + HAND_OVER_MARGIN_SECONDS


def test_an_execution_that_ends_before_the_hand_over_answers_itself(desk: Desk) -> None:
    desk.machines.dies = "after"
    with pytest.raises(Killed):
        desk.ask()
    desk.workflow.conclude(ARN, transitions.completed("7"), desk.workflow.deadline(10_000))
    answer = desk.ask()
    assert isinstance(answer, AlreadyCompleted)
    assert answer.record.execution == ARN


def test_a_hand_over_that_comes_after_the_outcome_says_the_outcome(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    start = desk.machines.start_execution

    def fast(**asked: Any) -> Any:
        started = start(**asked)
        desk.workflow.conclude(ARN, transitions.completed("7"), desk.workflow.deadline(10_000))
        return started

    monkeypatch.setattr(desk.machines, "start_execution", fast)
    answer = desk.ask()
    assert isinstance(answer, AlreadyCompleted)
    assert desk.record().data == "7"


def test_a_hand_over_that_the_store_does_not_take_is_made_by_a_sweep(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The execution runs, so the client is told so; its outcome needs no hand-over, but a sweep makes up for it."""
    with monkeypatch.context() as down:
        down.setattr(desk.store, "replace", lambda changes: [NotApplied("throttled", retry=True) for _ in changes])
        assert desk.ask() == Started(ARN)
    assert desk.record().execution is None
    desk.let_the_lease_end()
    assert desk.sweep() == Started(ARN)
    assert desk.record().execution == ARN
    assert list(desk.machines.executions) == [NAME]


@pytest.mark.parametrize(
    "refusal",
    [
        ClientError({"Error": {"Code": "ThrottlingException"}}, "StartExecution"),
        EndpointConnectionError(endpoint_url="https://states"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_cannot_be_started_now_is_tried_again(desk: Desk, refusal: Exception) -> None:
    desk.machines.refuses = refusal
    assert isinstance(desk.ask(), Unavailable)
    desk.machines.refuses = None
    desk.let_the_lease_end()
    assert desk.sweep() == Started(ARN)


def test_an_orphan_that_never_starts_is_given_up_and_says_so(desk: Desk) -> None:
    desk.machines.refuses = ClientError({"Error": {"Code": "AccessDeniedException"}}, "StartExecution")
    desk.ask()
    for _ in range(MOST_STARTS):
        desk.let_the_lease_end()
        answer = desk.sweep()
    assert isinstance(answer, AlreadyFailed)
    assert desk.machines.asked == MOST_STARTS
    assert json.loads(answer.record.error or "") == {
        "type": "NeverStarted",
        "text": "no execution could be started in 10 attempts",
        "permanent": True,
        "status": 500,
    }


def given_up_all_but(desk: Desk) -> None:
    """One sweep more, and the orphan is given up."""
    desk.machines.refuses = ClientError({"Error": {"Code": "ThrottlingException"}}, "StartExecution")
    desk.ask()
    for _ in range(MOST_STARTS - 1):
        desk.let_the_lease_end()
        desk.sweep()
    desk.machines.refuses = None
    desk.let_the_lease_end()


def test_what_was_started_while_it_was_given_up_is_not_given_up(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the question and the claim, another starter starts it and dies."""
    given_up_all_but(desk)
    describe = desk.machines.describe_execution

    def meanwhile(**asked: Any) -> Any:
        monkeypatch.setattr(desk.machines, "describe_execution", describe)
        try:
            return describe(**asked)
        finally:
            desk.machines.dies = "after"
            with pytest.raises(Killed):
                desk.ask()
            desk.let_the_lease_end()

    monkeypatch.setattr(desk.machines, "describe_execution", meanwhile)
    # A sweep that has the time for it: this one takes longer than a starter's lease.
    assert recover_orphan(desk.workflow, NAME, desk.workflow.deadline(60_000), "sweep") == Started(ARN)
    assert desk.record().execution == ARN


def test_an_execution_of_a_replaced_machine_is_never_called_unstarted(desk: Desk) -> None:
    """It is asked for by the name that the record has; where nobody knows it any more, the record says that."""
    desk.ask()
    desk.machines.close("ABORTED", None)
    desk.let_the_lease_end()
    another_process = MemoryStore(desk.store.namespace)
    another_process.items = desk.store.items
    replaced = Workflow(
        another_process,
        client=desk.machines,  # type: ignore[arg-type]  # it has the two methods that are called
        state_machine_arn=MACHINE + "-v2",
        timeout_seconds=TIMEOUT_SECONDS,
        clock=desk.clock,
    )
    deadline = replaced.deadline(10_000)
    assert recover_orphan(replaced, NAME, deadline, "sweep") == Closed(
        ARN, "ABORTED", desk.machines.executions[NAME]["input"]
    )
    desk.machines.executions.clear()
    answer = recover_orphan(replaced, NAME, deadline, "sweep")
    assert isinstance(answer, AlreadyFailed)
    assert json.loads(answer.record.error or "")["type"] == "ExecutionGone"


def test_the_same_payload_in_other_words_finds_its_execution(desk: Desk) -> None:
    """What counts for nothing in the fingerprint may differ, as when it was sent."""
    desk.machines.dies = "after"
    with pytest.raises(Killed):
        desk.ask()
    desk.let_the_lease_end()
    again = desk.workflow.start_of(NAME, "f1", {"sent_at": 2})
    assert accept(desk.workflow, again, desk.workflow.deadline(10_000), "request") == Started(ARN)


def test_a_key_whose_record_is_gone_finds_its_execution_by_name(desk: Desk) -> None:
    """The name outlives the record: nothing is run twice."""
    desk.ask()
    desk.machines.close("SUCCEEDED", '"done"')
    desk.store.items.clear()
    answer = desk.ask()
    assert isinstance(answer, AlreadyCompleted)
    assert (answer.record.data, answer.record.status) == ('"done"', "COMPLETED")
    assert len(desk.machines.executions) == 1


def test_a_name_that_ran_for_another_payload_is_a_mismatch_for_good(desk: Desk) -> None:
    desk.ask()
    desk.machines.close("SUCCEEDED", '"done"')
    desk.store.items.clear()
    answer = desk.ask(payload=2)
    assert isinstance(answer, AlreadyFailed)
    assert json.loads(answer.record.error or "")["status"] == 422


@pytest.mark.parametrize("status", ["FAILED", "TIMED_OUT", "ABORTED"])
def test_a_machine_that_died_unheard_is_found_by_the_sweep(desk: Desk, status: str) -> None:
    desk.ask()
    desk.machines.close(status)
    assert desk.sweep() == NothingToDo()
    desk.let_the_lease_end()
    told = desk.machines.executions[NAME]["input"]
    assert desk.sweep() == Closed(ARN, status, told)
    assert desk.ask() == Started(ARN)  # it is found again, and left to the sweep
    assert desk.sweep() == Closed(ARN, status, told)


def test_an_execution_that_still_runs_is_left_alone(desk: Desk) -> None:
    desk.ask()
    desk.let_the_lease_end()
    before = desk.record()
    assert desk.sweep() == NothingToDo()
    assert desk.record() == before


def test_what_is_settled_or_gone_is_left_alone(desk: Desk) -> None:
    assert desk.sweep() == NothingToDo()
    desk.ask()
    desk.workflow.conclude(ARN, transitions.completed(None), desk.workflow.deadline(10_000))
    assert desk.sweep() == NothingToDo()


def test_a_conclusion_is_written_once(desk: Desk) -> None:
    desk.ask()
    deadline = desk.workflow.deadline(10_000)
    assert isinstance(desk.workflow.conclude(ARN, transitions.completed("1"), deadline), Settled)
    late = desk.workflow.conclude(ARN, transitions.failed("{}"), deadline)
    assert isinstance(late, ClaimLost)
    assert desk.record().data == "1"


def test_names_tell_scopes_and_keys_apart_and_nothing_else() -> None:
    assert name_of("key") == NAME
    assert len({name_of("key"), name_of("key", "a"), name_of("y", "ke"), name_of("ke", "y"), name_of("")}) == 5
    assert all(len(name_of(key)) == 64 and name_of(key).isalnum() for key in ("", "x" * 255, "\ud800"))


def test_an_input_is_always_the_same_text(desk: Desk) -> None:
    """Step Functions takes a start for the same by its name and its input."""
    one = desk.workflow.start_of(NAME, "f", {"a": 1, "b": "é"})
    assert one == desk.workflow.start_of(NAME, "f", {"b": "é", "a": 1})
    assert isinstance(one, Start)


@pytest.mark.parametrize(
    ("payload", "said"), [(float("nan"), "JSON"), ("\ud800", "surrogates"), ("x" * 262_144, "of 2622")]
)
def test_what_step_functions_cannot_take_is_refused_before_the_claim(desk: Desk, payload: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        desk.workflow.start_of(NAME, "f1", payload)


NAMED = MemoryStore(namespace="n")
RETENTION = HAND_OVER_MARGIN_SECONDS + 1


@pytest.mark.parametrize(
    ("store", "arn", "retention_seconds", "said"),
    [
        (MemoryStore(), MACHINE, RETENTION + 1, "namespace"),
        (NAMED, "transfers", RETENTION + 1, "not the ARN of a state machine"),
        (NAMED, MACHINE, RETENTION, "longer than an execution may last"),
    ],
)
def test_what_cannot_work_is_refused_at_set_up(store: MemoryStore, arn: str, retention_seconds: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Workflow(
            store,
            client=FakeStepFunctions(),  # type: ignore[arg-type]
            state_machine_arn=arn,
            timeout_seconds=1,
            retention_seconds=retention_seconds,
        )
