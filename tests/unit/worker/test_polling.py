"""What is told to SQS ten at a time: one that is refused takes no other along."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver.clock import since_boot_seconds
from idempotent_receiver.worker import __main__ as main
from idempotent_receiver.worker.polling import Acknowledgements, PolledQueue, send_in_tens

if TYPE_CHECKING:
    from collections.abc import Sequence

logger = logging.getLogger("test")


@pytest.mark.parametrize("raises", [False, True])
def test_each_entry_that_was_refused_is_asked_for_once_more_alone(raises: bool) -> None:
    """Whether its request was refused or failed as a whole, and whatever comes of the others."""
    asked: list[list[int]] = []

    def ask(entries: Sequence[int]) -> list[int]:
        asked.append(list(entries))
        if raises or len(entries) == 1:
            raise ConnectionError
        return [entry for entry in entries if entry % 3 == 0]

    send_in_tens(ask, range(12), logger)

    alone = [[[entry] for entry in chunk if raises or entry % 3 == 0] for chunk in (range(10), range(10, 12))]
    assert asked == [[*range(10)], *alone[0], [10, 11], *alone[1]]


def test_an_entry_that_was_refused_is_known_by_its_id() -> None:
    """SQS lists entries in any order, and one in neither list was not confirmed."""
    answer = {"Failed": [{"Id": "3"}], "Successful": [{"Id": "2"}, {"Id": "0"}]}
    sqs: Any = SimpleNamespace(
        change_message_visibility_batch=lambda **asked: answer, delete_message_batch=lambda **asked: answer
    )
    queue = PolledQueue(sqs, "url", "arn")

    assert queue.change([(handle, 7) for handle in "abcd"]) == [("b", 7), ("d", 7)]
    assert queue.delete([*"abcd"]) == ["b", "d"]


def test_acknowledgements_wake_their_thread_for_the_first_and_for_a_full_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each waking costs the handlers a switch of threads."""
    monkeypatch.setattr(Acknowledgements, "_run", lambda self: None)
    queue: Any = None
    acknowledgements, woken = Acknowledgements(queue, logger), list[int]()
    deletions, changes = acknowledgements._deletions, acknowledgements._changes
    acknowledgements._some.notify = lambda n=1: woken.append(len(deletions) + len(changes))  # type: ignore[method-assign]

    for number in range(11):
        acknowledgements.delete(str(number))
    for number in range(10):
        acknowledgements.change(str(number), 1)

    assert woken == [1, 10, 11, 12, 21]


class Reports:
    def __init__(self) -> None:
        self.told: list[float | None] = []

    def dead_by(self, seconds: float | None) -> None:
        self.told.append(seconds)


class NoTimer:
    def arm(self, seconds: float) -> None: ...
    def disarm(self) -> None: ...


def test_the_supervisor_is_told_when_the_timer_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that both have."""
    reports = Reports()
    monkeypatch.setattr(main, "Timer", NoTimer)
    timer = main.ReportedTimer(reports)  # type: ignore[arg-type]
    before = since_boot_seconds()

    timer.arm(100)
    timer.disarm()

    armed, disarmed = reports.told
    assert armed is not None
    assert before + 100 <= armed <= since_boot_seconds() + 100
    assert disarmed is None
