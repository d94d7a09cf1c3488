"""One execution for a key, wherever the worker that starts it dies."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from idempotent_receiver import MemoryStore
from idempotent_receiver.protocol.answers import AlreadyCompleted, AlreadyFailed, ClaimLost, OtherPayload, Settled
from idempotent_receiver.protocol.store import NotApplied
from idempotent_receiver.workflow import Closed, NothingToDo, Running, Started, Unknown, accept, name_of
from idempotent_receiver.workflow.executions import HAND_OVER_MARGIN_SECONDS, MOST_INPUT_BYTES
from idempotent_receiver.workflow.starts import MOST_STARTS
from tests.fake_step_functions import MACHINE, FakeStepFunctions, Killed
from tests.unit.workflow.requests import ARN, NAME, OVERDRAWN, TIMEOUT_SECONDS, Requests, workflow_of

THROTTLED = ClientError({"Error": {"Code": "ThrottlingException"}}, "StartExecution")


@pytest.fixture
def requests() -> Requests:
    return Requests()


def killed(requests: Requests, when: str = "after") -> None:
    """A worker dies before it starts the execution, or after, before it has handed its claim over."""
    requests.machines.dies = when
    with pytest.raises(Killed):
        requests.ask()


def failure(answer: object) -> Any:
    assert isinstance(answer, AlreadyFailed)
    return json.loads(answer.record.error or "")


def result(answer: object) -> str | None:
    assert isinstance(answer, AlreadyCompleted)
    return answer.record.data


def test_a_start_hands_its_claim_over_to_the_execution(requests: Requests) -> None:
    """It holds the record for as long as the state machine may run, and a little longer; a repeat starts nothing."""
    assert requests.ask() == Started(ARN)
    told = {"record": f"transfers#{NAME}", "fingerprint": "f1", "payload": 1}
    assert json.loads(requests.machines.executions[NAME]["input"]) == told
    found = requests.record()
    assert (found.status, found.execution, found.input, found.validation) == ("INPROGRESS", ARN, None, "f1")
    assert requests.lease_seconds() == TIMEOUT_SECONDS + HAND_OVER_MARGIN_SECONDS

    assert requests.ask() == Running(ARN)
    assert isinstance(requests.ask(payload=2), OtherPayload)
    assert (requests.machines.asked, requests.record()) == (1, found)


def test_the_outcome_is_written_once_and_answers_from_then_on(requests: Requests) -> None:
    requests.ask()
    assert isinstance(requests.complete('"done"'), Settled)
    assert isinstance(requests.fail("{}"), ClaimLost)
    assert result(requests.ask()) == '"done"'
    assert (requests.sweep(), requests.machines.asked) == (NothingToDo(), 1)


def test_a_failure_is_an_answer_and_starts_nothing_again(requests: Requests) -> None:
    requests.ask()
    requests.fail(OVERDRAWN)
    assert (failure(requests.ask()), requests.machines.asked) == (json.loads(OVERDRAWN), 1)


def test_a_request_that_is_too_late_by_either_clock_claims_nothing(requests: Requests) -> None:
    """The machine was suspended before its claim; by the clock that stood still there would be time."""
    deadline = requests.workflow.deadline(10_000)
    requests.clock.stepped_seconds += 3600
    answer = accept(requests.workflow, requests.workflow.start_of(NAME, "f1", 1), deadline, "request")
    assert answer == Unknown("no time was left to send the request")
    assert requests.store.items == {}


@pytest.mark.parametrize("dies", ["before", "after"])
@pytest.mark.parametrize("healer", [Requests.ask, Requests.sweep])
def test_a_starter_that_dies_still_leaves_one_execution(requests: Requests, dies: str, healer: Any) -> None:
    """Between claim and start, or between start and hand-over: the next request heals it, or a sweep."""
    killed(requests, dies)
    assert requests.ask() == Running(ARN)
    assert requests.sweep() == NothingToDo()
    requests.let_the_lease_end()
    assert healer(requests) == Started(ARN)
    assert list(requests.machines.executions) == [NAME]
    found = requests.record()
    assert (found.execution, found.attempts, found.validation) == (ARN, 2, "f1")
    assert requests.lease_seconds() == TIMEOUT_SECONDS + HAND_OVER_MARGIN_SECONDS


def test_an_execution_that_ends_before_the_hand_over_answers_itself(requests: Requests) -> None:
    killed(requests)
    requests.complete("7")
    assert (result(requests.ask()), requests.record().execution) == ("7", ARN)


def test_a_hand_over_after_the_outcome_says_the_outcome(requests: Requests, monkeypatch: pytest.MonkeyPatch) -> None:
    start = requests.machines.start_execution
    fast = lambda **asked: (start(**asked), requests.complete("7"))[0]  # noqa: E731
    monkeypatch.setattr(requests.machines, "start_execution", fast)
    assert result(requests.ask()) == requests.record().data == "7"


def test_a_hand_over_that_is_throttled_is_made_by_a_sweep(requests: Requests, monkeypatch: pytest.MonkeyPatch) -> None:
    """The execution runs, and the client gets that response; its outcome needs no hand-over, but a sweep makes it."""
    with monkeypatch.context() as down:
        down.setattr(requests.store, "replace", lambda changes: [NotApplied("throttled", retry=True) for _ in changes])
        assert requests.ask() == Started(ARN)
    assert requests.record().execution is None
    assert requests.sweep_then() == Started(ARN)
    assert requests.record().execution == ARN
    assert list(requests.machines.executions) == [NAME]


@pytest.mark.parametrize("refusal", [THROTTLED, EndpointConnectionError(endpoint_url="https://states")])
def test_what_cannot_be_started_now_is_tried_again(requests: Requests, refusal: Exception) -> None:
    requests.machines.refuses = refusal
    assert isinstance(requests.ask(), Unknown)
    requests.machines.refuses = None
    assert requests.sweep_then() == Started(ARN)


def swept_while_refused(requests: Requests, times: int) -> object:
    requests.machines.refuses = THROTTLED
    answer = requests.ask()
    for _ in range(times):
        answer = requests.sweep_then()
    return answer


def test_an_orphan_that_never_starts_is_given_up_and_says_so(requests: Requests) -> None:
    text = f"no execution could be started in {MOST_STARTS} attempts"
    told = {"type": "NeverStarted", "text": text, "permanent": True, "status": 500}
    assert failure(swept_while_refused(requests, MOST_STARTS)) == told
    assert requests.machines.asked == MOST_STARTS


def test_what_starts_while_it_is_given_up_is_not_given_up(requests: Requests, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the read and the claim, another worker starts it and dies."""
    swept_while_refused(requests, MOST_STARTS - 1)  # one more sweep gives up the orphan
    requests.machines.refuses = None
    requests.let_the_lease_end()
    describe = requests.machines.describe_execution

    def meanwhile(**asked: Any) -> Any:
        monkeypatch.setattr(requests.machines, "describe_execution", describe)
        try:
            return describe(**asked)
        finally:
            killed(requests)
            requests.let_the_lease_end()

    monkeypatch.setattr(requests.machines, "describe_execution", meanwhile)
    # A sweep with enough time: this takes longer than the starter's lease.
    assert (requests.sweep(60_000), requests.record().execution) == (Started(ARN), ARN)


def test_an_execution_of_a_replaced_machine_never_counts_as_not_started(requests: Requests) -> None:
    """It is described by the ARN in the record; if it no longer exists, the record says so."""
    requests.ask()
    requests.machines.close("ABORTED", None)
    requests.let_the_lease_end()
    another_process = MemoryStore(requests.store.namespace)
    another_process.items = requests.store.items
    options = {"state_machine_arn": f"{MACHINE}-v2", "clock": requests.clock}
    requests.workflow = workflow_of(another_process, requests.machines, **options)
    assert requests.sweep() == Closed(ARN, "ABORTED", requests.machines.executions[NAME]["input"])
    requests.machines.executions.clear()
    assert failure(requests.sweep())["type"] == "ExecutionGone"


def test_an_equal_payload_finds_its_execution(requests: Requests) -> None:
    """What the fingerprint excludes may differ, such as the time of sending."""
    killed(requests)
    requests.let_the_lease_end()
    assert requests.ask({"sent_at": 2}, fingerprint="f1") == Started(ARN)


def test_a_key_whose_record_is_gone_finds_its_execution_by_name(requests: Requests) -> None:
    """The name outlives the record, so nothing runs twice; for another payload it is a mismatch for good."""
    requests.ask()
    requests.machines.close("SUCCEEDED", '"done"')
    requests.store.items.clear()
    assert (result(requests.ask()), requests.record().status) == ('"done"', "COMPLETED")
    requests.store.items.clear()
    assert failure(requests.ask(payload=2))["status"] == 422
    assert len(requests.machines.executions) == 1


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
    assert requests.sweep() == NothingToDo(), "there is no record"
    requests.ask()
    requests.let_the_lease_end()
    before = requests.record()
    assert (requests.sweep(), requests.record()) == (NothingToDo(), before)


def test_names_tell_scopes_and_keys_apart_and_nothing_else() -> None:
    assert name_of("key") == NAME
    assert len({name_of("key"), name_of("key", "a"), name_of("y", "ke"), name_of("ke", "y"), name_of("")}) == 5
    assert all(len(name_of(key)) == 64 and name_of(key).isalnum() for key in ("", "x" * 255, "\ud800"))


def test_an_input_is_always_the_same_text(requests: Requests) -> None:
    """Step Functions recognises a repeated start by its name and its input."""
    one = requests.workflow.start_of(NAME, "f", {"a": 1, "b": "é"})
    assert one == requests.workflow.start_of(NAME, "f", {"b": "é", "a": 1})


@pytest.mark.parametrize(
    ("store", "options", "said"),
    [
        (MemoryStore(), {}, "namespace"),
        (None, {}, "store must be a store"),
        (MemoryStore("n"), {"client": None}, "client must be a boto3 client for stepfunctions.* it is None"),
        (MemoryStore("n"), {"client": boto3.client("sqs", region_name="us-east-1")}, "it is one for sqs"),
        (MemoryStore("n"), {"state_machine_arn": "transfers"}, "not the ARN of a state machine"),
        (MemoryStore("n"), {"state_machine_arn": None}, "None is not the ARN of a state machine"),
        (MemoryStore("n"), {"state_machine_arn": f"{MACHINE}:live"}, "without a version or an alias"),
        *((MemoryStore("n"), {"timeout_seconds": wrong}, "timeout_seconds must be") for wrong in (None, "60", 60.5, 0)),
        *((MemoryStore("n"), {"retention_seconds": wrong}, "retention_seconds must be") for wrong in (None, 1e7)),
        (MemoryStore("n"), {"lease_margin_seconds": "3"}, "lease_margin_seconds must be"),
        (MemoryStore("n"), {"retention_seconds": HAND_OVER_MARGIN_SECONDS + 1}, "exceed the longest execution"),
    ],
)
def test_what_cannot_work_is_refused_at_set_up(store: Any, options: dict[str, Any], said: str) -> None:
    """Otherwise a request would find out, with its key claimed already."""
    with pytest.raises((TypeError, ValueError), match=said):
        workflow_of(store, FakeStepFunctions(), **{"timeout_seconds": 1, "retention_seconds": 10**6, **options})


@pytest.mark.parametrize("options", [{}, {"clock": None}])
def test_a_workflow_that_is_given_no_clock_has_the_systems(options: dict[str, Any]) -> None:
    workflow = workflow_of(MemoryStore(namespace="clockless"), FakeStepFunctions(), **options)
    assert 9 < workflow.deadline(10_000).left_seconds <= 10


@pytest.mark.parametrize(("more", "fits"), [(0, True), (1, False)])
def test_an_input_may_have_exactly_the_bytes_that_step_functions_allows(
    requests: Requests, more: int, fits: bool
) -> None:
    """Bytes, not characters."""
    least = len(requests.workflow.start_of(NAME, "f1", "").input)
    text = "\u00fc" * ((MOST_INPUT_BYTES - least) // 2) + "x" * ((MOST_INPUT_BYTES - least) % 2 + more)
    try:
        size = len(requests.workflow.start_of(NAME, "f1", text).input.encode())
    except ValueError:
        size = 0
    assert size == (MOST_INPUT_BYTES if fits else 0)


def test_an_execution_whose_record_has_expired_is_none(requests: Requests) -> None:
    """DynamoDB deletes it days later."""
    requests.ask()
    requests.complete("1")
    assert requests.workflow.record_of(NAME, requests.workflow.deadline(1)) == requests.record()
    requests.clock.seconds += requests.workflow.retention_seconds + 1
    assert requests.workflow.record_of(NAME, requests.workflow.deadline(1)) is None
