"""What may happen to a request on its way, and to its answer. Pure, but for the chance that is passed in.

A fault says what arrives in a request's place (None: nothing), and what the client is told in the answer's place (None:
the connection breaks). AWS documents what its codes mean with each operation; these are the ones that a client must
handle.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tests.chaos.settings import RECORDS, VISIBILITY_SECONDS
from tests.chaos.wire import writes_of

Json = dict[str, Any]
Answer = tuple[int, Json]

LONGEST_DELAY_SECONDS = 8.0
"""How long a request may be on its way; its sender gave up long before, and may be dead."""

PAST_THE_NEXT_DELIVERY_SECONDS = (VISIBILITY_SECONDS, LONGEST_DELAY_SECONDS)

DYNAMODB = "com.amazonaws.dynamodb.v20120810#"


def _nothing(request: Json) -> Json | None:
    return None


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


def answer_dropped(name: str = "answer dropped") -> NetworkFault:
    """The request takes effect, and the connection breaks before the answer."""
    return NetworkFault(name, answering=lambda request, answer: None)


def failed_after(status: int) -> NetworkFault:
    """The request takes effect, and the answer says that the service has failed."""
    return NetworkFault("5xx, applied", answering=lambda request, answer: (status, _error("InternalServerError")))


def refused(status: int, code: str, name: str = "5xx, not applied") -> NetworkFault:
    """The request has no effect, and the answer says so, or says nothing that could be relied on."""
    return NetworkFault(name, arriving=_nothing, answering=lambda request, answer: (status, _error(code)))


def statements_failed(places: frozenset[int], code: str, *, applied: bool) -> NetworkFault:
    """Some statements of a batch fail by their answers, which the others' do not mention: executed or not."""

    def arriving(request: Json) -> Json | None:
        kept = [statement for place, statement in enumerate(request["Statements"]) if applied or place not in places]
        return {**request, "Statements": kept} if kept else None

    def answering(request: Json, answer: Json) -> Json:
        told, failed = iter(answer.get("Responses", ())), {"Error": {"Code": code, "Message": ""}}
        number = range(len(request["Statements"]))
        real = [next(told) if applied or place not in places else failed for place in number]
        return {"Responses": [failed if place in places else real[place] for place in number]}

    name = "statement in doubt, applied" if applied else "statement refused, not applied"
    return NetworkFault(name, arriving=arriving, answering=_where_well(answering))


def keys_unprocessed(places: frozenset[int]) -> NetworkFault:
    """Some keys of a batch are not read, and the answer returns them."""

    def split(request: Json, *, unprocessed: bool) -> Json:
        table, asked = _keys(request)
        keys = [key for place, key in enumerate(asked["Keys"]) if (place in places) == unprocessed]
        return {table: {**asked, "Keys": keys}} if keys else {}

    def arriving(request: Json) -> Json | None:
        kept = split(request, unprocessed=False)
        return {**request, "RequestItems": kept} if kept else None

    def answering(request: Json, answer: Json) -> Json:
        return {"Responses": {}, **answer, "UnprocessedKeys": split(request, unprocessed=True)}

    return NetworkFault("keys unprocessed", arriving=arriving, answering=_where_well(answering))


def entries_failed(places: frozenset[int]) -> NetworkFault:
    """SQS takes only some entries of a batch."""

    def arriving(request: Json) -> Json | None:
        kept = [entry for place, entry in enumerate(request["Entries"]) if place not in places]
        return {**request, "Entries": kept} if kept else None

    def answering(request: Json, answer: Json) -> Json:
        why = {"SenderFault": False, "Code": "InternalError", "Message": "chaos"}
        failed = [{"Id": request["Entries"][place]["Id"], **why} for place in sorted(places)]
        return {"Successful": answer.get("Successful", []), "Failed": [*answer.get("Failed", []), *failed]}

    return NetworkFault("entries not sent", arriving=arriving, answering=_where_well(answering))


def _where_well(change: Callable[[Json, Json], Json]) -> Callable[[Json, Answer | None], Answer | None]:
    """Change an answer, empty where nothing arrived, unless it says that the whole request failed."""

    def answering(request: Json, answer: Answer | None) -> Answer | None:
        status, found = answer or (200, {})
        return (status, change(request, found) if status == 200 else found)

    return answering


def cancelled(culprit: int | None, code: str) -> NetworkFault:
    """A transaction is cancelled because of one of its actions, and none of it takes effect. Without a culprit there is
    one reason for all, as for an update of a key: nobody can tell whose it is.
    """
    reason = {"Code": code, "Message": code}

    def answering(request: Json, answer: Answer | None) -> Answer | None:
        places = range(len(request["TransactItems"]))
        each = [reason if place == culprit else {"Code": "None"} for place in places]
        reasons = [reason] if culprit is None else each
        codes = ", ".join(one["Code"] for one in reasons)
        message = f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]"
        type_of = {"__type": DYNAMODB + "TransactionCanceledException"}
        return 400, {**type_of, "CancellationReasons": reasons, "Message": message}

    name = "transaction cancelled" + (", one reason" if culprit is None else "")
    return NetworkFault(name, arriving=_nothing, answering=answering)


def _error(code: str) -> Json:
    return {"__type": DYNAMODB + code, "message": "chaos"}


def transaction_invalid(request: Json) -> NetworkFault:
    """A transaction of several messages is refused, and nobody is named. One that is alone would be to blame, and it is
    throttled instead.
    """
    if len(writes_of("TransactWriteItems", request, RECORDS)) < 2:
        return THROTTLED
    return refused(400, "ValidationException", "transaction invalid")


def _some(chance: random.Random, asked: Sequence[object]) -> frozenset[int]:
    return frozenset(chance.sample(range(len(asked)), chance.randint(1, max(1, len(asked) // 3))))


def _keys(request: Json) -> tuple[str, Json]:
    """The one table that is read, and what of it."""
    ((table, asked),) = request["RequestItems"].items()
    return table, asked


def _statements_failed(chance: random.Random, request: Json, code: str, *, applied: bool) -> NetworkFault:
    return statements_failed(_some(chance, request["Statements"]), code, applied=applied)


CODES = ("ThrottlingError", "ProvisionedThroughputExceeded", "RequestLimitExceeded", "TransactionConflict")
REASONS = ("TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded")
THROTTLED = refused(400, "ThrottlingException", "throttled")

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


def _of_a_start(what: str) -> tuple[Make, ...]:
    """What a request may meet whose effect is another's to find."""
    return (
        lambda chance, request: answer_dropped(f"{what}'s answer dropped"),
        lambda chance, request: NetworkFault(f"{what} delayed", chance.uniform(*PAST_THE_NEXT_DELIVERY_SECONDS)),
    )


OF_AN_OPERATION: dict[str, tuple[Make, ...]] = {
    "BatchExecuteStatement": (
        *[lambda chance, request: _statements_failed(chance, request, chance.choice(CODES), applied=False)] * 2,
        lambda chance, request: _statements_failed(chance, request, "InternalServerError", applied=True),
    ),
    "BatchGetItem": (lambda chance, request: keys_unprocessed(_some(chance, _keys(request)[1]["Keys"])),),
    "TransactWriteItems": (
        lambda chance, request: cancelled(chance.randrange(len(request["TransactItems"])), chance.choice(REASONS)),
        lambda chance, request: cancelled(None, "ValidationError"),
        lambda chance, request: transaction_invalid(request),
        lambda chance, request: THROTTLED,
        *_of_a_start("transaction"),
    ),
    "SendMessageBatch": (
        *[lambda chance, request: entries_failed(_some(chance, request["Entries"]))] * 2,
        lambda chance, request: refused(503, "ServiceUnavailable", "send refused"),
        *_of_a_start("send"),
    ),
    "PutItem": (lambda chance, request: THROTTLED,),
    "UpdateItem": (lambda chance, request: THROTTLED,),
    "StartExecution": _of_a_start("start"),
}
"""What only requests of that operation may meet; each once in OF_AN_OPERATION_IN of them, or in TRANSACTIONS_IN."""
OF_AN_OPERATION_IN = 20
TRANSACTIONS_IN = 40


Token = TypeVar("Token")


class ShuffleBag(Generic[Token]):
    """Fair chance: each of `tokens` is drawn once in every `size` draws, and None otherwise."""

    def __init__(self, chance: random.Random, tokens: Sequence[Token], size: int) -> None:
        assert 0 < len(tokens) <= size
        self._chance = chance
        self._all: list[Token | None] = [*tokens, *[None] * (size - len(tokens))]
        self._left: list[Token | None] = []

    def draw(self) -> Token | None:
        if not self._left:
            self._left = self._chance.sample(self._all, len(self._all))
        return self._left.pop()

    def put_back(self, token: Token) -> None:
        """Return it again next: it could not be used."""
        self._left.append(token)


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
