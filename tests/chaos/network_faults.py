"""What may happen to a request on its way, and to its answer. Pure, but for the chance that is passed in.

A fault says what arrives in a request's place (None: nothing), and what the client is told in the answer's place (None:
the connection breaks). AWS documents what its codes mean with each operation; these are those that a client must live
with.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.chaos.shuffle_bag import ShuffleBag

Json = dict[str, Any]
Answer = tuple[int, Json]

LONGEST_DELAY_SECONDS = 8.0
"""How long a request may be on its way; its sender gave up long before, and may be dead."""

DYNAMODB = "com.amazonaws.dynamodb.v20120810#"


@dataclass(frozen=True, slots=True)
class NetworkFault:
    """What happens to one request, under the name by which it is counted.

    `arriving` makes of the request what arrives; `answering` makes of request and answer (None: nothing arrived) what
    the client is told. Without them neither is changed.
    """

    name: str
    delay_seconds: float = 0.0
    arriving: Callable[[Json], Json | None] = lambda request: request
    answering: Callable[[Json, Answer | None], Answer | None] = lambda request, answer: answer


def _nothing(request: Json) -> Json | None:
    return None


def answer_dropped() -> NetworkFault:
    """The request takes effect, and the connection breaks before the answer."""
    return NetworkFault("answer dropped", answering=lambda request, answer: None)


def failed_after(status: int) -> NetworkFault:
    """The request takes effect, and the answer says that the service has failed."""
    return NetworkFault("5xx, applied", answering=lambda request, answer: (status, _error("InternalServerError")))


def refused(status: int, code: str, name: str = "5xx, not applied") -> NetworkFault:
    """The request has no effect, and the answer says so, or says nothing that could be relied on."""
    return NetworkFault(name, arriving=_nothing, answering=lambda request, answer: (status, _error(code)))


def statements_refused(places: frozenset[int], code: str) -> NetworkFault:
    """Some statements of a batch are not executed, and their answers say so; the others' do not mention it."""

    def arriving(request: Json) -> Json | None:
        kept = [statement for place, statement in enumerate(request["Statements"]) if place not in places]
        return {**request, "Statements": kept} if kept else None

    def answering(request: Json, answer: Answer | None) -> Answer | None:
        if answer is not None and answer[0] != 200:
            return answer
        others = iter([] if answer is None else answer[1]["Responses"])
        number = range(len(request["Statements"]))
        return 200, {"Responses": [_statement_error(code) if place in places else next(others) for place in number]}

    return NetworkFault("statement refused, not applied", arriving=arriving, answering=answering)


def statements_in_doubt(places: frozenset[int]) -> NetworkFault:
    """All statements of a batch are executed, and for some the answer says that the service has failed."""

    def answering(request: Json, answer: Answer | None) -> Answer | None:
        if answer is None or answer[0] != 200:
            return answer
        doubt = _statement_error("InternalServerError")
        return 200, {
            "Responses": [doubt if place in places else one for place, one in enumerate(answer[1]["Responses"])]
        }

    return NetworkFault("statement in doubt, applied", answering=answering)


def keys_unprocessed(places: frozenset[int]) -> NetworkFault:
    """Some keys of a batch are not read, and the answer returns them."""

    def split(request: Json, *, unprocessed: bool) -> Json:
        ((table, asked),) = request["RequestItems"].items()
        keys = [key for place, key in enumerate(asked["Keys"]) if (place in places) == unprocessed]
        return {table: {**asked, "Keys": keys}} if keys else {}

    def arriving(request: Json) -> Json | None:
        kept = split(request, unprocessed=False)
        return {**request, "RequestItems": kept} if kept else None

    def answering(request: Json, answer: Answer | None) -> Answer | None:
        if answer is not None and answer[0] != 200:
            return answer
        found: Json = {"Responses": {}} if answer is None else answer[1]
        return 200, {**found, "UnprocessedKeys": split(request, unprocessed=True)}

    return NetworkFault("keys unprocessed", arriving=arriving, answering=answering)


def cancelled(culprit: int, code: str) -> NetworkFault:
    """A transaction is cancelled because of one of its actions, and none of it takes effect."""

    def answering(request: Json, answer: Answer | None) -> Answer | None:
        number = range(len(request["TransactItems"]))
        reasons = [{"Code": code if place == culprit else "None"} for place in number]
        return 400, {**_error("TransactionCanceledException"), "CancellationReasons": reasons}

    return NetworkFault("transaction cancelled", arriving=_nothing, answering=answering)


def _error(code: str) -> Json:
    return {"__type": DYNAMODB + code, "message": "chaos"}


def _statement_error(code: str) -> Json:
    return {"Error": {"Code": code, "Message": ""}}


CODES = ("ThrottlingError", "ProvisionedThroughputExceeded", "RequestLimitExceeded", "TransactionConflict")
REASONS = ("TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded")


def _some(chance: random.Random, asked: Sequence[object]) -> frozenset[int]:
    return frozenset(chance.sample(range(len(asked)), chance.randint(1, max(1, len(asked) // 3))))


def _keys_unprocessed(chance: random.Random, request: Json) -> NetworkFault:
    (asked,) = request["RequestItems"].values()
    return keys_unprocessed(_some(chance, asked["Keys"]))


def _statements_refused(chance: random.Random, request: Json) -> NetworkFault:
    return statements_refused(_some(chance, request["Statements"]), chance.choice(CODES))


def _throttled(chance: random.Random, request: Json) -> NetworkFault:
    return refused(400, "ThrottlingException", "throttled")


Make = Callable[[random.Random, Json], NetworkFault]
EVERY_REQUEST: tuple[Make, ...] = (
    *[lambda chance, request: NetworkFault("slow", chance.uniform(0.02, 0.3))] * 6,
    lambda chance, request: NetworkFault("delayed", chance.uniform(1.0, LONGEST_DELAY_SECONDS)),
    *[lambda chance, request: answer_dropped()] * 2,
    *[lambda chance, request: failed_after(chance.choice((500, 503)))] * 2,
    lambda chance, request: refused(503, "ServiceUnavailable"),
    lambda chance, request: refused(500, "InternalServerError"),
)
"""What any request may meet, whatever it asks for; each once in EVERY_REQUEST_IN requests."""
EVERY_REQUEST_IN = 120

OF_AN_OPERATION: dict[str, tuple[Make, ...]] = {
    "BatchExecuteStatement": (
        *[_statements_refused] * 2,
        lambda chance, request: statements_in_doubt(_some(chance, request["Statements"])),
    ),
    "BatchGetItem": (_keys_unprocessed,),
    "TransactWriteItems": (
        lambda chance, request: cancelled(chance.randrange(len(request["TransactItems"])), chance.choice(REASONS)),
    ),
    "PutItem": (_throttled,),
    "UpdateItem": (_throttled,),
}
"""What only requests of that operation may meet; each once in OF_AN_OPERATION_IN of them."""
OF_AN_OPERATION_IN = 20


class NetworkFaults:
    """Chooses faults for requests, by a seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(f"{seed} faults")
        self._general = ShuffleBag(self._chance, EVERY_REQUEST, EVERY_REQUEST_IN)
        self._own = {name: ShuffleBag(self._chance, each, OF_AN_OPERATION_IN) for name, each in OF_AN_OPERATION.items()}

    def choose(self, operation: str, request: Json) -> NetworkFault | None:
        own = self._own.get(operation)
        make = self._general.draw() or (None if own is None else own.draw())
        return None if make is None else make(self._chance, request)
