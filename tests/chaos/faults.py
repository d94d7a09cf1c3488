"""What may happen to a request on its way, and to its answer. Pure, but for the chance that is passed in.

A fault says what is handed on in a request's place (None: nothing), and what the asker is told for the answer (None:
the connection breaks). What AWS's codes mean is documented with each operation; the ones here are those that a client
must live with.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tests.chaos.deck import Deck

if TYPE_CHECKING:
    from collections.abc import Sequence

Json = dict[str, Any]
Answer = tuple[int, Json]

LONGEST_DELAY_SECONDS = 8.0
"""How long a request may be on its way; its sender gave up long before, and may be dead."""

DYNAMODB = "com.amazonaws.dynamodb.v20120810#"


class Fault(Protocol):
    """What happens to one request."""

    @property
    def name(self) -> str:
        """What the accounting calls it."""

    @property
    def delay_seconds(self) -> float:
        """How late the request is handed on."""

    def handed_on(self, request: Json) -> Json | None:
        """What arrives of the request."""

    def told(self, request: Json, answer: Answer | None) -> Answer | None:
        """What the asker hears; `answer` is None where nothing was handed on."""


@dataclass(frozen=True, slots=True)
class Delayed:
    """The request arrives late, perhaps after its sender has given up, or has died."""

    delay_seconds: float
    name: str = "delayed"

    def handed_on(self, request: Json) -> Json | None:
        return request

    def told(self, request: Json, answer: Answer | None) -> Answer | None:
        return answer


@dataclass(frozen=True, slots=True)
class AnswerDropped:
    """The request takes effect, and the connection breaks before the answer."""

    name: str = "answer dropped"
    delay_seconds: float = 0.0

    def handed_on(self, request: Json) -> Json | None:
        return request

    def told(self, request: Json, answer: Answer | None) -> Answer | None:
        return None


@dataclass(frozen=True, slots=True)
class ErrorAfter:
    """The request takes effect, and the answer says that the service has a defect."""

    status: int
    name: str = "5xx, applied"
    delay_seconds: float = 0.0

    def handed_on(self, request: Json) -> Json | None:
        return request

    def told(self, request: Json, answer: Answer | None) -> Answer | None:
        return self.status, _error("InternalServerError")


@dataclass(frozen=True, slots=True)
class Turned:
    """The request has no effect, and the answer says so, or says nothing that could be relied on."""

    status: int
    code: str
    name: str
    delay_seconds: float = 0.0

    def handed_on(self, request: Json) -> Json | None:
        return None

    def told(self, request: Json, answer: Answer | None) -> Answer | None:
        return self.status, _error(self.code)


@dataclass(frozen=True, slots=True)
class StatementsTurned:
    """Some statements of a batch are not executed, and their answers say so, while the others' say nothing of it."""

    places: frozenset[int]
    code: str
    name: str = "statement refused, not applied"
    delay_seconds: float = 0.0

    def handed_on(self, request: Json) -> Json | None:
        kept = [statement for place, statement in enumerate(request["Statements"]) if place not in self.places]
        return {**request, "Statements": kept} if kept else None

    def told(self, request: Json, answer: Answer | None) -> Answer | None:
        if answer is not None and answer[0] != 200:
            return answer
        others = iter([] if answer is None else answer[1]["Responses"])
        number = len(request["Statements"])
        turned = {"Error": {"Code": self.code, "Message": ""}}
        return 200, {"Responses": [turned if place in self.places else next(others) for place in range(number)]}


@dataclass(frozen=True, slots=True)
class StatementsInDoubt:
    """All statements of a batch are executed, and of some the answer says that the service has a defect."""

    places: frozenset[int]
    name: str = "statement in doubt, applied"
    delay_seconds: float = 0.0

    def handed_on(self, request: Json) -> Json | None:
        return request

    def told(self, request: Json, answer: Answer | None) -> Answer | None:
        if answer is None or answer[0] != 200:
            return answer
        doubt = {"Error": {"Code": "InternalServerError", "Message": ""}}
        told = answer[1]["Responses"]
        return 200, {"Responses": [doubt if place in self.places else one for place, one in enumerate(told)]}


@dataclass(frozen=True, slots=True)
class KeysUnprocessed:
    """Some keys of a batch are not read, and the answer gives them back."""

    places: frozenset[int]
    name: str = "keys unprocessed"
    delay_seconds: float = 0.0

    def handed_on(self, request: Json) -> Json | None:
        (table, asked), *_ = request["RequestItems"].items()
        kept = [key for place, key in enumerate(asked["Keys"]) if place not in self.places]
        return {**request, "RequestItems": {table: {**asked, "Keys": kept}}} if kept else None

    def told(self, request: Json, answer: Answer | None) -> Answer | None:
        if answer is not None and answer[0] != 200:
            return answer
        (table, asked), *_ = request["RequestItems"].items()
        left = [key for place, key in enumerate(asked["Keys"]) if place in self.places]
        found: Json = {"Responses": {}} if answer is None else answer[1]
        return 200, {**found, "UnprocessedKeys": {table: {**asked, "Keys": left}}}


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A transaction is cancelled for one of its actions, and none of it takes effect."""

    place: int
    code: str
    name: str = "transaction cancelled"
    delay_seconds: float = 0.0

    def handed_on(self, request: Json) -> Json | None:
        return None

    def told(self, request: Json, answer: Answer | None) -> Answer | None:
        number = len(request["TransactItems"])
        reasons = [{"Code": self.code if place == self.place else "None"} for place in range(number)]
        return 400, {**_error("TransactionCanceledException"), "CancellationReasons": reasons}


def _error(code: str) -> Json:
    return {"__type": DYNAMODB + code, "message": "chaos"}


EVERY_REQUEST = ("slow",) * 6 + ("late", "dropped", "dropped", "defect", "defect", "unavailable", "failing")
"""What any request may meet, whatever it asks for; dealt once in EVERY_REQUEST_IN requests of an operation."""
EVERY_REQUEST_IN = 120

OF_AN_OPERATION = {
    "BatchExecuteStatement": ("statements turned", "statements turned", "statements in doubt"),
    "BatchGetItem": ("keys",),
    "TransactWriteItems": ("cancelled",),
    "PutItem": ("throttled",),
    "UpdateItem": ("throttled",),
}
"""What only requests of that operation may meet; each dealt once in OF_AN_OPERATION_IN of them."""
OF_AN_OPERATION_IN = 20

CODES = ("ThrottlingError", "ProvisionedThroughputExceeded", "RequestLimitExceeded", "TransactionConflict")
REASONS = ("TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded")


class Faults:
    """Deals faults to requests, by a seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(f"{seed} faults")
        self._general: Deck[str] = Deck(self._chance, EVERY_REQUEST, EVERY_REQUEST_IN)
        self._own = {name: Deck(self._chance, cards, OF_AN_OPERATION_IN) for name, cards in OF_AN_OPERATION.items()}

    def deal(self, operation: str, request: Json) -> Fault | None:
        """What happens to this request."""
        own = self._own.get(operation)
        card = self._general.draw() or (None if own is None else own.draw())
        return None if card is None else self._made(card, request)

    def _made(self, card: str, request: Json) -> Fault:
        chance = self._chance
        match card:
            case "slow":
                return Delayed(chance.uniform(0.02, 0.3), "slow")
            case "late":
                return Delayed(chance.uniform(1.0, LONGEST_DELAY_SECONDS))
            case "dropped":
                return AnswerDropped()
            case "defect":
                return ErrorAfter(chance.choice((500, 503)))
            case "unavailable":
                return Turned(503, "ServiceUnavailable", "5xx, not applied")
            case "failing":
                return Turned(500, "InternalServerError", "5xx, not applied")
            case "statements turned":
                return StatementsTurned(self._some(len(request["Statements"])), chance.choice(CODES))
            case "statements in doubt":
                return StatementsInDoubt(self._some(len(request["Statements"])))
            case "keys":
                (asked,) = request["RequestItems"].values()
                return KeysUnprocessed(self._some(len(asked["Keys"])))
            case "cancelled":
                return Cancelled(chance.randrange(len(request["TransactItems"])), chance.choice(REASONS))
            case "throttled":
                return Turned(400, "ThrottlingException", "throttled")
        raise AssertionError(f"there is no card {card!r}")

    def _some(self, number: int) -> frozenset[int]:
        return frozenset(self._chance.sample(range(number), self._chance.randint(1, max(1, number // 3))))


def names() -> Sequence[str]:
    """What the accounting may find."""
    return (
        "slow",
        "delayed",
        "answer dropped",
        "5xx, applied",
        "5xx, not applied",
        "statement refused, not applied",
        "statement in doubt, applied",
        "keys unprocessed",
        "transaction cancelled",
        "throttled",
    )
