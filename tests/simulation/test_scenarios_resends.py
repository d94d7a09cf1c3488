"""Dead letters that are sent again with another body, in the ways in which two bodies, or none, used to take effect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.simulation.resend_world import ResendExplorer
from tests.simulation.setups import ALL, Act, Setup

if TYPE_CHECKING:
    from tests.simulation.resend_state import ResendState

RESEND = Act("resend")


class Story:
    """A consumer, and operators who act one after the other."""

    def __init__(self, acts: tuple[Act, ...], letters: tuple[int, ...], **mode: Any) -> None:
        setup = Setup("a story", 2, 1, adapter="operators", acts=acts, letters=letters, **mode)
        self.explorer = ResendExplorer(setup)
        self.state: ResendState = self.explorer.initial_state(faults=1)

    def go(self, name: str, *start: Any, killed_before: str = "") -> bool:
        """Let somebody act to the end, or be killed before a call of this kind; returns whether it did all."""
        self._play(*(start or ("start",))[:1], name, *start[1:])
        while (worker := self.state.named(name)).live:
            ((number, call, _),) = worker.waits()
            if call.kind == killed_before:
                self._play("crash", name)
            else:
                self._play("return" if call.kind == "run" else "apply", name, number)
        return worker.history is not None and worker.history.response == []

    def deliver_all(self) -> None:
        """Deliver what is queued, once."""
        for number, body in enumerate(self.state.queued):
            if body in self.state.deliverable:
                self.go(f"c{number}", "deliver", body)

    def done(self) -> list[int]:
        """The bodies that took effect. Whatever the operator goes on with, there will be exactly one."""
        return sorted(self.explorer.deliver_last(self.state))

    def _play(self, *move: Any) -> None:
        self.state = self.explorer.play(self.state, move)


@pytest.fixture(params=["claims", "transaction"])
def effects(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {} if request.param == "claims" else {"transactional": True, "unclaimed": ALL}


@pytest.fixture(params=[False, True], ids=["standard", "fifo"])
def mode(request: pytest.FixtureRequest, effects: dict[str, Any]) -> dict[str, Any]:
    return {"fifo": request.param, **effects}


def test_a_resend_is_killed_after_its_send_and_then_the_letter_is_redriven(mode: dict[str, Any]) -> None:
    story = Story((RESEND, Act("redrive", "bob")), letters=(0,), **mode)
    story.go("o0", killed_before="replace")

    assert story.go("o1"), "it finishes a resend that has begun"
    story.deliver_all()

    assert story.state.letters == frozenset()
    assert story.done() == [1]


def test_a_letter_is_restored_twice_and_one_copy_resent_and_the_other_redriven(mode: dict[str, Any]) -> None:
    story = Story((RESEND, Act("redrive", "bob", letter=1)), letters=(0, 0), **mode)
    assert story.go("o0")

    assert story.go("o1"), "it drops a letter whose message goes on under another key"
    assert (story.state.queued, story.state.letters) == ((1,), frozenset())
    story.deliver_all()

    assert story.done() == [1]


def test_a_redrive_is_killed_after_its_send_and_then_the_letter_is_resent(mode: dict[str, Any]) -> None:
    story = Story((Act("redrive", "bob"), RESEND), letters=(0,), **mode)
    story.go("o0", killed_before="delete")

    assert story.go("o1"), "the old body has not run, so another one may go"
    assert story.state.queued == (0, 1)
    story.deliver_all()

    assert (story.state.queued, story.done()) == ((), [1])


def test_a_redrive_is_killed_after_its_send_and_its_copy_finishes_the_resend(mode: dict[str, Any]) -> None:
    story = Story((Act("redrive", "bob"), RESEND), letters=(0,), **mode)
    story.go("o0", killed_before="delete")
    story.go("o1", killed_before="send")
    assert story.state.queued == (0,), "the consumer meets the record with a copy of the old body"
    assert story.done() == [1]


def test_of_two_crossed_letters_each_message_has_its_effect(mode: dict[str, Any]) -> None:
    crossed = Act("resend", old=0, new=2), Act("resend", "bob", letter=1, old=2, new=0)
    story = Story(crossed, letters=(0, 2), **mode)
    assert story.go("o0")
    assert not story.go("o1"), "the new key was itself resent"
    assert story.done() == [2]
