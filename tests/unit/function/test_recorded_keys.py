"""Keys and fingerprints that earlier versions have recorded: with another one, a call would run again after an upgrade,
or be refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any

import pytest
from pydantic import (
    BaseModel,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    computed_field,
    field_serializer,
    model_serializer,
)

from idempotent_receiver import Payload, payload_key
from tests.contexts import Context as Invocation
from tests.counting_store import CountingStore
from tests.manual_clock import ManualClock
from tests.unit.function.conftest import record


@dataclass(frozen=True)
class Line:
    """A dataclass among the arguments."""

    sku: str
    price: Decimal


class Order(BaseModel):
    """A model with an alias, a serializer of its own, and a field that it leaves out."""

    id: str = Field(serialization_alias="orderId")
    at: datetime
    lines: list[Line]
    note: str = Field("", exclude=True)

    @field_serializer("at")
    def _seconds(self, at: datetime) -> int:
        return int(at.timestamp())


class Entity(BaseModel):
    """What several models have."""

    id: int


class Item(Entity):
    """A model with a field that is computed."""

    quantity: int

    @computed_field(alias="isMany")
    @property
    def many(self) -> bool:
        return self.quantity > 1


class Cart(BaseModel):
    """A model that holds models."""

    items: list[Item]
    first: Annotated[Item, PlainSerializer(lambda item: item.id)]

    @computed_field
    @property
    def last(self) -> Item:
        return self.items[-1]


class Sent(BaseModel):
    """A model with a serializer of its own."""

    cart: Cart
    at: int

    @model_serializer(mode="wrap")
    def _lasting(self, handle: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in handle(self).items() if name != "at"}


class Client:
    """Nothing that has a JSON form."""


def ship(order: Any) -> None: ...
def pay(order: Any, currency: str = "eur") -> None: ...
def sell(order: Any, amount: int) -> None: ...
def send(order: Any, client: Any) -> None: ...
def several(*args: Any, **kwargs: Any) -> None: ...
def ship_order(order: Order) -> None: ...
def ship_cart(order: Cart | None) -> None: ...
def ship_sent(order: Annotated[Sent, "as it was sent"]) -> None: ...
def ship_bytes(order: bytes) -> None: ...
def sell_line(order: Order, amount: Line) -> None: ...


class Shop:
    """A class whose objects tell nothing."""

    def sell(self, order: Any, amount: int = 1) -> None: ...


LINE = Line("a", Decimal("9.90"))
ORDER = Order(id="7", at=datetime(2026, 1, 2, tzinfo=UTC), lines=[LINE])
CART = Cart(items=[Item(id=1, quantity=2), Item(id=2, quantity=1)], first=Item(id=1, quantity=2))
DICT = {"id": "7", "sent_at": 5, "amount": 1.5}
ALL = Payload()

CALLS: dict[str, tuple[Payload, Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "a single argument is the payload": (ALL, ship, (DICT,), {}),
    "a text": (ALL, ship, ("7",), {}),
    "a text beside a default": (ALL, pay, ("7",), {}),
    "an argument that differs from its default": (ALL, pay, ("7", "usd"), {}),
    "several, by position or name": (ALL, sell, ("7",), {"amount": 5}),
    "a model": (ALL, ship_order, (ORDER,), {}),
    "a model and a dataclass": (ALL, sell_line, (ORDER, LINE), {}),
    "a model of models": (ALL, ship_cart, (CART,), {}),
    "a model that says what counts of it": (ALL, ship_sent, (Sent(cart=CART, at=5),), {}),
    "bytes that are text": (ALL, ship_bytes, (b"ab",), {}),
    "a whole number that is no double": (ALL, ship, ({"b": 2**60, "a": 1e16},), {}),
    "a name twice in JSON": (ALL, ship, ({1: "a", "1": "b"},), {}),
    "not a number": (ALL, ship, ({"b": float("nan"), "a": 1},), {}),
    "positional ones": (ALL, several, (1, "b"), {}),
    "positional and named ones": (ALL, several, (1,), {"args": 2}),
    "no argument": (ALL, several, (), {}),
    "a field that is left out": (Payload(without=["sent_at"]), ship, (DICT,), {}),
    "a field that is left out of several": (Payload(without=["order.sent_at"]), sell, (DICT, 5), {}),
    "an argument that is left out": (Payload(without=["amount"]), sell, (DICT, 5), {}),
    "an object that is left out": (Payload(without=["client"]), send, (DICT, Client()), {}),
    "fields of a single argument": (Payload("[id, amount]"), ship, (DICT,), {}),
    "fields of several": (Payload("[order.id, currency]"), pay, (DICT, "usd"), {}),
    "fields of several, one as its default is": (Payload("[order.id, currency]"), pay, (DICT, "eur"), {}),
    "a method's, without its object": (Payload(without=["self"]), Shop.sell, (Shop(), DICT), {}),
    "a method's several, without its object": (Payload(without=["self"]), Shop.sell, (Shop(), DICT, 2), {}),
    "a handler's, without its context": (ALL, lambda event, context: None, (DICT, Invocation(ManualClock())), {}),
}

RECORDED = {
    "a single argument is the payload": "b83a00c499e8e76c9437f03469c07d35df754c0ec2701dffaff9c24f940e27e2",
    "a text": "266aa5886067fbbc1a3a39fe432fc5bbf561abc90e4b8a322215ac17df6ce012",
    "a text beside a default": "266aa5886067fbbc1a3a39fe432fc5bbf561abc90e4b8a322215ac17df6ce012",
    "an argument that differs from its default": "6ff8904125345f4fe0916ec63181488f8e8ddfa006e6fdf80eaa3eb73bb79951",
    "several, by position or name": "53c5e60e7c529d2f562113abe7cd87ceed954085c7ec1c4d952ad94367ee963e",
    "a model": "e0803ca356714ac122fbbc69fb9dfba7f58ee5399c67510d0904e003df2330cb",
    "a model and a dataclass": "2f7c55cf4d5796ef3379919dc0c62d420bbc474c4a68f43fc8e971e39d41b6d9",
    "a model of models": "3333f3b319a2188aa694a9d5c2d7a276034aca67323f6f80b440d0b5be4c09bb",
    "a model that says what counts of it": "cd172900448230efad35e11f738fba527ef92b3f6b6f2e3f97bda88a7fe4a743",
    "bytes that are text": "782beb2948d61c6b50ae083a2c63328c5c4d6f41c746c2fc6061d3dac370bc92",
    "a whole number that is no double": "0f8357aa539cdbc8913ee0c0ae901b17e203d434eeaf891c4e152a792b322eac",
    "a name twice in JSON": "ce849d65f7fb75a03b5d833430a80b51060766668680ac80e31763fd82ed677a",
    "not a number": "e31c645b331aaa1b4de31f7ca7d8e6d7854deb1f3545780d20ef70a75b11c654",
    "positional ones": "263ba88d78b86861f39a3db2b1f4ab89bddabce340cf733a4a1f7aef0b0e6f4f",
    "positional and named ones": "ee8a89c0b947d9172cf2b96a28befa1c4db8e1a8264f40678d39ca32774be3ce",
    "no argument": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
    "a field that is left out": "dee85fbe4539d0474e28b800f5e261dc538bf0b035a4dbb9911107e33ea64858",
    "a field that is left out of several": "f99bea8363e20d144ad8112a884df00c980731e53cd1011e8a594694028be398",
    "an argument that is left out": "e3724fa3281ba22d0860628e8be1683598d82b4a29c50630f5632832913d9b52",
    "an object that is left out": "b83a00c499e8e76c9437f03469c07d35df754c0ec2701dffaff9c24f940e27e2",
    "fields of a single argument": "bef920541d96b3141c52969cffd351ed9e1c1d3bbcb03e1d22998cf3d4d25173",
    "fields of several": "6af71b6eb62cd841820253b8dee2b73ca64f80ea52f5b096c84e50409d785cbe",
    "fields of several, one as its default is": "fdf1031008ce045503c807310b72e62e5be75f5a44975db2f43ef985fe23d0a5",
    "a method's, without its object": "b83a00c499e8e76c9437f03469c07d35df754c0ec2701dffaff9c24f940e27e2",
    "a method's several, without its object": "8544aad76dcd91c73ab4e6ad9ef03176eb0fdea4ca91e03d3ecb980e39bc69cc",
    "a handler's, without its context": "b83a00c499e8e76c9437f03469c07d35df754c0ec2701dffaff9c24f940e27e2",
}


@pytest.mark.parametrize("said", CALLS)
def test_a_call_keeps_the_key_that_was_recorded(store: CountingStore, once: Any, said: str) -> None:
    payload, function, args, kwargs = CALLS[said]
    key = payload_key(payload.fields, without=payload.without)
    once(key=key, payload=None)(function)(*args, **kwargs)
    assert list(store.items) == [f"tests#{RECORDED[said]}"]


@pytest.mark.parametrize("said", CALLS)
def test_a_call_keeps_the_fingerprint_that_was_recorded(store: CountingStore, once: Any, said: str) -> None:
    payload, function, args, kwargs = CALLS[said]
    once(key=lambda *_, **__: "1", payload=payload)(function)(*args, **kwargs)
    assert record(store)["validation"] == RECORDED[said]
