"""When a batch's messages leave, in which requests, and what the answer to one means for the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from idempotent_receiver.batch.items import Event, Item, Stage, Work
from idempotent_receiver.batch.sends import SEND_LINGER_SECONDS, Sends
from idempotent_receiver.batch.settings import SendAnswer
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.protocol.transitions import Claim, Claimed
from idempotent_receiver.transaction.outbox import from_text, outgoing, to_text

if TYPE_CHECKING:
    from collections.abc import Callable

QUEUE = "https://sqs.us-east-1.amazonaws.com/123456789012/shipments"
SENT = SendAnswer(True)


class Post:
    """Sends whose requests wait for their answers. A message is known by its body."""

    def __init__(self) -> None:
        self.requests: list[list[str]] = []
        self.items: dict[int, Item] = {}
        self.ended: dict[int, Event] = {}
        self._answered: list[Callable[[Any], None]] = []
        settings: Any = SimpleNamespace(send_messages=self._asked, executor=self)
        self.sends = Sends(settings, SimpleNamespace(happens=self._happens))  # type: ignore[arg-type]  # the part that is used

    def add(self, index: int, *bodies: str, group: str | None = None) -> None:
        """An item that sends these messages."""
        queue, more = (QUEUE, {}) if group is None else (f"{QUEUE}.fifo", {"MessageGroupId": group})
        outbox = to_text([outgoing(queue, body, more) for body in bodies])
        claim = Claim(f"m{index}", None, "w", 0)
        item = Item(index, Work(key=claim.id, claim=claim, handle=lambda attempt: None, group=None), Stage.UNSENT)
        item.claim, item.sending = claim, Claimed(Record(id=claim.id, status="SENDING", outbox=outbox), claim)
        self.items[index] = item
        self.sends.add(item)

    def flush(self, seconds: float = 0.0, *, hurry: bool = True) -> None:
        self.sends.flush(seconds, hurry=hurry, late=False)

    def answer(self, request: int, *answers: SendAnswer) -> None:
        self._answered[request](answers)

    def start(self, job: Callable[[], None], then: Callable[[Any], None]) -> None:
        job()
        self._answered.append(then)

    def _asked(self, url: str, messages: list[tuple[str, dict[str, Any]]]) -> None:
        self.requests.append([arguments["MessageBody"] for _, arguments in messages])

    def _happens(self, item: Item, event: Event, outcome: object = None) -> None:
        self.ended[item.index] = event


def test_a_message_waits_for_others_until_it_is_due() -> None:
    post = Post()
    post.add(0, "a")
    post.flush(1.0, hurry=False)
    post.add(1, "b")
    post.flush(1.0 + SEND_LINGER_SECONDS * 0.9, hurry=False)
    assert post.requests == []
    post.flush(1.0 + SEND_LINGER_SECONDS, hurry=False)
    assert post.requests == [["a", "b"]]


def test_a_full_request_leaves_at_once_and_the_rest_waits() -> None:
    post = Post()
    post.add(0, *"abcdefghijkl")
    post.flush(hurry=False)
    assert post.requests == [[*"abcdefghij"]]


def test_the_answer_for_one_group_lets_no_other_groups_next_message_go() -> None:
    post = Post()
    post.add(0, "a1", "a2", group="a")
    post.flush()
    post.add(1, "b1", "b2", group="b")
    post.flush()
    post.answer(1, SENT)
    post.flush()
    assert post.requests == [["a1"], ["b1"], ["b2"]]
    post.answer(0, SENT)
    post.flush()
    assert post.requests[3:] == [["a2"]]


def test_a_refused_message_is_its_own_items_failure_alone() -> None:
    post = Post()
    post.add(0, "a", "b")
    post.add(1, "c")
    post.flush()
    post.answer(0, SendAnswer(False, "invalid", own=True), SENT, SENT)
    assert post.ended == {0: Event.UNCONFIRMED, 1: Event.CONFIRMED}
    assert (post.items[0].not_sent, post.items[0].failure.permanent) == (None, True)
    assert [*from_text(post.items[0].outbox)] == [1]
