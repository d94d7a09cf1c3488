"""One execution for a key, wherever the worker that starts it dies."""

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
from idempotent_receiver.workflow.starts import MOST_STARTS
from tests.fake_step_functions import MACHINE, FakeStepFunctions, Killed
from tests.manual_clock import ManualClock

TIMEOUT_SECONDS = 7200
NAME = name_of("key")
ARN = f"arn:aws:states:us-east-1:123456789012:execution:transfers:{NAME}"


class Requests:
    """A workflow, with requests to it."""

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
def requests() -> Requests:
    return Requests()


def test_a_start_hands_its_claim_over_to_the_execution(requests: Requests) -> None:
    """The execution holds the record for as long as the state machine may run, and a little longer."""
    assert requests.ask() == Started(ARN)
    assert json.loads(requests.machines.executions[NAME]["input"]) == {
        "record": f"transfers#{NAME}",
        "fingerprint": "f1",
        "payload": 1,
    }
    found = requests.record()
    assert (found.status, found.execution, found.input, found.validation) == ("INPROGRESS", ARN, None, "f1")
    assert requests.lease_seconds() == TIMEOUT_SECONDS + HAND_OVER_MARGIN_SECONDS


def test_asked_again_while_it_runs_nothing_is_started(requests: Requests) -> None:
    requests.ask()
    before = requests.record()
    assert requests.ask() == Running(ARN)
    assert requests.machines.asked == 1
    assert requests.record() == before


def test_asked_again_once_it_is_over_the_outcome_answers(requests: Requests) -> None:
    requests.ask()
    requests.workflow.conclude(ARN, transitions.completed('"done"'), requests.workflow.deadline(10_000))
    answer = requests.ask()
    assert isinstance(answer, AlreadyCompleted)
    assert answer.record.data == '"done"'


def test_a_failure_is_an_answer_and_starts_nothing_again(requests: Requests) -> None:
    requests.ask()
    requests.workflow.conclude(
        ARN, transitions.failed('{"type": "TransferFailed"}'), requests.workflow.deadline(10_000)
    )
    assert isinstance(requests.ask(), AlreadyFailed)
    assert requests.machines.asked == 1


def test_another_payload_is_a_mismatch(requests: Requests) -> None:
    requests.ask()
    assert isinstance(requests.ask(payload=2), OtherPayload)


def test_a_request_that_is_too_late_by_either_clock_claims_nothing(requests: Requests) -> None:
    """The machine was suspended before its claim; by the clock that stood still there would be time."""
    deadline = requests.workflow.deadline(10_000)
    requests.clock.stepped_seconds += 3600
    answer = accept(requests.workflow, requests.workflow.start_of(NAME, "f1", 1), deadline, "request")
    assert answer == Unavailable("no time was left to ask it")
    assert requests.store.items == {}


@pytest.mark.parametrize("dies", ["before", "after"])
@pytest.mark.parametrize("healer", ["the next request", "a sweep"])
def test_a_starter_that_dies_still_leaves_one_execution(requests: Requests, dies: str, healer: str) -> None:
    """Between claim and start, or between start and hand-over."""
    requests.machines.dies = dies
    with pytest.raises(Killed):
        requests.ask()
    assert requests.ask() == Running(ARN)
    assert requests.sweep() == NothingToDo()
    requests.let_the_lease_end()
    assert (requests.ask() if healer == "the next request" else requests.sweep()) == Started(ARN)
    assert list(requests.machines.executions) == [NAME]
    found = requests.record()
    assert (found.execution, found.attempts, found.validation) == (ARN, 2, "f1")
    assert requests.lease_seconds() == TIMEOUT_SECONDS + HAND_OVER_MARGIN_SECONDS


def test_an_execution_that_ends_before_the_hand_over_answers_itself(requests: Requests) -> None:
    requests.machines.dies = "after"
    with pytest.raises(Killed):
        requests.ask()
    requests.workflow.conclude(ARN, transitions.completed("7"), requests.workflow.deadline(10_000))
    answer = requests.ask()
    assert isinstance(answer, AlreadyCompleted)
    assert answer.record.execution == ARN


def test_a_hand_over_that_comes_after_the_outcome_says_the_outcome(
    requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = requests.machines.start_execution

    def fast(**asked: Any) -> Any:
        started = start(**asked)
        requests.workflow.conclude(ARN, transitions.completed("7"), requests.workflow.deadline(10_000))
        return started

    monkeypatch.setattr(requests.machines, "start_execution", fast)
    answer = requests.ask()
    assert isinstance(answer, AlreadyCompleted)
    assert requests.record().data == "7"


def test_a_hand_over_that_the_store_does_not_apply_is_made_by_a_sweep(
    requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The execution runs, and the client gets that response; its outcome needs no hand-over, but a sweep makes it."""
    with monkeypatch.context() as down:
        down.setattr(requests.store, "replace", lambda changes: [NotApplied("throttled", retry=True) for _ in changes])
        assert requests.ask() == Started(ARN)
    assert requests.record().execution is None
    requests.let_the_lease_end()
    assert requests.sweep() == Started(ARN)
    assert requests.record().execution == ARN
    assert list(requests.machines.executions) == [NAME]


@pytest.mark.parametrize(
    "refusal",
    [
        ClientError({"Error": {"Code": "ThrottlingException"}}, "StartExecution"),
        EndpointConnectionError(endpoint_url="https://states"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_cannot_be_started_now_is_tried_again(requests: Requests, refusal: Exception) -> None:
    requests.machines.refuses = refusal
    assert isinstance(requests.ask(), Unavailable)
    requests.machines.refuses = None
    requests.let_the_lease_end()
    assert requests.sweep() == Started(ARN)


def test_an_orphan_that_never_starts_is_given_up_and_says_so(requests: Requests) -> None:
    requests.machines.refuses = ClientError({"Error": {"Code": "AccessDeniedException"}}, "StartExecution")
    requests.ask()
    for _ in range(MOST_STARTS):
        requests.let_the_lease_end()
        answer = requests.sweep()
    assert isinstance(answer, AlreadyFailed)
    assert requests.machines.asked == MOST_STARTS
    assert json.loads(answer.record.error or "") == {
        "type": "NeverStarted",
        "text": "no execution could be started in 10 attempts",
        "permanent": True,
        "status": 500,
    }


def given_up_all_but(requests: Requests) -> None:
    """One more sweep gives up the orphan."""
    requests.machines.refuses = ClientError({"Error": {"Code": "ThrottlingException"}}, "StartExecution")
    requests.ask()
    for _ in range(MOST_STARTS - 1):
        requests.let_the_lease_end()
        requests.sweep()
    requests.machines.refuses = None
    requests.let_the_lease_end()


def test_what_was_started_while_it_was_given_up_is_not_given_up(
    requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the read and the claim, another worker starts it and dies."""
    given_up_all_but(requests)
    describe = requests.machines.describe_execution

    def meanwhile(**asked: Any) -> Any:
        monkeypatch.setattr(requests.machines, "describe_execution", describe)
        try:
            return describe(**asked)
        finally:
            requests.machines.dies = "after"
            with pytest.raises(Killed):
                requests.ask()
            requests.let_the_lease_end()

    monkeypatch.setattr(requests.machines, "describe_execution", meanwhile)
    # A sweep with enough time: this takes longer than the starter's lease.
    assert recover_orphan(requests.workflow, NAME, requests.workflow.deadline(60_000), "sweep") == Started(ARN)
    assert requests.record().execution == ARN


def test_an_execution_of_a_replaced_machine_never_counts_as_not_started(requests: Requests) -> None:
    """It is described by the ARN in the record; if it no longer exists, the record says so."""
    requests.ask()
    requests.machines.close("ABORTED", None)
    requests.let_the_lease_end()
    another_process = MemoryStore(requests.store.namespace)
    another_process.items = requests.store.items
    replaced = Workflow(
        another_process,
        client=requests.machines,  # type: ignore[arg-type]  # it has the two methods that are called
        state_machine_arn=MACHINE + "-v2",
        timeout_seconds=TIMEOUT_SECONDS,
        clock=requests.clock,
    )
    deadline = replaced.deadline(10_000)
    assert recover_orphan(replaced, NAME, deadline, "sweep") == Closed(
        ARN, "ABORTED", requests.machines.executions[NAME]["input"]
    )
    requests.machines.executions.clear()
    answer = recover_orphan(replaced, NAME, deadline, "sweep")
    assert isinstance(answer, AlreadyFailed)
    assert json.loads(answer.record.error or "")["type"] == "ExecutionGone"


def test_an_equal_payload_finds_its_execution(requests: Requests) -> None:
    """What the fingerprint excludes may differ, such as the time of sending."""
    requests.machines.dies = "after"
    with pytest.raises(Killed):
        requests.ask()
    requests.let_the_lease_end()
    again = requests.workflow.start_of(NAME, "f1", {"sent_at": 2})
    assert accept(requests.workflow, again, requests.workflow.deadline(10_000), "request") == Started(ARN)


def test_a_key_whose_record_is_gone_finds_its_execution_by_name(requests: Requests) -> None:
    """The name outlives the record, so nothing runs twice."""
    requests.ask()
    requests.machines.close("SUCCEEDED", '"done"')
    requests.store.items.clear()
    answer = requests.ask()
    assert isinstance(answer, AlreadyCompleted)
    assert (answer.record.data, answer.record.status) == ('"done"', "COMPLETED")
    assert len(requests.machines.executions) == 1


def test_a_name_that_ran_for_another_payload_is_a_mismatch_for_good(requests: Requests) -> None:
    requests.ask()
    requests.machines.close("SUCCEEDED", '"done"')
    requests.store.items.clear()
    answer = requests.ask(payload=2)
    assert isinstance(answer, AlreadyFailed)
    assert json.loads(answer.record.error or "")["status"] == 422


@pytest.mark.parametrize("status", ["FAILED", "TIMED_OUT", "ABORTED"])
def test_a_machine_that_died_unheard_is_found_by_the_sweep(requests: Requests, status: str) -> None:
    requests.ask()
    requests.machines.close(status)
    assert requests.sweep() == NothingToDo()
    requests.let_the_lease_end()
    told = requests.machines.executions[NAME]["input"]
    assert requests.sweep() == Closed(ARN, status, told)
    assert requests.ask() == Started(ARN)  # the next request finds it, and leaves it to the sweep
    assert requests.sweep() == Closed(ARN, status, told)


def test_an_execution_that_still_runs_is_left_alone(requests: Requests) -> None:
    requests.ask()
    requests.let_the_lease_end()
    before = requests.record()
    assert requests.sweep() == NothingToDo()
    assert requests.record() == before


def test_what_is_settled_or_gone_is_left_alone(requests: Requests) -> None:
    assert requests.sweep() == NothingToDo()
    requests.ask()
    requests.workflow.conclude(ARN, transitions.completed(None), requests.workflow.deadline(10_000))
    assert requests.sweep() == NothingToDo()


def test_a_conclusion_is_written_once(requests: Requests) -> None:
    requests.ask()
    deadline = requests.workflow.deadline(10_000)
    assert isinstance(requests.workflow.conclude(ARN, transitions.completed("1"), deadline), Settled)
    late = requests.workflow.conclude(ARN, transitions.failed("{}"), deadline)
    assert isinstance(late, ClaimLost)
    assert requests.record().data == "1"


def test_names_tell_scopes_and_keys_apart_and_nothing_else() -> None:
    assert name_of("key") == NAME
    assert len({name_of("key"), name_of("key", "a"), name_of("y", "ke"), name_of("ke", "y"), name_of("")}) == 5
    assert all(len(name_of(key)) == 64 and name_of(key).isalnum() for key in ("", "x" * 255, "\ud800"))


def test_an_input_is_always_the_same_text(requests: Requests) -> None:
    """Step Functions recognises a repeated start by its name and its input."""
    one = requests.workflow.start_of(NAME, "f", {"a": 1, "b": "é"})
    assert one == requests.workflow.start_of(NAME, "f", {"b": "é", "a": 1})
    assert isinstance(one, Start)


@pytest.mark.parametrize(
    ("payload", "said"), [(float("nan"), "JSON"), ("\ud800", "surrogates"), ("x" * 262_144, "of 2622")]
)
def test_what_step_functions_cannot_take_is_refused_before_the_claim(
    requests: Requests, payload: Any, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        requests.workflow.start_of(NAME, "f1", payload)


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


def test_a_workflow_that_is_given_no_clock_has_the_systems() -> None:
    """Whether the option is left out, or passed on as None."""
    for options in ({}, {"clock": None}):
        workflow = Workflow(
            MemoryStore(namespace="clockless"),
            client=FakeStepFunctions(),  # type: ignore[arg-type]
            state_machine_arn=MACHINE,
            timeout_seconds=1,
            **options,
        )
        assert 9 < workflow.deadline(10_000).left_seconds <= 10
