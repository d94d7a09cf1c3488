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

from tests.chaos.settings import RECORDS, VISIBILITY_SECONDS
from tests.chaos.shuffle_bag import ShuffleBag
from tests.chaos.wire import writes_of

Json = dict[str, Any]
Answer = tuple[int, Json]

LONGEST_DELAY_SECONDS = 8.0
"""How long a request may be on its way; its sender gave up long before, and may be dead."""

PAST_THE_NEXT_DELIVERY_SECONDS = (VISIBILITY_SECONDS, LONGEST_DELAY_SECONDS)

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


def answer_dropped(name: str = "answer dropped") -> NetworkFault:
    """The request takes effect, and the connection breaks before the answer."""
    return NetworkFault(name, answering=lambda request, answer: None)


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

    def reasons(request: Json) -> list[Json]:
        places = range(len(request["TransactItems"]))
        return [{"Code": code, "Message": code} if place == culprit else {"Code": "None"} for place in places]

    return _cancelled("transaction cancelled", reasons)


def cancelled_in_short(code: str) -> NetworkFault:
    """The same with one reason for all actions, as for an update of a key: nobody can tell whose it is."""
    return _cancelled("transaction cancelled, one reason", lambda request: [{"Code": code, "Message": code}])


def _cancelled(name: str, reasons_of: Callable[[Json], list[Json]]) -> NetworkFault:
    def answering(request: Json, answer: Answer | None) -> Answer | None:
        reasons = reasons_of(request)
        codes = ", ".join(reason["Code"] for reason in reasons)
        message = f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]"
        type_of = {"__type": DYNAMODB + "TransactionCanceledException"}
        return 400, {**type_of, "CancellationReasons": reasons, "Message": message}

    return NetworkFault(name, arriving=_nothing, answering=answering)


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


def _transaction_cancelled(chance: random.Random, request: Json) -> NetworkFault:
    return cancelled(chance.randrange(len(request["TransactItems"])), chance.choice(REASONS))


def transaction_invalid(chance: random.Random, request: Json) -> NetworkFault:
    """A transaction of several messages is refused, and nobody is named. One that is alone would be to blame, and it is
    throttled instead.
    """
    if len(writes_of("TransactWriteItems", request, RECORDS)) < 2:
        return _throttled(chance, request)
    return refused(400, "ValidationException", "transaction invalid")


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
        _transaction_cancelled,
        lambda chance, request: cancelled_in_short("ValidationError"),
        transaction_invalid,
        _throttled,
        lambda chance, request: answer_dropped("transaction's answer dropped"),
        lambda chance, request: NetworkFault("transaction delayed", chance.uniform(*PAST_THE_NEXT_DELIVERY_SECONDS)),
    ),
    "PutItem": (_throttled,),
    "UpdateItem": (_throttled,),
    "StartExecution": (
        lambda chance, request: answer_dropped("start's answer dropped"),
        lambda chance, request: NetworkFault("start delayed", chance.uniform(*PAST_THE_NEXT_DELIVERY_SECONDS)),
    ),
}
"""What only requests of that operation may meet; each once in OF_AN_OPERATION_IN of them, or in TRANSACTIONS_IN."""
OF_AN_OPERATION_IN = 20
TRANSACTIONS_IN = 40


class NetworkFaults:
    """Chooses faults for requests, by a seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(f"{seed} faults")
        self._general = ShuffleBag(self._chance, EVERY_REQUEST, EVERY_REQUEST_IN)
        sizes = {"TransactWriteItems": TRANSACTIONS_IN}
        self._own = {
            name: ShuffleBag(self._chance, each, sizes.get(name, OF_AN_OPERATION_IN))
            for name, each in OF_AN_OPERATION.items()
        }

    def choose(self, operation: str, request: Json) -> NetworkFault | None:
        own = self._own.get(operation)
        make = self._general.draw() or (None if own is None else own.draw())
        return None if make is None else make(self._chance, request)
