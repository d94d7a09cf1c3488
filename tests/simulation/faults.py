"""What goes wrong between a worker and its store, at a call of one's choosing; and a queue client that says no.

A fault is made of the call that it befalls: it may let the call take effect, before or long after the worker has its
answer, and says what that answer is.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from idempotent_receiver.protocol.store import Conflict, NotApplied, Unknown
from tests.simulation.world import SlowStore, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from idempotent_receiver.protocol.store import TransactionalStore


@dataclass(frozen=True)
class Call:
    """One call of a store: its name, how many records it is about, and how to let it take effect."""

    name: str
    size: int
    act: Callable[[], Any]
    world: World


class FaultyStore(SlowStore):
    """A `SlowStore` whose calls meet the faults that were put in their way, in order; one worker's, or everybody's."""

    def __init__(self, store: TransactionalStore, world: World, round_trip_seconds: float = 0.005) -> None:
        super().__init__(store, world, round_trip_seconds)
        self._faults: dict[str, list[Callable[[Call], Any]]] = {}
        self._down: Callable[[str], bool] = lambda name: False

    def next(self, name: str, *faults: Callable[[Call], Any]) -> None:
        """The next calls of this name meet these faults, one each."""
        self._faults.setdefault(name, []).extend(faults)

    def mended(self) -> None:
        """No call meets a fault any more."""
        self._faults.clear()

    def down(self, *names: str) -> None:
        """From now on no call of these names (of any, where none is given) arrives, and nobody can tell."""
        self._down = lambda name: not names or name in names

    def up(self) -> None:
        """Back in order."""
        self._down = lambda name: False

    def _call(self, name: str, size: int, call: Callable[[], Any]) -> Any:
        def faulty() -> Any:
            if self._down(name):
                return lost_request(Call(name, size, call, self.world))
            faults = self._faults.get(name)
            return faults.pop(0)(Call(name, size, call, self.world)) if faults else call()

        return super()._call(name, size, faulty)


def each(call: Call, answer: object) -> Any:
    """The same answer for every record of a call."""
    return answer if call.name == "commit" else [answer] * call.size


def works(call: Call) -> Any:
    """No fault."""
    return call.act()


def lost_answer(call: Call) -> Any:
    """The call takes effect, and nobody hears of it."""
    call.act()
    return each(call, Unknown("the answer was lost"))


def lost_request(call: Call) -> Any:
    """The call never arrives, and nobody can tell."""
    return each(call, Unknown("the request was lost"))


def throttled(call: Call) -> Any:
    """Refused for now, for every record."""
    return each(call, Unknown("throttled") if call.name == "read" else NotApplied("throttled", retry=True))


def denied(call: Call) -> Any:
    """Refused for good, for every record."""
    return each(call, NotApplied("access denied", retry=False))


def raises(call: Call) -> Any:
    """The store has a defect, and the call no effect."""
    raise AttributeError("secret")


def raises_late(call: Call) -> Any:
    """The store has a defect, by which it breaks once the call has taken effect."""
    call.act()
    raise AttributeError("secret")


def sent_twice(call: Call) -> Any:
    """The client resends after a lost answer, and its second request meets the first one's effect."""
    call.act()
    return [Conflict(None) if isinstance(one, Conflict) else one for one in call.act()]


def delivered_later(seconds: float, then: Callable[[Call], Any] = lost_request) -> Callable[[Call], Any]:
    """The request is delayed on the wire: it arrives that much later, whatever has happened meanwhile."""

    def fault(call: Call) -> Any:
        call.world.spawn(call.act, after=seconds)
        return then(call)

    return fault


def delivered_again(seconds: float) -> Callable[[Call], Any]:
    """The request works, and a copy of it arrives again that much later."""

    def fault(call: Call) -> Any:
        call.world.spawn(call.act, after=seconds)
        return call.act()

    return fault


def partly(*applied: bool, otherwise: object) -> Callable[[Call], Any]:
    """Of a batch, only those records for which `applied` says so are written; the others are answered `otherwise`."""

    def fault(call: Call) -> Any:
        answers = call.act()
        return [one if ok else otherwise for one, ok in zip(answers, applied, strict=True)]

    return fault


def crash(kill: Callable[[], None], *, applied: bool) -> Callable[[Call], Any]:
    """The worker dies at this call, before or after it took effect; it never sees an answer."""

    def fault(call: Call) -> Any:
        if applied:
            call.act()
        kill()
        call.world._hub.switch()  # and nobody ever wakes it
        raise AssertionError("a dead worker goes on")

    return fault


class Denied(Exception):
    """What a queue client raises where SQS says no."""


@dataclass
class QueueClient:
    """SQS as far as we call it, with its limits: what breaks them is refused, as SQS would.

    `deny` names the methods that fail. `clock` orders sends for the five minutes of FIFO deduplication.
    """

    world: World
    round_trip_seconds: float = 0.005
    deny: set[str] = field(default_factory=set)
    sent: list[dict[str, Any]] = field(default_factory=list)
    visibilities: dict[str, int] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    _deduplicated: dict[str, float] = field(default_factory=dict)
    _ids: itertools.count[int] = field(default_factory=itertools.count)

    class meta:  # noqa: N801  # boto3's name
        endpoint_url: ClassVar[str] = "https://sqs.us-east-1.amazonaws.com"

    def change_message_visibility_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803
        self._arrive("change_message_visibility_batch")
        assert QueueUrl.startswith(self.meta.endpoint_url + "/123456789012/transfers")
        if not 1 <= len(Entries) <= 10:
            raise Denied("TooManyEntriesInBatchRequest")
        if len({entry["Id"] for entry in Entries}) < len(Entries):
            raise Denied("BatchEntryIdsNotDistinct")
        for entry in Entries:
            if not 0 <= entry["VisibilityTimeout"] <= 12 * 60 * 60:
                raise Denied("InvalidParameterValue")
            assert isinstance(entry["VisibilityTimeout"], int)
            self.visibilities[entry["ReceiptHandle"].removeprefix("handle-")] = entry["VisibilityTimeout"]
        return {"Successful": [{"Id": entry["Id"]} for entry in Entries]}

    def send_message(self, **arguments: Any) -> dict[str, Any]:
        self._arrive("send_message")
        if len(arguments["MessageAttributes"]) > 10:
            raise Denied("InvalidParameterValue: more than ten attributes")
        if not arguments["MessageBody"] or len(arguments["MessageBody"].encode()) > 1024 * 1024:
            raise Denied("InvalidParameterValue: the body")
        if arguments["QueueUrl"].endswith(".fifo"):
            if "MessageGroupId" not in arguments:
                raise Denied("MissingParameter: MessageGroupId")
            self._deduplicate(arguments["MessageDeduplicationId"], arguments)
        else:
            assert "MessageDeduplicationId" not in arguments
            self.sent.append(arguments)
        return {"MessageId": f"sent-{next(self._ids)}"}

    def _deduplicate(self, id: str, arguments: dict[str, Any]) -> None:
        if self.world.now < self._deduplicated.get(id, -1.0):
            return  # SQS accepts the send and swallows it
        self._deduplicated[id] = self.world.now + 300
        self.sent.append(arguments)

    def _arrive(self, name: str) -> None:
        self.calls.append(name)
        self.world.sleep(self.round_trip_seconds)
        if name in self.deny:
            raise Denied(f"{name} is denied")
