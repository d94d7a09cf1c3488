"""Dead letters in their queue: the order of groups, and who holds what."""

from __future__ import annotations

from threading import get_ident
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from idempotent_receiver.operations.dead_letters import queue, steps
from idempotent_receiver.operations.dead_letters.history import ActOutcome
from idempotent_receiver.operations.dead_letters.queue import DeadLetterQueue
from idempotent_receiver.operations.dead_letters.run import Summary
from idempotent_receiver.operations.dead_letters.steps import Steps
from idempotent_receiver.operations.dead_letters.triage import Verdict
from idempotent_receiver.operations.dead_letters.verbs import delete_dispositions, redrive_dispositions
from idempotent_receiver.operations.dead_letters.workers import Workers
from idempotent_receiver.sqs.dead_letter import size_of
from tests.manual_clock import ManualClock
from tests.unit.operations.dead_letters.bank import (
    HOLD_SECONDS,
    Bank,
    both_kinds,
    counted,
    leftovers,
    names_in,
    throttled,
)


def test_a_group_comes_back_in_its_order_though_sqs_shows_ten_of_it_at_a_time() -> None:
    bank = throttled(25, fifo=True)
    summary = bank.redrive()
    assert names_in(bank.queue) == [f"throttled-{number:02}" for number in range(25)]
    assert (summary.done["moved"], summary.unseen) == (25, 0)


def test_what_sqs_refuses_is_not_overtaken_by_its_group_and_other_groups_go_on() -> None:
    bank = throttled(6, fifo=True, groups=2)
    bank.sqs.refused.add('{"name": "throttled-02"}')

    summary = bank.redrive()

    assert names_in(bank.queue) == ["throttled-00", "throttled-01", "throttled-03", "throttled-05"]
    assert [left.why for left in summary.left] == [
        "SQS refused its copy: ReceiptHandleIsInvalid",
        "an earlier dead letter in its group stays",
    ]


@pytest.mark.parametrize("refused", [2, 9, 10, 15])
def test_what_comes_up_in_a_later_round_does_not_overtake_what_an_earlier_one_left(refused: int) -> None:
    """The next round makes the group's ten visible again, and SQS delivers the ones behind them."""
    bank = throttled(25, fifo=True)
    bank.sqs.refused.add(f'{{"name": "throttled-{refused:02}"}}')

    summary = bank.redrive()

    assert names_in(bank.queue) == [f"throttled-{number:02}" for number in range(refused)]
    assert {left.why for left in summary.left} == {
        "SQS refused its copy: ReceiptHandleIsInvalid",
        "an earlier dead letter in its group stays",
    }
    assert len(summary.left) + summary.unseen == 25 - refused


def test_what_several_requests_refuse_is_told_of_each() -> None:
    bank = throttled(25)
    bank.sqs.refused |= {'{"name": "throttled-03"}', '{"name": "throttled-17"}'}
    summary = bank.redrive(rate=400)
    assert (summary.done["moved"], len(summary.left), len(bank.dead.messages)) == (23, 2, 2)


def test_what_lies_behind_ten_that_stay_is_said_to_be_unseen() -> None:
    bank = Bank(fifo=True)
    for number in range(12):
        bank.send(f"permanent-{number}", group="one")
    bank.deliver()
    summary = bank.redrive()
    assert (len(summary.left), summary.unseen) == (10, 2)


def test_a_hold_that_runs_out_is_renewed_before_anything_is_sent() -> None:
    bank = throttled(40)
    bank.redrive(rate=2)
    assert len(bank.queue.messages) == 40
    assert bank.dead.messages == []


@pytest.mark.parametrize("suspended", [False, True])
def test_a_hold_is_renewed_once_less_than_half_of_it_is_left_and_is_lost_with_its_last_moment(suspended: bool) -> None:
    bank = throttled(1)
    source = bank.session().source
    held = {each["MessageId"] for each in source.take()}
    before = len(bank.sqs.calls)
    for seconds, renewals in ((HOLD_SECONDS / 2, 0), (0.5, 1), (HOLD_SECONDS - 0.5, 2)):
        bank.clock.sleep(seconds)
        assert (source.still_held([*held]), len(bank.sqs.calls) - before) == (held, renewals)
    if suspended:
        bank.clock.stepped_seconds = HOLD_SECONDS
    else:
        bank.clock.sleep(HOLD_SECONDS)
    assert (source.still_held([*held]), len(bank.sqs.calls) - before) == (set(), 2)


@both_kinds
def test_what_somebody_else_took_meanwhile_is_left_to_them(fifo: bool) -> None:
    bank = throttled(1, fifo=fifo)
    with bank.session() as session:
        redrive = bank.run(session)
        plan = redrive.plan()
        bank.clock.sleep(HOLD_SECONDS + 1)
        assert bank.sqs.receive_message(QueueUrl=bank.dead.url)["Messages"]

        redrive.carry_out(plan)

    assert redrive.summary.done["moved"] == 0
    assert [left.why for left in redrive.summary.left] == ["it is no longer held: someone else may be handling it"]
    assert bank.queue.messages == []


def test_what_a_killed_run_holds_is_counted_and_comes_up_when_its_hold_ends() -> None:
    bank = throttled(100)
    killed = bank.session()
    assert len(killed.take(80)) == 80
    bank.clock.sleep(5)
    with bank.session() as session:
        assert (session.source.held_elsewhere(), len(session.take()), session.source.held_elsewhere()) == (80, 20, 80)
        begun = bank.clock.seconds
        assert session.source.wait_for_others() == 0
        assert HOLD_SECONDS - 5 <= bank.clock.seconds - begun <= HOLD_SECONDS
    with bank.session() as session:
        assert len(session.take()) == 100


def test_no_more_is_received_than_was_asked_for() -> None:
    bank = throttled(100)
    bank.workers = 4
    before = len(bank.sqs.calls)
    with bank.session() as session:
        assert len(session.take(25)) == 30, "by tens"
    assert [name for name, _ in bank.sqs.calls[before:]].count("receive_message") == 3


@pytest.mark.parametrize(("count", "own"), [(1, True), (2, False)])
def test_a_single_worker_is_the_callers_thread(count: int, own: bool) -> None:
    assert (Workers(count).results(lambda _: get_ident(), "a") == [get_ident()]) is own


def test_a_wait_for_others_ends_although_one_of_them_goes_on_holding() -> None:
    bank = throttled(10)
    bank.sqs.receive_message(QueueUrl=bank.dead.url, MaxNumberOfMessages=10, VisibilityTimeout=3600)
    held = bank.session().source
    begun = bank.clock.seconds
    assert (held.wait_for_others(), bank.clock.seconds - begun) == (10, HOLD_SECONDS)
    assert (held.wait_for_others(lambda: True), bank.clock.seconds - begun) == (10, HOLD_SECONDS)


def test_what_dies_again_while_it_runs_does_not_go_round_and_round() -> None:
    bank = Bank(fifo=True)
    for number in range(5):
        bank.send(f"garbage-{number}")
    bank.deliver()

    def dies_again(summary: Summary) -> None:
        bank.deliver()

    with bank.session(include_permanent=True) as session:
        redrive = bank.run(session)
        redrive.carry_out(redrive.plan(), dies_again)

    assert redrive.summary.done["moved"] == 5
    assert {left.why for left in redrive.summary.left} == {"this run already sent back a message with its key"}
    assert len(bank.dead.messages) == 5


def test_batches_stay_within_a_mebibyte_and_each_message_comes_back() -> None:
    bank = throttled(6, attributes={"a": {"DataType": "String", "StringValue": "x" * 400_000}})
    assert bank.redrive().done["moved"] == 6
    sizes = [len(asked["Entries"]) for name, asked in bank.sqs.calls if name == "send_message_batch"]
    assert sizes == [2, 2, 2]


def test_trouble_with_aws_ends_the_run_and_what_is_held_is_released() -> None:
    bank = leftovers()
    bank.sqs.broken.add("send_message_batch")
    with pytest.raises(ClientError):
        bank.redrive()
    assert bank.queue.messages == []
    assert all(kept.visible_seconds <= bank.clock.seconds for kept in bank.dead.messages)


SEND_TIMED_OUT = ReadTimeoutError(endpoint_url="x")


def failed(code: str, status: int | None = None) -> ClientError:
    told = {} if status is None else {"ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError({"Error": {"Code": code}, **told}, "x")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answer", "outcomes"),
    [
        ({}, ["unconfirmed"] * 2),
        ({"Successful": [{"Id": "0"}]}, ["done", "unconfirmed"]),
        ({"Failed": [{"Id": "1", "Code": "Busy"}]}, ["unconfirmed", "refused"]),
        (failed("AccessDenied", 403), ["refused"] * 2),
        (failed("AWS.SimpleQueueService.AccessDenied"), ["refused"] * 2),
        (failed("KMS.DisabledException", 500), ["refused"] * 2),
        (failed("KmsAccessDenied"), ["refused"] * 2),
        (failed("InvalidMessageContents", 400), ["refused"] * 2),
        (failed("ServiceUnavailable", 503), ["unconfirmed"] * 2),
        (failed("InternalError", 500), ["unconfirmed"] * 2),
        (failed("Unheard"), ["unconfirmed"] * 2),
        (SEND_TIMED_OUT, ["unconfirmed"] * 2),
    ],
)
def test_only_what_sqs_confirms_is_done_and_only_what_it_certainly_did_not_do_is_refused(
    answer: Any, outcomes: list[str]
) -> None:
    bank = throttled(2)
    session = bank.session()
    decisions = session.take()

    def send(**asked: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    performing = Steps(SimpleNamespace(send_message_batch=send), session.source)  # type: ignore[arg-type]
    failed, _ = performing.carry_out(redrive_dispositions(bank.queue.url)[Verdict.MOVE], decisions)
    failures = [failed.get(each.dead_letter.id) for each in decisions]
    assert [ActOutcome.DONE if each is None else each.outcome for each in failures] == outcomes
    assert all(each is None or each.code for each in failures)
    assert len(bank.dead.messages) == outcomes.count("unconfirmed") + outcomes.count("refused")


def test_a_deletion_that_sqs_does_not_confirm_counts_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    source = throttled(2).session().source
    first, second = (message["MessageId"] for message in source.take())

    def delete(*, QueueUrl: str, Entries: list[Any]) -> Any:  # noqa: N803
        return {"Successful": [{"Id": "0"}] if len(Entries) == 2 else []}

    monkeypatch.setattr(source.sqs, "delete_message_batch", delete)
    assert source.delete([first, second]) == {second: "Unconfirmed"}
    assert source.still_held([first, second]) == {second}


def test_a_hold_that_sqs_does_not_renew_is_lost_and_those_renewed_beside_it_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bank = throttled(2)
    source = bank.session().source
    first, second = (message["MessageId"] for message in source.take())
    bank.clock.sleep(HOLD_SECONDS * 0.75)
    answer = {"Successful": [{"Id": "1"}], "Failed": [{"Id": "0", "Code": "MessageNotInflight"}]}
    monkeypatch.setattr(source.sqs, "change_message_visibility_batch", lambda **asked: answer)
    assert source.still_held([first, second]) == {second}


def test_a_delete_that_sqs_does_not_confirm_may_have_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    bank = throttled(1)
    with bank.session() as session:
        run = bank.run(session, dispositions=delete_dispositions())
        plan = run.plan()
        monkeypatch.setattr(session.source.sqs, "delete_message_batch", lambda **asked: {})  # type: ignore[attr-defined]
        run.carry_out(plan)
    (left,) = run.summary.left
    assert (left.outcome, left.why) == (ActOutcome.UNCONFIRMED, "SQS did not confirm it")


@pytest.mark.parametrize(("less", "sizes"), [(0, [2, 2]), (1, [1] * 4)])
def test_a_request_is_filled_to_its_last_byte(less: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    bank = throttled(4)
    copy = bank.session().take()[0].dead_letter.copy()
    bank.clock.sleep(HOLD_SECONDS + 1)
    most = 2 * size_of(copy["MessageBody"], copy["MessageAttributes"]) - less
    monkeypatch.setattr(steps, "MOST_BYTES", most)
    bank.redrive()
    assert [len(asked["Entries"]) for name, asked in bank.sqs.calls if name == "send_message_batch"] == sizes


@pytest.mark.parametrize(("fifo", "held"), [(False, 20), (True, 30)])
def test_no_more_is_held_than_sqs_allows_in_flight(fifo: bool, held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Less what the requests that are under way may bring."""
    monkeypatch.setattr(queue, "MAX_HELD_STANDARD", 30)
    monkeypatch.setattr(queue, "MAX_HELD_FIFO", 40)
    bank = throttled(60, fifo=fifo, groups=60)
    with bank.session() as session:
        assert (len(session.take()), session.source.more, session.source.unseen()) == (held, True, 60 - held)


def test_no_more_bodies_are_in_memory_than_a_round_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what was seen so far: so many requests are under way that their answers fit."""
    monkeypatch.setattr(queue, "MAX_BYTES_A_ROUND", 50_000)
    bank = throttled(100, attributes=None)
    for kept in bank.dead.messages:
        kept.sent["MessageBody"] = kept.sent["MessageBody"].ljust(1000)
    bank.workers = 8
    with bank.session() as session:
        rounds = [len(session.take()) for _ in range(3)]
        assert (rounds, session.take()) == ([50, 50, 0], [])


def test_a_suspended_machine_does_not_believe_in_a_hold_that_has_passed() -> None:
    """Its monotonic clock stood still, and the wall clock tells. It is asked before each wave."""
    bank = throttled(5)

    def suspended(summary: Summary) -> None:
        bank.clock.stepped_seconds = HOLD_SECONDS + 1 if summary.acted == 2 else 0

    with bank.session() as session:
        run = bank.run(session, rate=1)
        run.carry_out(run.plan(), suspended)
    assert names_in(bank.queue) == ["throttled-00", "throttled-01"]
    assert {each.why for each in run.summary.left} == {"it is no longer held: someone else may be handling it"}
    assert len(run.summary.left) == 3


def test_a_receive_asks_for_all_that_a_message_has_and_waits_for_it() -> None:
    errors = iter(["OverLimit", "AWS.SimpleQueueService.OverLimit", "AccessDenied"])

    def receive(**asked: Any) -> None:
        assert asked == {
            "QueueUrl": "q",
            "MaxNumberOfMessages": 10,
            "VisibilityTimeout": 7,
            "WaitTimeSeconds": 1,
            "MessageSystemAttributeNames": ["All"],
            "MessageAttributeNames": ["All"],
        }
        raise ClientError({"Error": {"Code": next(errors)}}, "ReceiveMessage")

    sqs: Any = SimpleNamespace(receive_message=receive)
    dead = DeadLetterQueue(sqs, "q", ManualClock(), hold_seconds=7, workers=Workers(1))
    assert (dead.take(), dead.more, dead.take()) == ([], False, []), "others hold as much as SQS allows"
    assert dead.cut_short == "holds ran out: SQS lets no more messages be in flight"
    with pytest.raises(ClientError, match="AccessDenied"):
        dead.take()


def test_letters_that_come_up_again_do_not_end_a_take_before_what_lies_behind_them() -> None:
    """Their hold has run out. Only the second answer in a row that has nothing new does."""
    answers = iter("aababc")

    def receive(**asked: Any) -> Any:
        return {"Messages": [{"MessageId": id, "ReceiptHandle": "r", "Body": ""} for id in next(answers, "")]}

    sqs: Any = SimpleNamespace(receive_message=receive)
    dead = DeadLetterQueue(sqs, "q", ManualClock(), hold_seconds=7, workers=Workers(1))
    assert ([each["MessageId"] for each in dead.take()], dead.more, next(answers)) == (["a", "b"], False, "c")
    assert dead.cut_short == "holds ran out: what was read came back before the rest: give a longer --hold"


def test_what_is_held_or_delayed_is_counted() -> None:
    counts = {
        f"ApproximateNumberOfMessages{name}": count for name, count in (("", 3), ("NotVisible", 5), ("Delayed", 7))
    }
    sqs: Any = SimpleNamespace(
        get_queue_attributes=lambda QueueUrl, AttributeNames: {  # noqa: N803
            "Attributes": {name: str(counts[name]) for name in AttributeNames}
        }
    )
    clock = ManualClock()
    dead = DeadLetterQueue(sqs, "q", clock, hold_seconds=5, workers=Workers(1))
    assert (dead.count(), dead.held_elsewhere(), dead.unseen()) == (15, 5, 15)
    assert (dead.wait_for_others(), clock.sleeps) == (5, [2.0, 2.0, 1.0])
    dead.hold_seconds = 2.5  # type: ignore[assignment]  # as if the requests took the rest
    assert (dead.wait_for_others(), clock.sleeps[3:]) == (5, [2.0, 0.5])


def test_a_session_takes_as_many_as_were_asked_for_and_knows_whether_there_are_more() -> None:
    bank = throttled(35)
    assert bank.session().take(stopped=lambda: True) == []
    held = bank.session().source
    assert (len(held.take(20)), held.more, held.unseen()) == (20, True, 15)
    assert (len(held.take()), held.more, held.unseen()) == (15, False, 0)


FAILURES = [ClientError({"Error": {"Code": "Busy"}}, "x"), ReadTimeoutError(endpoint_url="x")]


@pytest.mark.parametrize("failure", FAILURES)
def test_a_deletion_tells_of_each_what_failed_and_a_release_that_fails_is_let_be(failure: Exception) -> None:
    bank = throttled(25)
    held = bank.session().source
    ids = [each["MessageId"] for each in held.take()]
    bank.sqs.undeletable.add('{"name": "throttled-00"}')
    delete, numbers = bank.sqs.delete_message_batch, iter(range(3))

    def second_fails(**asked: Any) -> Any:
        if next(numbers) == 1:
            raise failure
        return delete(**asked)

    def fail(**asked: Any) -> None:
        raise failure

    bank.sqs.delete_message_batch = second_fails  # type: ignore[method-assign]
    assert held.delete(ids) == {ids[0]: "ReceiptHandleIsInvalid", **dict.fromkeys(ids[10:20], failure)}
    bank.sqs.change_message_visibility_batch = fail  # type: ignore[method-assign]
    held.release()
    assert held.still_held(ids) == set()


@pytest.mark.parametrize(("rate", "size"), [(0.5, 1), (5, 5), (20, 10), (80, 20), (95, 20), (1000, 100)])
def test_a_wave_is_what_the_rate_allows_in_a_quarter_of_a_second_in_whole_batches(rate: float, size: int) -> None:
    bank = throttled(120)
    acted: list[int] = []
    begun = bank.clock.seconds
    with bank.session() as session:
        run = bank.run(session, rate=rate, stopped=lambda: bool(acted))
        run.carry_out(run.plan(), lambda summary: acted.append(summary.acted))
    assert (acted[0], len(bank.queue.messages), bank.clock.seconds) == (size, size, begun)


def test_what_does_not_return_to_the_consumer_needs_no_order() -> None:
    bank = throttled(10, fifo=True)
    with bank.session() as session:
        run = bank.run(session, dispositions=delete_dispositions())
        run.carry_out(run.plan())
    assert (counted(bank)["delete_message_batch"], bank.dead.messages) == (1, [])


def test_a_deletion_that_fails_as_a_whole_is_told_with_its_code() -> None:
    bank = throttled(1)
    bank.sqs.broken.add("delete_message_batch")
    with bank.session() as session:
        run = bank.run(session)
        plan = run.plan()
        with pytest.raises(ClientError):
            run.carry_out(plan)
    (undeleted,) = run.summary.undeleted
    assert undeleted.why.startswith("it could not be deleted: SQS refused it: AccessDenied; its copy was sent")
