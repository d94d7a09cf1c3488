"""Which functions a consumer may declare in `calls=`, and what a call's arguments may be."""

from __future__ import annotations

from collections.abc import Callable  # pydantic reads an annotation
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel, Field

from idempotent_receiver import MemoryStore, Message, Transaction, sqs_consumer
from idempotent_receiver.handler.callees import Callees
from idempotent_receiver.testing import Calls
from idempotent_receiver.testing.worker import SILENT
from idempotent_receiver.transaction.outbox import OutboxCall, calls_in, from_text, to_text


class Order(BaseModel):
    """With an alias, as bodies have them."""

    number: int = Field(alias="orderNumber")
    price: Decimal = Decimal()


@dataclass
class Pair:
    """Pydantic knows it, too."""

    one: int
    other: tuple[str, ...] = ()


class Unequal:
    """Pydantic does not know it."""


def plain(order: int, text: str = "") -> None: ...


def keyed(order: int, idempotency_key: str) -> None: ...


def everything(  # noqa: PLR0917
    model: Order, pair: Pair, when: datetime, price: Decimal, data: bytes, any: Any, items: dict[str, list[int]]
) -> None: ...


class Service:
    """Its method is declared once it is bound."""

    def notify(self, order: int) -> None: ...


SERVICE = Service()


def test_what_pydantic_reads_back_equal_is_what_the_function_is_called_with() -> None:
    arguments = {
        "model": Order(orderNumber=5, price=Decimal("1.50")),
        "pair": Pair(1, ("a", "é")),
        "when": datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=2))),
        "price": Decimal("0.10"),
        "data": b"\x00a"[1:],
        "any": {"a": [None, 1.5, True, 2**70, "\U0001f600"]},
        "items": {"a": [1]},
    }
    called: list[dict[str, Any]] = []

    def kept(  # noqa: PLR0917
        model: Order, pair: Pair, when: datetime, price: Decimal, data: bytes, any: Any, items: dict[str, list[int]]
    ) -> None:
        called.append(dict(locals()))

    kept.__name__ = "everything"
    record = to_text([Callees([everything]).to_call(everything, arguments)])
    Callees([kept]).make(calls_in(from_text(record))[1], "key")
    (found,) = called
    assert {name: found[name] for name in arguments} == arguments


def test_later_changes_to_an_argument_change_nothing() -> None:
    items = {"a": [1]}

    def function(items: dict[str, list[int]]) -> None: ...

    call = Callees([function]).to_call(function, {"items": items})
    items["a"].append(2)
    assert call.arguments == {"items": {"a": [1]}}


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ({"order": "5"}, "argument order is of type str and would be read as int"),
        ({"order": 5.0}, "argument order is of type float and would be read as int"),
        ({"order": True}, "argument order"),
        ({"order": None}, "argument order is None, and raises ValidationError on its way to JSON and back"),
        ({"order": object()}, "argument order is an object, and raises PydanticSerializationError"),
        ({"order": 5, "text": "\ud800"}, "argument text is a str, and raises"),
        ({"order": 5, "txt": ""}, "plain: got an unexpected keyword argument 'txt'"),
        ({"text": ""}, "plain: missing a required argument: 'order'"),
        ({"order": 5, "idempotency_key": "k"}, "got an unexpected keyword argument 'idempotency_key'"),
    ],
)
def test_an_argument_that_would_not_come_back_equal_is_refused_at_the_call(argument: dict[str, Any], told: str) -> None:
    with pytest.raises(TypeError, match=r"^Transaction\.call: plain") as raised:
        Callees([plain]).to_call(plain, argument)
    assert told in str(raised.value)


@pytest.mark.parametrize(
    ("hint", "argument"),
    [
        (Any, Decimal(1)),
        (Any, (1, 2)),
        (float, float("nan")),
        (float, float("inf")),
        (list[int], (1, 2)),
        (dict[str, Any], {"a": datetime(2026, 1, 2)}),  # noqa: DTZ001
        (Order, "confidential"),
    ],
)
def test_no_error_has_an_arguments_value(hint: Any, argument: object) -> None:
    def function(given: Any) -> None: ...

    function.__annotations__["given"] = hint
    with pytest.raises(TypeError, match="pass what pydantic serialises to JSON and reads back equal") as raised:
        Callees([function]).to_call(function, {"given": argument})
    assert "confidential" not in str(raised.value)


def test_the_key_is_the_calls_own() -> None:
    callees = Callees([keyed])
    with pytest.raises(TypeError, match="gets its idempotency_key by itself: leave it out"):
        callees.to_call(keyed, {"order": 1, "idempotency_key": "mine"})
    assert callees.to_call(keyed, {"order": 1}) == OutboxCall("keyed", {"order": 1})


def test_a_mapping_gives_names_and_the_first_of_a_function_is_written() -> None:
    callees = Callees({"notify": plain, "inform": plain})
    assert callees.to_call(plain, {"order": 1}).name == "notify"
    assert "inform" in callees
    assert Callees([SERVICE.notify]).to_call(SERVICE.notify, {"order": 1}).name == "notify"


def test_an_undeclared_function_is_refused_with_the_remedy() -> None:
    with pytest.raises(TypeError, match=r"keyed is not declared: sqs_consumer\(store, calls=\[keyed\]\)"):
        Callees([plain]).to_call(keyed, {"order": 1})


def test_a_fake_of_a_declared_function_is_refused_with_its_own_remedy() -> None:
    fake: Any = Calls().fake(plain)
    with pytest.raises(TypeError, match=r"plain is not the function that calls declares: .* replace what it calls"):
        Callees([plain]).to_call(fake, {"order": 1})


def unannotated(order) -> None: ...  # type: ignore[no-untyped-def]


def starred(*orders: int) -> None: ...


def double_starred(**orders: int) -> None: ...


def positional(order: int, /) -> None: ...


def transactional(order: int, tx: Transaction) -> None: ...


def optional(tx: Transaction | None) -> None: ...


def wrongly_keyed(idempotency_key: int) -> None: ...


def unknown_to_pydantic(order: Unequal) -> None: ...


def generator(order: int) -> Any:
    yield order


def again() -> Callable[..., None]:
    def plain(order: int) -> None: ...

    return plain


@pytest.mark.parametrize(
    ("calls", "told"),
    [
        ([plain, again()], "two functions of the name 'plain'"),
        ([lambda: None], "not a function with a name"),
        ({"named": lambda: None}, "not a function with a name"),
        ([partial(plain, order=1)], "not a function with a name"),
        ({"named": partial(plain, order=1)}, "not a function with a name"),
        ([print], "not a function with a name"),
        ([Service], "not a function with a name"),
        ([5], "not a function with a name"),
        ("plain", "must be a list of functions, or a mapping"),
        (plain, "must be a list of functions, or a mapping"),
        (None, "must be a list of functions, or a mapping"),
        ({5: plain}, "5 is no name"),
        ({"": plain}, "'' is no name"),
        ([unannotated], "'order' has no annotation"),
        ([starred], "not \\*, \\*\\* or positional-only"),
        ([double_starred], "not \\*, \\*\\* or positional-only"),
        ([positional], "not \\*, \\*\\* or positional-only"),
        ([transactional], "'tx' is a Transaction, but a call is made after the commit"),
        ([optional], "'tx' is a Transaction, but a call is made after the commit"),
        ([wrongly_keyed], "gets the call's key: annotate it as str"),
        ([unknown_to_pydantic], "'order': pydantic cannot validate it"),
        ([generator], "generator is a generator: its body would never run"),
        ([Service.notify], "notify is a method"),
    ],
)
def test_what_no_later_process_could_call_is_refused_at_set_up(calls: Any, told: str) -> None:
    def handler(body: dict, message: Message, tx: Transaction) -> None: ...

    with pytest.raises((TypeError, ValueError), match=told):
        sqs_consumer(MemoryStore(), calls=calls, logger=SILENT, metrics=SILENT)(handler)
