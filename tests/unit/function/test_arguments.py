"""Which calls of a function are one, and which cannot be told apart: those are refused and never run."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel, SecretStr, field_serializer, model_serializer

from idempotent_receiver import FingerprintMismatch, MemoryStore, Payload, UnusableKey, idempotent, payload_key
from idempotent_receiver.json_form import document_of
from tests.contexts import Context as Invocation
from tests.manual_clock import ManualClock


class Client:
    """It has no JSON form, and no two can be told apart."""

    def __init__(self, id: int = 0) -> None:
        self.id = id


@dataclass
class Order:
    """An order that carries what is not data."""

    id: str
    client: Any = None


class OrderModel(BaseModel):
    """The same as a model."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    id: str
    client: Any = None


class Typed(BaseModel):
    """A model whose field is nothing but a client."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    client: Client


class Login(BaseModel):
    """A model with a secret."""

    password: SecretStr


class Payment(BaseModel):
    """What a field is declared to be."""

    amount: int


class CardPayment(Payment):
    """What it is; pydantic gives what the declared type has of it."""

    number: str


class Bill(BaseModel):
    """A model whose parts may be more than is declared."""

    payment: Payment
    others: list[Payment] = []
    last: Payment | None = None

    @field_serializer("last")
    def _number(self, last: Any) -> Any:
        return last and last.number


class Event(BaseModel):
    """What all events have: nothing."""


class Placed(Event):
    """What one has."""

    id: int


@dataclass
class Kind:
    """The same as a dataclass."""


@dataclass
class Special(Kind):
    """What one has."""

    id: int


class Envelope(BaseModel):
    """A model whose parts are declared to be nothing in particular."""

    event: Event | None = None
    kind: Kind | None = None
    body: BaseModel | None = None


class Limit(BaseModel):
    """A model with a number that JSON may not have."""

    most: float | None


class Tagged(BaseModel):
    """A model with sets, one of them under another name, and a serializer of its own."""

    id: int
    tags: set[str]
    groups: frozenset[frozenset[str]] = Field(frozenset(), serialization_alias="inGroups")
    note: str = Field("", exclude=True)

    @field_serializer("id")
    def _text(self, id: int) -> str:
        return f"#{id}"


class Tags(RootModel[set[str]]):
    """A model that is a set."""


@dataclass(frozen=True)
class Marked:
    """A dataclass with a set."""

    tags: frozenset[str]


def counted(function: Callable[..., Any], **options: Any) -> tuple[Any, list[tuple[Any, ...]]]:
    """A function in the decorator, with this signature and a store of its own, and the calls of it that have run."""
    runs: list[tuple[Any, ...]] = []

    def work(*args: Any, **kwargs: Any) -> int:
        runs.append((*args, *kwargs.values()))
        return len(runs)

    work.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]  # where inspect looks for it
    options = {"key": payload_key(), "store": MemoryStore("tests"), **options}
    return idempotent(lease_seconds=60, clock=ManualClock(), **options)(work), runs


def answer(work: Any, *args: Any) -> Any:
    """What a call returns, or the type of what it raises."""
    try:
        return work(*args)
    except Exception as error:  # noqa: BLE001  # whatever it is
        return type(error)


def ship(order: Any) -> None: ...
def pay(order: Any, currency: str = "eur") -> None: ...
def send(order: Any, session: Any) -> None: ...
def visit(self: Any, order: Any = None) -> None: ...
def optional(a: Any = None, b: Any = None) -> None: ...
def anything(*args: Any, **kwargs: Any) -> None: ...


def by_nothing(*_: object, **__: object) -> str:
    return "1"


def cycle() -> list[Any]:
    inner: list[Any] = []
    inner.append(inner)
    return inner


ODD: dict[str, Callable[[], Any]] = {
    "a plain object": Client,
    "bytes that are no text": lambda: b"\xff\x00",
    "a generator": lambda: (each for each in "ab"),
    "an iterator": lambda: iter([1, 2]),
    "a secret, which pydantic hides": lambda: SecretStr("x"),
    "a function": lambda: print,
    "a lone surrogate": lambda: "\ud800",
    "a list that holds itself": cycle,
}
HOLDERS: dict[str, Callable[[Any], Any]] = {
    "a dict": lambda odd: {"id": "1", "client": odd},
    "a dataclass": lambda odd: Order("1", odd),
    "a model": lambda odd: OrderModel(id="1", client=odd),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=list(ODD))
def test_an_argument_that_cannot_be_told_apart_is_refused_by_its_name_with_the_remedy(odd: Any) -> None:
    """Left out, it would make two calls one."""
    work, runs = counted(send)
    with pytest.raises(UnusableKey, match=r"argument 'session' .* payload_key\(without=\[\"session\"\]\)"):
        work("7", odd())
    work, runs = counted(send, key=by_nothing)
    with pytest.raises(UnusableKey, match=r"argument 'session' .* payload=Payload\(without=\[\"session\"\]\)"):
        work("7", odd())
    assert runs == []


def test_a_single_argument_that_cannot_be_told_apart_is_refused() -> None:
    work, runs = counted(ship)
    for order in (Client(1), Client(2)):
        with pytest.raises(UnusableKey, match=r"'order' \(a Client\)"):
            work(order)
    assert runs == []


@pytest.mark.parametrize("holder", HOLDERS.values(), ids=list(HOLDERS))
@pytest.mark.parametrize("odd", ODD.values(), ids=list(ODD))
def test_one_odd_value_within_an_argument_is_refused_unless_its_path_is_left_out(odd: Any, holder: Any) -> None:
    """Alone or beside others; what stands beside it still counts."""
    work, runs = counted(ship)
    with pytest.raises(UnusableKey, match=r"'order\.client'.*without=\[\"order\.client\"\]"):
        work(holder(odd()))
    for function, args, left_out in ((ship, (), "order.client"), (send, (5,), "order.client"), (send, (5,), "order")):
        for options in (
            {"key": payload_key(without=[left_out])},
            {"key": by_nothing, "payload": Payload(without=[left_out])},
        ):
            work, runs = counted(function, **options)
            assert work(holder(odd()), *args) == work(holder(odd()), *args) == 1
            assert len(runs) == 1


def test_what_stands_beside_a_value_that_is_left_out_counts() -> None:
    holders: tuple[Callable[..., Any], ...] = (
        Order,
        lambda number, client: OrderModel(id=number, client=client),
        lambda number, client: {"id": number, "client": client},
    )
    for holder in holders:
        for without in (["order.client"], ["client"]):
            work, _ = counted(ship, key=payload_key(without=without))
            assert [work(holder("1", Client())), work(holder("2", Client())), work(holder("1", Client()))] == [1, 2, 1]


def test_a_typed_field_and_one_in_a_list_or_a_set_are_found() -> None:
    for order, path in (
        (Typed(client=Client()), "order.client"),
        ({"lines": [{"sku": "a"}, {"by": Client()}]}, "order.lines"),
        ({"by": {Client()}}, "order.by"),
        (Login(password=SecretStr("x")), "order.password"),
        ({"a.b": Client()}, "order"),
    ):
        work, runs = counted(ship)
        with pytest.raises(UnusableKey, match=f'without=\\["{path}"\\]'):
            work(order)
        assert runs == []


def test_all_of_a_part_counts_whatever_its_field_is_declared_to_be() -> None:
    work, _ = counted(ship)
    one, other = (CardPayment(amount=1, number=number) for number in "ab")
    assert [work(Bill(payment=each)) for each in (one, other, Payment(amount=1), one)] == [1, 2, 3, 1]
    assert [work(Bill(payment=one, others=[each])) for each in (one, other, one)] == [4, 5, 4]
    same_number = CardPayment(amount=2, number="a")
    assert work(Bill(payment=one, last=one)) == work(Bill(payment=one, last=same_number)), (
        "a serializer of the field's own says what counts of it"
    )


@pytest.mark.parametrize("make", [
    lambda number: Envelope(event=Placed(id=number)),
    lambda number: Envelope(kind=Special(number)),
    lambda number: Envelope(body=Placed(id=number)),
], ids=["a model", "a dataclass", "any model"])  # fmt: skip
def test_all_of_a_part_counts_where_nothing_is_declared_of_it(make: Any) -> None:
    """Two events in one envelope were one call, and the second was lost."""
    work, _ = counted(ship)
    assert [work(make(1)), work(make(2)), work([make(1)]), work([make(2)]), work(make(1))] == [1, 2, 3, 4, 1]


def test_an_infinite_number_in_a_model_is_not_none() -> None:
    """It is null in pydantic's JSON of a model."""
    work, _ = counted(ship)
    numbers = (None, float("inf"), float("-inf"), float("nan"), 1.5)
    assert [work(Limit(most=each)) for each in numbers] == [1, 2, 3, 4, 5]
    assert [work(Limit(most=each)) for each in numbers] == [1, 2, 3, 4, 5], "each is found again"


def test_objects_that_hold_each_other_are_refused_at_once() -> None:
    """Followed along every path, twenty of them would take for ever."""
    crowd = [Order(str(number), []) for number in range(20)]
    for each in crowd:
        each.client.extend(crowd)
    with pytest.raises(UnusableKey, match=r"'order' \(a Order\)"):
        counted(ship)[0](crowd[0])
    work, _ = counted(ship, key=payload_key(without=["order.all"]), payload=None)
    assert work({"id": 1, "all": crowd}) == work({"id": 1, "all": crowd[1:]}) == 1


def test_an_iterator_is_left_for_the_function() -> None:
    """It was used up to make the key, and the function found nothing in it."""
    work, runs = counted(send, key=payload_key(without=["session"]))
    work("7", letters := (each for each in "ab"))
    assert (runs, list(letters)) == ([("7", letters)], ["a", "b"])


def test_what_a_key_of_the_payload_leaves_out_need_not_be_named_twice() -> None:
    """The default `payload` compares all but what it cannot; what has a JSON form it compares as before."""
    work, _ = counted(send, key=payload_key(without=["session"]))
    assert [answer(work, "7", each) for each in (Client(), Client(), Order("1", Client()))] == [1, 1, 1]
    work, _ = counted(send, key=payload_key(without=["session"]))
    assert [answer(work, "7", {"at": 1}), answer(work, "7", {"at": 2})] == [1, FingerprintMismatch]


def test_without_a_payload_nothing_is_compared_and_nothing_refused() -> None:
    class Untouched(dict[str, Any]):
        def values(self) -> Any:
            pytest.fail("nobody looks into it")

    work, _ = counted(send, key=lambda order, session: order, payload=None)
    assert work("7", Untouched()) == work("7", Client()) == 1


def test_the_context_of_an_invocation_stays_out_by_itself(clock: ManualClock) -> None:
    work, _ = counted(lambda event, context: None)
    assert work({"id": 1}, Invocation(clock)) == work({"id": 1}, Invocation(clock)) == 1


def test_a_context_among_several_arguments_is_found(clock: ManualClock) -> None:
    """As a decorator without `functools.wraps` leaves a handler's."""
    runs = []

    def handler(*args: Any) -> int:
        runs.append(args)
        return len(runs)

    work = idempotent(MemoryStore("tests"), key=payload_key(), clock=clock)(handler)
    assert [answer(work, {"id": number}, Invocation(clock)) for number in (1, 1, 2)] == [1, 1, 2]
    assert [len(args) for args in runs] == [2, 2], "the function gets it"


@pytest.mark.parametrize("mock", [MagicMock, AsyncMock])
def test_a_mock_is_no_context_only_because_it_has_every_name(mock: Any) -> None:
    """A client's, in a test: it was asked for the time that is left, and broke the call."""
    work, _ = counted(send, key=payload_key(without=["session"]))
    assert answer(work, "7", mock()) == answer(work, "7", mock()) == 1
    assert answer(counted(send)[0], "7", mock()) is UnusableKey
    context = MagicMock()
    context.get_remaining_time_in_millis.return_value = 30_000
    assert answer(counted(send)[0], "7", context) == 1


def test_an_argument_of_the_name_goes_before_a_field_of_the_single_argument() -> None:
    """`sent_at` is no argument's name, so it is a field's; `currency` is, so the field of that name counts."""
    work, _ = counted(pay, key=payload_key(without=["sent_at", "currency"]), payload=None)
    assert work({"id": 1, "sent_at": 1}) == work({"id": 1, "sent_at": 2}) == work({"id": 1}, "usd") == 1
    assert work({"id": 1, "currency": "usd"}) == 2


def test_an_optional_argument_that_is_left_out_makes_no_difference_when_given() -> None:
    work, _ = counted(lambda order, session=None: None, key=payload_key(without=["session"]))
    assert work("7") == work("7", None) == work("7", Client()) == work("7", session=Client()) == 1


def test_a_function_none_of_whose_arguments_would_count_is_refused_at_set_up() -> None:
    """`order` was the name of a field in it, and is the argument's now: all calls would be one."""
    for options in ({"key": payload_key(without=["order"])}, {"payload": Payload(without=["order"])}):
        with pytest.raises(ValueError, match=r"`without` lists every argument of .*work"):
            counted(ship, **options)


def test_what_fields_select_counts_and_nothing_else_is_refused() -> None:
    work, runs = counted(send, key=payload_key("order.id"), payload=None)
    assert work({"id": 1}, Client()) == work({"id": 1}, Client()) == 1
    for fields in ("session", "[order.id, session]", "[order.id, session.client]", "order", "to_string(session)"):
        work, runs = counted(send, key=payload_key(fields), payload=None)
        with pytest.raises(UnusableKey, match=r"payload_key\(without=|has no 'to_string"):
            work({"id": 1, "client": Client()}, {"client": Client()})
        assert runs == []


def test_fields_find_an_argument_by_its_name_given_or_not() -> None:
    """The short form made no key: the only argument given is the payload, and has no field of these names."""
    work, _ = counted(pay, key=payload_key("[order, currency]"))
    assert [work("7"), work("7", "eur"), work("7", "usd"), work("8")] == [1, 1, 2, 3]
    with pytest.raises(UnusableKey, match="the payload has no 'nothing'"):
        counted(pay, key=payload_key("nothing"))[0]("7")


def test_an_argument_equal_to_its_default_counts_as_not_given() -> None:
    work, _ = counted(pay)
    assert [work("7"), work("7", "eur"), work("7", currency="eur"), work("7", "usd")] == [1, 1, 1, 2]
    work, _ = counted(pay, key=lambda order, currency="eur": order)
    assert work("7") == work("7", "eur") == 1
    with pytest.raises(FingerprintMismatch):
        work("7", "usd")


def test_a_default_is_compared_by_what_counts_and_not_by_what_it_says_of_itself() -> None:
    class Loud:
        def __eq__(self, other: object) -> bool:
            raise ValueError("ambiguous, as an array's is")

        __hash__ = object.__hash__

    def work(order: str, flag: Any = True, tags: Any = [], client: Any = Loud(), at: Any = Order("1")) -> None:  # noqa: B006, B008
        ...

    default = work.__defaults__[2]
    call, _ = counted(work)
    assert (
        call("7") == call("7", True) == call("7", tags=[]) == call("7", client=default) == call("7", at=Order("1")) == 1
    )
    assert [call("7", 1), call("7", "true"), call("7", tags=["a"])] == [2, 3, 4]
    assert [call("7", tags=()), call("7", at={"id": "1", "client": None})] == [5, 6], "of another class"
    with pytest.raises(UnusableKey, match="'client'"):
        call("7", client=Loud())


def test_a_default_that_the_function_changes_counts_as_it_was(once: Any) -> None:
    def collect(into: list[str] = []) -> int:  # noqa: B006
        into.append("a")
        return len(into)

    work = once(key=payload_key())(collect)
    assert [work(), work([]), work(["a"])] == [1, 1, 2]


def test_what_counts_of_an_argument_is_compared_with_what_counts_of_its_default() -> None:
    work, _ = counted(
        lambda order, opts={"trace": 0}: None,
        key=payload_key(without=["opts.trace"]),
        payload=None,
    )
    assert work("7") == work("7", {"trace": 1}) == 1
    assert work("7", {"trace": 1, "fast": True}) == 2


def test_an_optional_argument_that_is_added_changes_no_key() -> None:
    for before, after, given in (
        (ship, pay, "7"),
        (ship, pay, {"id": 1}),
        (ship, pay, {"order": 1}),
        (ship, lambda order, *more, currency="eur", **rest: None, [1]),
        (lambda order="5": None, lambda order="5", currency="eur": None, "7"),
    ):
        store = MemoryStore("tests")
        assert [counted(each, store=store)[0](given) for each in (before, after)] == [1, 1]
        assert len(store.items) == 1
    store = MemoryStore("tests")
    counted(send, store=store)[0]("7", 5)
    counted(lambda order, session, currency="eur": None, store=store)[0]("7", 5, "eur")
    assert len(store.items) == 1


@pytest.mark.parametrize(
    ("function", "calls"),
    [
        (optional, [((1,), {}), ((), {"b": 1}), (({"b": 1},), {}), (({"a": {"b": 1}},), {}), ((), {}), (({},), {})]),
        (optional, [((1, 2), {}), (({"a": 1, "b": 2},), {}), (({"a": {"a": 1, "b": 2}},), {}), (({"a": 1},), {})]),
        (pay, [(("7", "usd"), {}), (({"order": "7", "currency": "usd"},), {}), (({"currency": "usd"},), {})]),
        (
            anything,
            [
                *[((1,), {}), ((1, 2), {}), (([1, 2],), {}), ((1,), {"x": 2}), (({"x": 1},), {}), ((), {})],
                *[
                    ((), each)
                    for each in ({"x": 1}, {"args": [1], "kwargs": {"x": 2}}, {"kwargs": {"x": 1}}, {"args": [1]})
                ],
            ],
        ),
        (lambda a, /, **rest: None, [((1,), {}), ((1,), {"a": 2}), ((1,), {"rest": 2}), (({"a": 1},), {})]),
        (lambda *, a=1, b: None, [((), {"b": 1}), ((), {"b": 1, "a": 2}), ((), {"b": {"a": 2, "b": 1}})]),
    ],
)
def test_no_two_calls_with_other_arguments_are_one(function: Any, calls: Any) -> None:
    work, _ = counted(function)
    assert [work(*args, **kwargs) for args, kwargs in calls] == list(range(1, len(calls) + 1))
    assert [work(*args, **kwargs) for args, kwargs in calls] == list(range(1, len(calls) + 1)), "each is found again"


ONE_CALL = """
from tests.unit.function.test_arguments import *
from idempotent_receiver import MemoryStore, idempotent

store, words = MemoryStore("tests"), {"pear", "apple", "fig", "plum"}
for order in (
    words, frozenset(words), {"tags": words}, [words, 1], (words,), Order("1", words), OrderModel(id="1", client=words),
    Tagged(id=1, tags=words, groups={frozenset(words), frozenset({"fig", "plum"})}), {1: words, 2: [words]},
    Tags(words),
    {frozenset(words), 1, 2.5, None, Marked(frozenset(words)), ("a", frozenset(words))},
):
    idempotent(store, key=payload_key(), payload=None, lease_seconds=60)(ship)(order)
print(*store.items)
"""


@pytest.mark.slow
def test_a_set_counts_by_its_sorted_members_in_every_process() -> None:
    """Their order comes from hashes, which differ from process to process: each had a key of its own."""
    keys = {
        subprocess.run(
            [sys.executable, "-c", ONE_CALL],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in (1, 2, 3)
    }
    (found,) = keys
    assert len(found.split()) == 11, "no two are of the same classes"


def test_a_set_is_the_list_of_its_members_by_their_canonical_json() -> None:
    """Beside it stands that it is a set."""
    assert document_of({10, 9, "a"}, "order").value == ["a", 10, 9]
    tagged = Tagged(id=1, tags={"b", "a"}, note="x")
    assert document_of(tagged, "order").value == {"id": "#1", "tags": ["a", "b"], "inGroups": []}
    assert document_of(Tags({"b", "a"}), "order").value == ["a", "b"]


SELF = r"'self', .* payload_key\(without=\[\"self\"\]\).*calls on two objects then count as one.* as an argument"


def test_what_a_model_s_own_serializer_gives_counts_and_nothing_else() -> None:
    """Also where the model holds what pydantic's JSON does not tell apart."""

    class Stamped(BaseModel):
        tags: set[str]
        seen_by: set[int]

        @model_serializer
        def _tags(self) -> dict[str, Any]:
            return {"tags": self.tags}

    work, _ = counted(ship)
    assert work(Stamped(tags={"b", "a"}, seen_by={1})) == work(Stamped(tags={"a", "b"}, seen_by={2})) == 1
    assert work(Stamped(tags={"a"}, seen_by={1})) == 2


def test_the_object_of_a_method_must_be_left_out_of_a_key_of_its_payload_at_set_up(once: Any) -> None:
    """Two tenants' objects would be one, or two copies of one object two."""
    for key in (payload_key(), payload_key("order"), payload_key(without=["order"])):
        with pytest.raises(ValueError, match=SELF):

            class Shop:
                @once(key=key)
                def sell(self, order: str) -> None: ...

    class Fine:
        @once(key=payload_key(without=["self"]))
        def sell(self, order: str) -> str:
            return order

    assert [Fine().sell("a"), Fine().sell("a"), Fine().sell("b")] == ["a", "a", "b"]


@pytest.mark.parametrize("shop", [Client(), Order("1")], ids=["a plain object", "a dataclass"])
def test_what_cannot_be_known_of_a_method_at_set_up_is_refused_at_its_call(shop: Any) -> None:
    work, runs = counted(visit)
    with pytest.raises(UnusableKey, match=SELF):
        work(shop, "7")
    assert runs == []


@pytest.mark.parametrize("make", [Client, Order, OrderModel], ids=["a plain object", "a dataclass", "a model"])
def test_the_object_of_a_method_is_no_payload(make: Any) -> None:
    work, _ = counted(visit, key=by_nothing)
    assert [answer(work, make(id="1"), "7"), answer(work, make(id="2"), "7")] == [1, 1]
    assert answer(work, make(id="1"), "8") is FingerprintMismatch
    work, _ = counted(visit, key=payload_key(without=["self"]))
    assert [answer(work, make(id="1"), "7"), answer(work, make(id="2"), "7")] == [1, 1]


def test_a_lease_of_no_time_is_refused_at_set_up(once: Any) -> None:
    for seconds in (0, 0.0):
        with pytest.raises(ValueError, match="lease_seconds, how long a claim lasts, must be more than 0"):
            once(lease_seconds=seconds)


@pytest.mark.parametrize("option", ["lease_seconds", "lease_margin_seconds", "stop_margin_seconds"])
@pytest.mark.parametrize("seconds", [float("inf"), float("nan")])
def test_a_time_that_never_comes_is_refused_at_set_up(once: Any, option: str, seconds: float) -> None:
    """An infinite lease raised OverflowError at each call."""
    with pytest.raises(ValueError, match=f"{option} must be a finite, non-negative number of seconds"):
        once(**{option: seconds})


def test_an_annotation_that_only_type_checkers_resolve_says_nothing(once: Any) -> None:
    """A client is often imported for them alone; what a replay returns must be there."""

    def work(order: dict[str, Any], client: Nowhere = None) -> str:  # type: ignore[name-defined]  # noqa: F821
        return "done"

    def lost(order: dict[str, Any]) -> Nowhere: ...  # type: ignore[name-defined]  # noqa: F821

    assert once()(work)({"id": "1"}) == "done"
    with pytest.raises(
        TypeError, match=r"the annotation of 'return' cannot be resolved .* not only `if TYPE_CHECKING`"
    ):
        once()(lost)


def book(order: Any, seat: Any) -> None: ...
def book_again(seat: Any, order: Any) -> None: ...


def test_the_order_of_parameters_is_no_part_of_a_key() -> None:
    """A function whose signature is put in another order keeps its records."""
    stores = [MemoryStore("tests"), MemoryStore("tests")]
    for store, function in zip(stores, (book, book_again), strict=True):
        counted(function, store=store)[0](order="o-1", seat=7)
    one, other = ({*store.items} for store in stores)
    assert one == other != set()
