"""What differs only in its class is no repeated call: where no annotation names the class, the class counts."""

from __future__ import annotations

import datetime as dt
import inspect
import os
import pathlib
import subprocess
import sys
import uuid
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from functools import partial
from typing import Annotated, Any, Final, Generic, Literal, NamedTuple, NewType, Protocol, TypeVar

import pytest
from pydantic import AwareDatetime, BaseModel, ConfigDict, Discriminator, Field, RootModel, Tag
from pydantic import dataclasses as pydantic_dataclasses
from typing_extensions import ReadOnly, TypeAliasType, TypedDict

from idempotent_receiver import FingerprintMismatch, Payload, idempotent, payload_key
from tests.counting_store import CountingStore
from tests.manual_clock import ManualClock


@dataclass(frozen=True)
class Deposit:
    account: str
    amount: int


@dataclass(frozen=True)
class Withdrawal:
    account: str
    amount: int


@dataclass(frozen=True)
class Express(Deposit):
    """A deposit, with nothing more in it."""


class DepositModel(BaseModel):
    account: str
    amount: int


class WithdrawalModel(BaseModel):
    account: str
    amount: int


class Entry(Protocol):
    account: str


class Base(BaseModel):
    """What a field is declared to be."""


class Left(Base):
    id: int


class Right(Base):
    id: int


@dataclass
class Journal:
    """Fields of any class, and one that is not given in JSON."""

    entry: Any
    entries: list[Any] = field(default_factory=list)
    source: InitVar[Any] = None


class JournalModel(BaseModel):
    model_config = ConfigDict(extra="allow")
    entry: Any = Field(None, serialization_alias="entryOf")
    base: Base | None = None
    note: Any = Field(None, exclude=True)


class Anything(RootModel[Any]):
    """A model that is its value."""


@pydantic_dataclasses.dataclass
class Aliased:
    entry: Any = Field(serialization_alias="entryOf")


class Pair(NamedTuple):
    first: Any
    second: int


class Colour(Enum):
    RED = "red"


class Status(StrEnum):
    PAID = "paid"


class Level(IntEnum):
    HIGH = 1


T = TypeVar("T")


@dataclass
class Box(Generic[T]):
    """A generic dataclass; the other is a generic model."""

    content: T
    more: list[T] = field(default_factory=list)


class Page(BaseModel, Generic[T]):
    items: list[T]


DEPOSIT, WITHDRAWAL = Deposit("a", 5), Withdrawal("a", 5)
PLAIN = {"account": "a", "amount": 5}


def post(entry): ...  # type: ignore[no-untyped-def]
def post_any(entry: Any) -> None: ...
def post_object(entry: object) -> None: ...
def post_base(entry: Deposit) -> None: ...
def post_protocol(entry: Entry) -> None: ...
def post_type(entry: T) -> T: ...
def post_each(*entries: Any, **named: Any) -> None: ...


def decorated(function: Any, **options: Any) -> tuple[Any, CountingStore]:
    store = CountingStore()
    options = {"key": payload_key(), "store": store, **options}
    return idempotent(lease_seconds=60, clock=ManualClock(), **options)(function), store


def key_of(function: Any, *args: Any, key: Payload = payload_key(), **kwargs: Any) -> str:  # noqa: B008
    """The key that a call gets."""
    work, store = decorated(function, key=key, payload=None)
    work(*args, **kwargs)
    (key_found,) = store.items
    return str(key_found)


def all_differ(function: Any, *values: Any, key: Payload = payload_key()) -> bool:  # noqa: B008
    keys = [key_of(function, each, key=key) for each in values]
    assert keys == [key_of(function, each, key=key) for each in values], "each is found again"
    return len(set(keys)) == len(values)


@pytest.mark.parametrize("function", [post, post_any, post_object, post_protocol, post_type])
def test_two_classes_of_one_form_are_two_calls_where_the_annotation_does_not_name_one(function: Any) -> None:
    """A withdrawal was answered with the deposit's receipt."""
    values = (DEPOSIT, WITHDRAWAL, DepositModel(**PLAIN), WithdrawalModel(**PLAIN), PLAIN)
    assert all_differ(function, *values)


def test_under_a_key_of_its_own_another_class_is_another_payload() -> None:
    work, _ = decorated(post, key=lambda entry: "1")
    work(DEPOSIT)
    with pytest.raises(FingerprintMismatch):
        work(WITHDRAWAL)


def test_a_subclass_of_what_is_annotated_is_another_call_and_the_class_itself_is_what_it_was() -> None:
    assert all_differ(post_base, Express("a", 5), DEPOSIT)
    assert key_of(post_base, DEPOSIT) == key_of(post_base, PLAIN) == key_of(post_any, PLAIN)


PLACES: dict[str, Any] = {
    "a list": lambda entry: [entry],
    "a dict": lambda entry: {"entry": entry},
    "a dict in a list": lambda entry: [{"entries": [1, entry]}],
    "a field of a dataclass": Journal,
    "a list in a dataclass": lambda entry: Journal(None, [entry]),
    "a field of a model": lambda entry: JournalModel(entry=entry),
    "an extra field of a model": lambda entry: JournalModel(more=entry),
    "a model that is its value": Anything,
    "a dataclass of pydantic": Aliased,
    "a named tuple": lambda entry: Pair(entry, 1),
    "a tuple": lambda entry: (1, entry),
    "a deque": lambda entry: deque([entry]),
    "a set": lambda entry: {entry},
    "a generic": Box,
    "a generic model": lambda entry: Page(items=[entry]),
    "an object with a repeated name": lambda entry: {1: entry, "1": 2},
}


@pytest.mark.parametrize("place", PLACES.values(), ids=list(PLACES))
def test_a_class_counts_wherever_the_value_is(place: Any) -> None:
    assert all_differ(post_any, place(DEPOSIT), place(WITHDRAWAL))


def test_a_class_counts_under_an_alias_however_the_form_is_made() -> None:
    """Pydantic gives a dataclass by alias; where it would cut a part, the form is made by name."""
    assert all_differ(post_any, Aliased(DEPOSIT), Aliased(WITHDRAWAL))
    assert all_differ(post_any, Aliased(DepositModel(**PLAIN)), Aliased(WithdrawalModel(**PLAIN)))


def test_a_class_counts_among_positional_and_named_arguments() -> None:
    keys = [
        key_of(post_each, DEPOSIT),
        key_of(post_each, WITHDRAWAL),
        key_of(post_each, entry=DEPOSIT),
        key_of(post_each, entry=WITHDRAWAL),
    ]
    assert len(set(keys)) == 4
    assert key_of(post_each, 1, a="b") == key_of(lambda *entries, **named: None, 1, a="b"), "the tuple is no value"


def test_a_class_counts_at_its_place() -> None:
    pairs = [{"a": DEPOSIT, "b": WITHDRAWAL}, {"a": WITHDRAWAL, "b": DEPOSIT}, {"a.b": DEPOSIT}, {"a": {"b": DEPOSIT}}]
    assert all_differ(post_any, *pairs)
    assert all_differ(post_any, [DEPOSIT, WITHDRAWAL], [WITHDRAWAL, DEPOSIT])
    assert key_of(post_any, {"a": DEPOSIT, "b": 1}) == key_of(post_any, {"b": 1, "a": DEPOSIT})
    assert all_differ(post_any, Anything(PLAIN), PLAIN, Anything(DEPOSIT), Anything(Anything(DEPOSIT)))


def test_a_field_that_is_declared_to_be_a_base_counts_by_its_class() -> None:
    assert all_differ(partial(post_any), JournalModel(base=Left(id=1)), JournalModel(base=Right(id=1)))


def test_what_has_the_form_of_a_text_a_list_or_a_number_is_none_where_nothing_is_annotated() -> None:
    same = uuid.UUID(int=1)
    at = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
    for values in (
        (Decimal(5), "5"),
        (same, str(same)),
        (at, at.isoformat().replace("+00:00", "Z")),
        (b"ab", "ab", pathlib.Path("ab")),
        (Colour.RED, "red"),
        (Status.PAID, "paid"),
        (Level.HIGH, 1),
        ((1, 2), [1, 2], {1, 2}, frozenset({1, 2}), deque([1, 2])),
        ({"a": 1}, OrderedDict(a=1)),
        ({Colour.RED: 1}, {"red": 1}),
        ({Decimal(5): {}}, {"5": {}}, {"5": Decimal(5)}),
    ):
        assert all_differ(post_any, *values)


DepositId = NewType("DepositId", uuid.UUID)
Alias = TypeAliasType("Alias", list[Deposit])
Tree = TypeAliasType("Tree", "list[Tree] | Deposit | None")


class Options(TypedDict, total=False):
    entry: ReadOnly[Deposit]


@dataclass
class Constant:
    entry: Final[Deposit]  # type: ignore[misc]  # it is what dataclasses allow


def as_model(entry: DepositModel) -> None: ...
def as_optional(entry: Deposit | None = None) -> None: ...
def as_annotated(entry: Annotated[Deposit, []]) -> None: ...
def as_list(entry: list[Deposit]) -> None: ...
def as_sequence(entry: Sequence[Deposit]) -> None: ...
def as_mapping(entry: Mapping[str, Deposit]) -> None: ...
def as_typed_dict(entry: Options) -> None: ...
def as_tuple(entry: tuple[Deposit, int]) -> None: ...
def as_tuples(entry: tuple[Deposit, ...]) -> None: ...
def as_set(entry: frozenset[Deposit]) -> None: ...
def as_new_type(entry: DepositId) -> None: ...
def as_alias(entry: Alias) -> None: ...
def as_forward(entry: list[Later]) -> None: ...
def as_enum(entry: dict[Colour, Status]) -> None: ...
def as_literal(entry: Literal[Colour.RED]) -> None: ...
def as_path(entry: pathlib.Path) -> None: ...
def as_box(entry: Box[Deposit]) -> None: ...
def as_page(entry: Page[Deposit]) -> None: ...
def as_text(entry: bytes) -> None: ...
def as_each(*entry: Deposit) -> None: ...
def as_marker(entry: Marked) -> None: ...
def as_told_apart(entry: Annotated[Debit | Credit, Field(discriminator="kind")] | None) -> None: ...
def as_field(entry: Ledger) -> None: ...
def as_constant(entry: Constant) -> None: ...
def as_signed(*args: Any, **kwargs: Any) -> None: ...


as_signed.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # where inspect looks for it
    [inspect.Parameter("entry", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Deposit)]
)


@dataclass
class Later:
    at: dt.datetime


class Marked(BaseModel):
    at: AwareDatetime


class Debit(BaseModel):
    kind: Literal["debit"] = "debit"


class Credit(BaseModel):
    kind: Literal["credit"] = "credit"


class Ledger(BaseModel):
    last: Debit | Credit = Field(discriminator="kind")


AT = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
EXACT: list[tuple[Any, Any, Any]] = [
    (as_model, DepositModel(**PLAIN), PLAIN),
    (as_optional, DEPOSIT, PLAIN),
    (as_annotated, DEPOSIT, PLAIN),
    (as_list, [DEPOSIT], [PLAIN]),
    (as_sequence, [DEPOSIT], [PLAIN]),
    (as_mapping, {"x": DEPOSIT}, {"x": PLAIN}),
    (as_typed_dict, {"entry": DEPOSIT}, {"entry": PLAIN}),
    (as_tuple, (DEPOSIT, 1), [PLAIN, 1]),
    (as_tuples, (DEPOSIT, DEPOSIT), [PLAIN, PLAIN]),
    (as_set, frozenset({DEPOSIT}), [PLAIN]),
    (as_new_type, DepositId(uuid.UUID(int=1)), str(uuid.UUID(int=1))),
    (as_alias, [DEPOSIT], [PLAIN]),
    (as_forward, [Later(AT)], [{"at": "2026-01-02T00:00:00Z"}]),
    (as_enum, {Colour.RED: Status.PAID}, {"red": "paid"}),
    (as_literal, Colour.RED, "red"),
    (as_path, pathlib.Path("ab"), "ab"),
    (as_box, Box(DEPOSIT, [DEPOSIT]), {"content": PLAIN, "more": [PLAIN]}),
    (as_page, Page[Deposit](items=[DEPOSIT]), {"items": [PLAIN]}),
    (as_text, b"ab", "ab"),
    (as_marker, Marked(at=AT), {"at": "2026-01-02T00:00:00Z"}),
    (as_told_apart, Debit(), {"kind": "debit"}),
    (as_field, Ledger(last=Credit()), {"last": {"kind": "credit"}}),
    (as_constant, Constant(DEPOSIT), {"entry": PLAIN}),
    (as_signed, DEPOSIT, PLAIN),
]


@pytest.mark.parametrize(("function", "value", "form"), EXACT, ids=[each[0].__name__ for each in EXACT])
def test_a_value_of_just_the_annotated_class_counts_by_its_form_alone(function: Any, value: Any, form: Any) -> None:
    """As before its class counted: recorded keys stay."""
    assert key_of(function, value) == key_of(post_any, form)


def test_each_positional_argument_of_just_the_annotated_class_counts_by_its_form_alone() -> None:
    assert key_of(as_each, DEPOSIT) == key_of(post_each, PLAIN) == key_of(lambda *entry: None, PLAIN)


def union(entry: Decimal | str | None) -> None: ...
def union_of_lists(entry: list[Deposit] | list[str]) -> None: ...
def union_of_literals(entry: Literal["red", Colour.RED]) -> None: ...
def union_by_name(entry: Union) -> None: ...


Union = TypeAliasType("Union", "DepositModel | dict[str, Any]")


def test_a_union_names_no_class() -> None:
    assert all_differ(union, Decimal(5), "5", None)
    assert key_of(union, "5") == key_of(post_any, "5")
    assert all_differ(union_of_lists, [DEPOSIT], [PLAIN])
    assert all_differ(union_of_literals, "red", Colour.RED)
    assert all_differ(union_by_name, DepositModel(**PLAIN), PLAIN)


def test_what_is_left_out_leaves_out_its_class() -> None:
    def both(entry: Any, other: Any = None) -> None: ...

    for without, one, two in (
        (["other"], (1, DEPOSIT), (1, WITHDRAWAL)),
        (["entry.of"], ({"of": DEPOSIT},), ({"of": WITHDRAWAL},)),
        (["of"], ({"of": DEPOSIT},), ({"of": WITHDRAWAL},)),
        (["of"], ({"of": {Colour.RED: 1}},), ({"of": {"red": 1}},)),
        (["entry.of"], ({"of": [DEPOSIT]}, 1), ({"of": [WITHDRAWAL]}, 1)),
    ):
        key = payload_key(without=without)
        assert key_of(both, *one, key=key) == key_of(both, *two, key=key)
        assert key_of(both, *one) != key_of(both, *two)
    for without in (["of.x"], ["o"], ["f"], ["entry.o"]):
        assert all_differ(both, {"of": DEPOSIT}, {"of": WITHDRAWAL}, key=payload_key(without=without))


def test_a_single_argument_that_reads_like_several_keeps_its_classes() -> None:
    def both(entry: Any, other: Any = None) -> None: ...

    values = [{"entry": DEPOSIT}, {"entry": WITHDRAWAL}, {"entry": {"entry": DEPOSIT}}]
    assert all_differ(both, *values)
    left_out = payload_key(without=["other.x"])
    assert all_differ(both, *values, key=left_out)
    x = payload_key(without=["x"])
    assert key_of(both, {"entry": 1, "x": DEPOSIT}, key=x) == key_of(both, {"entry": 1, "x": WITHDRAWAL}, key=x)


def test_with_an_expression_a_class_counts_if_its_value_does() -> None:
    def both(entry: Any, other: Any = None) -> None: ...

    assert all_differ(both, DEPOSIT, WITHDRAWAL, key=payload_key("account"))
    assert all_differ(both, {"a": [DEPOSIT, 1]}, {"a": [WITHDRAWAL, 1]}, key=payload_key("a[0].account"))
    assert all_differ(both, {"a": [1, DEPOSIT]}, {"a": [1, WITHDRAWAL]}, key=payload_key("a"))
    assert all_differ(both, {"a": {Colour.RED: 1}}, {"a": {"red": 1}}, key=payload_key("a"))
    assert all_differ(both, {"a": DEPOSIT}, {"a": WITHDRAWAL}, key=payload_key("to_string(a.account)"))
    account = payload_key("entry.account")
    assert key_of(both, PLAIN, DEPOSIT, key=account) == key_of(both, PLAIN, WITHDRAWAL, key=account)
    b = payload_key("b")
    assert key_of(both, {"a": [DEPOSIT], "b": 1}, key=b) == key_of(both, {"a": [WITHDRAWAL], "b": 1}, key=b)


def test_an_expression_does_not_see_classes() -> None:
    """What it finds is what it found before."""
    assert key_of(post_base, DEPOSIT, key=payload_key("keys(@)")) == key_of(
        post_any, ["account", "amount"], key=payload_key("@")
    )


def test_an_argument_that_only_looks_like_its_default_is_given() -> None:
    def both(entry: Any, other: Any = DEPOSIT, names: Any = ()) -> None: ...

    calls = [(1,), (1, WITHDRAWAL), (1, PLAIN), (1, DEPOSIT, [])]
    keys = [key_of(both, *each) for each in calls]
    assert len(set(keys)) == 4
    assert key_of(both, 1, Deposit("a", 5), ()) == keys[0]


def test_what_is_excluded_has_no_class() -> None:
    one, other = JournalModel(note=DEPOSIT), JournalModel(note=WITHDRAWAL)
    assert key_of(post_any, one) == key_of(post_any, other)


def test_an_object_that_holds_itself_and_is_left_out_is_not_followed() -> None:
    ring: list[Any] = []
    ring.append(ring)
    key = payload_key(without=["ring"])
    assert all_differ(post_any, {"ring": [ring], "of": DEPOSIT}, {"ring": [ring], "of": WITHDRAWAL}, key=key)


ONE_CALL = """
from idempotent_receiver import MemoryStore, idempotent, payload_key
from tests.unit.function.test_classes import *

store = MemoryStore("tests")
work = idempotent(store, key=payload_key(), lease_seconds=60)(lambda entry: None)
work({DEPOSIT, WITHDRAWAL, Deposit("b", 5), "a", (1, 2), frozenset({DEPOSIT})})
print(*store.items)
"""


@pytest.mark.slow
def test_the_classes_in_a_set_count_in_no_order() -> None:
    keys = {
        subprocess.run(
            [sys.executable, "-c", ONE_CALL],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(keys) == 1


RECORDED = {
    "a model": (DepositModel(**PLAIN), "f9eb03517ab262de4377520a13d6bc573bad62712571248217f1b83cb921706a"),
    "a decimal": (Decimal(5), "f9aeb8324853a1b221140bfe884be145217087f5daa6abc35dda9746267ca1ff"),
    "a path": (pathlib.Path("ab"), "7f24682ed25ad1b1b894a80b1bd27493a6775b76a3b58862c4376953827cc303"),
    "several within": (
        {"of": [(DEPOSIT, {Colour.RED: Anything(5)})]},
        "ec6d35470c276aefac9b1a70062b6da149dd74939bf7fd5c8f7ea5ae7d88e575",
    ),
}


@pytest.mark.parametrize("said", RECORDED)
def test_a_call_keeps_the_key_that_was_recorded_with_its_classes(said: str) -> None:
    value, key = RECORDED[said]
    assert key_of(post_any, value) == f"tests#{key}"


class Holder(BaseModel):
    """A union within a model."""

    entries: list[DepositModel | WithdrawalModel]


@dataclass
class Held:
    by: dict[str, Deposit | Withdrawal]


class Foreign:
    """Nothing that pydantic can describe."""


def look_alike(entry: Deposit | Withdrawal) -> None: ...
def look_alike_models(entry: DepositModel | WithdrawalModel | None) -> None: ...
def look_alike_listed(other: int, entry: list[Deposit | Withdrawal]) -> None: ...
def look_alike_lists(entry: list[Deposit] | list[Withdrawal]) -> None: ...
def look_alike_fields(entry: Holder) -> None: ...
def look_alike_held(entry: Held | None) -> None: ...
def look_alike_beside(entry: Deposit | Foreign | Withdrawal) -> None: ...
def look_alike_within(entry: dict[str, Annotated[Held, "x"] | Foreign]) -> None: ...
def look_alike_rest(*entry: Deposit | Withdrawal) -> None: ...


LOOK_ALIKES = [each for name, each in list(globals().items()) if name.startswith("look_alike")]


@pytest.mark.parametrize("function", LOOK_ALIKES)
def test_a_union_of_classes_of_one_schema_is_refused_at_set_up(function: Any) -> None:
    """With the function, the parameter, both classes and the remedy."""
    what = rf"{function.__name__}: 'entry' takes Deposit(Model)? and Withdrawal(Model)?, .* Add a discriminator"
    for options in ({}, {"key": lambda *_, **__: "1"}):
        with pytest.raises(TypeError, match=what):
            decorated(function, **options)


def _tag(value: Any) -> str:
    return type(value).__name__


TAGGED = Annotated[
    Annotated[DepositModel, Tag("DepositModel")] | Annotated[WithdrawalModel, Tag("WithdrawalModel")],
    Discriminator(_tag),
]


class HoldsTagged(BaseModel):
    entry: Annotated[DepositModel, Tag("DepositModel")] | Annotated[WithdrawalModel, Tag("WithdrawalModel")] = Field(
        discriminator=Discriminator(_tag)
    )


def tagged(entry: TAGGED) -> None: ...
def in_a_list(entries: list[TAGGED]) -> None: ...
def in_a_model(one: HoldsTagged) -> None: ...


@pytest.mark.parametrize("function", [tagged, in_a_list, in_a_model])
def test_a_discriminator_that_is_a_callable_is_not_in_the_json(function: Any) -> None:
    """The two were one call: what a callable tells apart, no JSON does."""
    assert is_refused(function)


def is_refused(function: Any, **options: Any) -> bool:
    try:
        decorated(function, **options)
    except TypeError as error:
        return "discriminator" in str(error)
    return False


def test_a_union_that_is_not_compared_is_not_refused() -> None:
    without, within = payload_key(without=["entry"]), payload_key(without=["entry.entries"])
    assert not is_refused(look_alike, key=lambda entry: "1", payload=None)
    assert not is_refused(look_alike_listed, key=without, payload=None)
    assert not is_refused(look_alike_fields, key=within, payload=Payload(without=["entries"]))
    assert is_refused(look_alike_listed, key=without), "the default payload compares it"


def told_apart(entry: Debit | Credit) -> None: ...
def with_a_client(entry: Deposit | Foreign) -> None: ...
def twice(entry: list[Deposit] | Deposit) -> None: ...
def in_a_tree(entry: Tree) -> None: ...
def typed_dicts(entry: Options | Others) -> None: ...


class Others(TypedDict, total=False):
    entry: Deposit


@pytest.mark.parametrize("function", [told_apart, with_a_client, twice, in_a_tree, typed_dicts, as_told_apart, union])
def test_a_union_whose_members_differ_is_accepted(function: Any) -> None:
    assert not is_refused(function)


WITHOUT_PYDANTIC = """
import sys
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from idempotent_receiver import MemoryStore, idempotent, payload_key

@dataclass
class Order:
    id: str
    of: "Order | None | str"

def work(order: Order | None, amount: Decimal | str, more: list[Any] | None = None, **rest: int) -> str: ...

idempotent(MemoryStore("tests"), key=payload_key(), lease_seconds=60)(work)
print("pydantic" in sys.modules)
"""


@pytest.mark.slow
def test_pydantic_is_imported_only_for_a_union_of_classes() -> None:
    run = subprocess.run([sys.executable, "-c", WITHOUT_PYDANTIC], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"


@dataclass(frozen=True)
class Timeout:
    seconds: int = 5


@dataclass(frozen=True)
class Patience:
    seconds: int = 5


class Provider(Enum):
    """Its members have one JSON form."""

    STRIPE = Timeout()
    ADYEN = Patience()


class Amount(Enum):
    WHOLE = Decimal("1.0")
    TEXT = "1.0"
    NOTHING = None


@dataclass
class Payment:
    provider: Provider
    amount: Amount | None = None


def pay(provider: Provider, amount: Amount | None = None) -> None: ...
def paid(payment: Payment) -> None: ...


@pytest.mark.parametrize(
    ("function", "one", "other"),
    [
        (pay, (Provider.STRIPE,), (Provider.ADYEN,)),
        (pay, (Provider.STRIPE, Amount.WHOLE), (Provider.STRIPE, Amount.TEXT)),
        (pay, (Provider.STRIPE, Amount.NOTHING), (Provider.STRIPE, None)),
        (paid, (Payment(Provider.STRIPE),), (Payment(Provider.ADYEN),)),
        (paid, (Payment(Provider.STRIPE, Amount.WHOLE),), (Payment(Provider.STRIPE, Amount.TEXT),)),
    ],
)
def test_members_of_an_enum_with_one_json_form_are_different(function: Any, one: Any, other: Any) -> None:
    assert key_of(function, *one) != key_of(function, *other)


def test_a_plain_functions_argument_may_be_called_cls() -> None:
    """It may be a travel class: only a method's is its object."""

    def book(cls: str, seat: int) -> None: ...

    booked, _ = decorated(book, key=lambda cls, seat: str(seat))
    booked("first", 1)
    with pytest.raises(FingerprintMismatch):
        booked("economy", 1)


def test_a_call_that_does_not_fit_names_the_function_and_its_parameters() -> None:
    call, _ = decorated(pay)
    with pytest.raises(TypeError, match=r"^pay\(provider: .*: missing a required argument: 'provider'"):
        call()
