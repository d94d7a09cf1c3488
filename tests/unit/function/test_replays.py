"""A replay of a function's result is the first result, or an error; it is never another value."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, Never, NoReturn, Protocol, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Json,
    PlainSerializer,
    PrivateAttr,
    RootModel,
    SecretStr,
    SerializeAsAny,
    computed_field,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import TypedDict

from idempotent_receiver import MemoryStore, ResultUnavailable, Transaction, idempotent
from idempotent_receiver.handler.attempt import dropped, marked
from tests.counting_store import CountingStore
from tests.unit.function.conftest import ORDER, by_order, record

ANY = TypeVar("ANY")


def returning(once: Any, hint: Any, result: Any) -> Any:
    """A function that returns `result` and is annotated with `hint`."""

    def work(order: dict[str, Any]) -> Any:
        return result

    work.__annotations__["return"] = hint
    return once()(work)


def answer(call: Any) -> Any:
    """What a call returns or raises."""
    try:
        return call(ORDER)
    except Exception as error:  # noqa: BLE001  # whatever it is
        return error


# Types whose values come back.


class Receipt(BaseModel):
    id: str
    amount: Decimal
    at: datetime


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


@dataclass
class Line:
    sku: str
    price: Decimal
    tags: frozenset[str] = frozenset()


@dataclass
class Basket:
    lines: list[Line]
    total: Decimal = field(init=False)

    def __post_init__(self) -> None:
        self.total = sum((each.price for each in self.lines), Decimal(0))


@pydantic_dataclass
class Checked:
    amount: Decimal


class Point(NamedTuple):
    x: int
    y: Decimal


class Typed(TypedDict):
    amount: Decimal


class Aliased(BaseModel):
    id: str = Field("unknown", validation_alias="paymentId")
    cents: int = Field(serialization_alias="amount")
    at: datetime = Field(alias="paidAt")


class Crossed(BaseModel):
    """Each field's alias is the other's name, in part."""

    payer: str = Field(alias="from_")
    payee: str = Field(alias="payer")


class Parsed(BaseModel, extra="forbid"):
    parts: Json[list[int]]

    @computed_field
    @property
    def total(self) -> int:
        return sum(self.parts)


class Names(RootModel[list[str]]):
    pass


class Page(BaseModel, Generic[ANY]):
    items: list[ANY]


class Open(BaseModel, extra="allow"):
    id: str


class Private(BaseModel):
    id: str
    note: str = Field("none", exclude=True)
    _cached: str = PrivateAttr("")


class Approved(BaseModel):
    kind: Literal["approved"] = "approved"
    id: str


class Declined(BaseModel):
    kind: Literal["declined"] = "declined"
    id: str


class Cat(BaseModel):
    name: str
    lives: int


class Dog(BaseModel):
    name: str
    tricks: list[str]


def noted() -> Private:
    private = Private(id="1", note="seen once")
    private._cached = "of this process"
    return private


NOW = datetime(2026, 1, 2, 3, 4, 5, 6789, tzinfo=UTC)
TWICE_THAT_NIGHT = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
OFFSET = NOW.astimezone(timezone(timedelta(hours=2)))

COME_BACK: list[tuple[Any, Any]] = [
    (Receipt, Receipt(id="1", amount=Decimal("9.90"), at=NOW)),
    (Receipt | None, Receipt(id="1", amount=Decimal("9.90"), at=OFFSET)),
    (list[Receipt], [Receipt(id="1", amount=Decimal("9.90"), at=NOW)]),
    (dict[str, Receipt], {"a": Receipt(id="1", amount=Decimal("9.90"), at=NOW)}),
    (Colour, Colour.RED),
    (Level, Level.LOW),
    (Line, Line("a", Decimal("1.50"), frozenset({"x", "y"}))),
    (Basket, Basket([Line("a", Decimal("1.50"))])),
    (Checked, Checked(amount=Decimal(2))),
    (Point, Point(1, Decimal(2))),
    (Typed, {"amount": Decimal(2)}),
    (Aliased, Aliased.model_validate({"paymentId": "1", "cents": 5, "paidAt": NOW})),
    (Crossed, Crossed.model_validate({"from_": "alice", "payer": "bob"})),
    (Parsed, Parsed(parts="[1, 2]")),  # type: ignore[arg-type]  # Json parses it
    (Names, Names(["a"])),
    (Page[int], Page[int](items=[1])),
    (Page[int], Page(items=[1])),
    (Open, Open.model_validate({"id": "1", "more": [1, None]})),
    (Private, noted()),
    (Approved | Declined, Declined(id="1")),
    (Annotated[Approved | Declined, Field(discriminator="kind")], Declined(id="1")),
    (Cat | Dog, Dog(name="Rex", tricks=["roll"])),
    (tuple[int, str], (1, "a")),
    (set[int], {1, 2}),
    (deque[int], deque([1, 2])),
    (defaultdict[str, int], defaultdict(int, a=1)),
    (OrderedDict[str, int], OrderedDict(a=1)),
    (Counter[str], Counter("aab")),
    (dict[int, str], {1: "a"}),
    (dict[date, Decimal], {date(2026, 1, 2): Decimal(1)}),
    (int | str, "5"),
    (bytes, b"abc"),
    (date, date(2026, 1, 2)),
    (time, time(2, 30, fold=0)),
    (datetime, TWICE_THAT_NIGHT),
    (datetime, TWICE_THAT_NIGHT.replace(fold=1)),
    (timedelta, timedelta(days=1, microseconds=3)),
    (UUID, UUID(int=7)),
    (Path, Path("/a/b")),
    (Decimal, Decimal("1.500")),
    (Literal["a", 1], 1),
    (Sequence[int], [1]),
    (object, {"a": 1}),
]


@pytest.mark.parametrize(("hint", "result"), COME_BACK, ids=[str(hint) for hint, _ in COME_BACK])
def test_a_result_comes_back_as_the_type_that_it_was(once: Any, hint: Any, result: Any) -> None:
    call = returning(once, hint, result)
    first, again = call(ORDER), answer(call)
    assert first is result
    assert type(again) in (type(result), hint)
    assert again == result or hint is Private or again.isoformat() == result.isoformat()


def test_excluded_and_private_fields_come_back_as_they_are_stored(once: Any) -> None:
    """They are not stored, so a replay has their defaults."""
    again = [(call := returning(once, Private, noted()))(ORDER), answer(call)][1]
    assert isinstance(again, Private)
    assert (again.id, again.note, again._cached) == ("1", "none", "")


# Types that give another value, or none, for what was returned.


class Err(BaseModel):
    id: str


class Ok(BaseModel):
    id: str | None


@dataclass
class Left:
    id: str


@dataclass
class Right:
    id: str | None


class FromCents(BaseModel):
    amount: int

    @field_validator("amount", mode="before")
    @classmethod
    def _in_cents(cls, amount: Any) -> int:
        return int(amount) * 100


class Doubling(BaseModel):
    amount: int

    @model_validator(mode="before")
    @classmethod
    def _doubled(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {"amount": values["amount"] * 2}


@dataclass
class Counted:
    amount: int

    def __post_init__(self) -> None:
        self.amount += 1


@dataclass
class Base:
    id: str


@dataclass
class More(Base):
    secret: str = "s"


class Model(BaseModel):
    id: str


class Extended(Model):
    more: int = 1


class Holding(BaseModel):
    one: SerializeAsAny[Model]


class Encoded(BaseModel):
    model_config = ConfigDict(ser_json_bytes="base64")
    data: bytes


class Own(BaseModel):
    amount: int

    @field_serializer("amount")
    def _as_text(self, amount: int) -> str:
        return f"{amount + 1}"


class Whole(BaseModel):
    amount: int

    @model_serializer
    def _as_text(self) -> dict[str, Any]:
        return {"amount": 0}


class Refusing(BaseModel):
    id: str

    @model_validator(mode="before")
    @classmethod
    def _renamed(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {"id": values["name"]}


@dataclass
class Initialised:
    id: str
    secret: InitVar[str]

    def __post_init__(self, secret: str) -> None:
        self.id += secret


class Vague:
    """A value that pydantic can read and that does not say whether it equals another one."""

    def __init__(self, text: str, equal: object = "perhaps") -> None:
        self.text, self.equal = text, equal

    def __eq__(self, other: object) -> Any:
        if isinstance(self.equal, Exception):
            raise self.equal
        return self.equal

    __hash__ = None  # type: ignore[assignment]  # nothing hashes it


VAGUE = Annotated[Any, BeforeValidator(Vague), PlainSerializer(lambda vague: vague.text)]


class HoldsVague(BaseModel):
    one: VAGUE


OTHERWISE: list[tuple[Any, Any]] = [
    (Err | Ok, Ok(id="1")),
    (list[Left | Right], [Right("1")]),
    (Base, More("1")),
    (Model, Extended(id="1")),
    (list[Model], [Extended(id="1")]),
    (Holding, Holding(one=Extended(id="1"))),
    (bytes | str, "text"),
    (datetime | str, "2026-01-02T03:04:05Z"),
    (Decimal | str, "5"),
    (dict[str, bytes | str], {"a": "text"}),
    (FromCents, FromCents.model_construct(amount=1250)),
    (Doubling, Doubling.model_construct(amount=3)),
    (Counted, Counted(1)),
    (Encoded, Encoded(data=b"\xfb\xff")),
    (Own, Own(amount=1)),
    (Whole, Whole(amount=1)),
    (Refusing, Refusing.model_construct(id="1")),
    (Initialised, Initialised("a", "b")),
    (datetime, datetime.fromisoformat("2026-10-25T02:30").replace(fold=1)),
    (SecretStr, SecretStr("s")),
    (HoldsVague, HoldsVague.model_construct(one=Vague("a"))),
    (HoldsVague, HoldsVague.model_construct(one=Vague("a", ValueError("ambiguous")))),
    (defaultdict[str, float], defaultdict(lambda: 1.0, a=1.0)),
    (deque[int], deque([1, 2], maxlen=2)),
    (time, time(1, tzinfo=ZoneInfo("Europe/Berlin"))),
    (Iterable[int], [1]),
    (Sequence[int], (1,)),
    (Colour, "red"),
    (int | bool, Level.LOW),
    (set[float], {1}),
    (dict[float, str], {1: "a"}),
    (dict[str, Any], {"at": NOW}),
    (dict[str, Any], {"lines": (1, 2)}),
    (dict, {1: "a"}),
    (list, [Decimal(1)]),
    (str, Colour.RED),
    (float, Decimal("1.5")),
    (dict[str, int], OrderedDict(a=1)),
]


@pytest.mark.parametrize(("hint", "result"), OTHERWISE, ids=[str(hint) for hint, _ in OTHERWISE])
def test_what_would_come_back_as_another_value_is_the_first_callers_only(
    once: Any, store: CountingStore, hint: Any, result: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The effect took place: the record is COMPLETED, its caller gets the result, the log says why nobody else will."""
    call = returning(once, hint, result)
    assert call(ORDER) is result

    lines = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert [(each.name, each.__dict__["key"]) for each in lines] == [("idempotent_receiver.calls", "1")]
    stored = record(store)
    assert stored["status"] == "COMPLETED"
    told = marked(stored["data"])
    assert told is not None
    assert told == {"result": "dropped", "why": lines[0].__dict__["why"]}
    assert isinstance(again := answer(call), ResultUnavailable)
    assert "the call took effect; the result was not kept: " in str(again)


def test_the_log_says_where_a_replay_would_differ_and_no_value(once: Any, caplog: pytest.LogCaptureFixture) -> None:
    call = returning(once, dict[str, Holding], {"alice": Holding(one=Extended(id="secret"))})
    call(ORDER)
    [line] = caplog.records
    assert line.__dict__["why"] == "a replay would differ: result[*].one is of type Extended and would be read as Model"
    assert "secret" not in caplog.text


def test_a_marker_of_a_result_that_differs_has_the_keys_that_earlier_workers_read(
    once: Any, store: CountingStore
) -> None:
    """They take a marker with any other key for the result itself, and replay it."""
    returning(once, bytes | str, "text")(ORDER)
    data = record(store)["data"]
    assert data == dropped(json.loads(data)["idempotent-receiver"]["why"])


@pytest.mark.parametrize("hint", [None, Any, Annotated[Any, "noted"], ANY])
def test_without_an_annotation_or_with_any_a_replay_is_the_results_json_form(once: Any, hint: Any) -> None:
    """Nothing says what else a replay could be: the contract is the JSON form."""
    result = {"amount": Decimal("1.50"), "at": NOW, "lines": (1, 2), "model": Model(id="1")}
    call = once()(lambda order: result) if hint is None else returning(once, hint, result)
    assert call(ORDER) is result
    form = {"amount": "1.50", "at": "2026-01-02T03:04:05.006789Z", "lines": [1, 2], "model": {"id": "1"}}
    assert call(ORDER) == form


PLAIN: list[tuple[Any, Any]] = [
    (dict, {"a": [1, 2.5, None, True, "x"]}),
    (list, [{"a": 1}]),
    (str, "x"),
    (int, True),
    (float, 5),
    (bool, False),
    (dict[str, float], {"a": 5}),
    (list[dict[str, Any]] | None, [{"a": 2**70}]),
]


@pytest.mark.parametrize(("hint", "result"), PLAIN, ids=str)
def test_json_values_come_back_with_their_types_whatever_the_annotation_would_make_of_them(
    once: Any, hint: Any, result: Any
) -> None:
    call = returning(once, hint, result)
    again = [call(ORDER), call(ORDER)][1]
    assert (again, type(again)) == (result, type(result))
    assert json.dumps(again) == json.dumps(result)


@pytest.mark.parametrize("hint", [NoReturn, Never])
def test_a_function_that_never_returns_can_be_wrapped(once: Any, hint: Any) -> None:
    assert callable(returning(once, hint, None))


def test_a_result_annotated_as_none_is_none(once: Any) -> None:
    call = returning(once, None, None)
    assert [call(ORDER), call(ORDER)] == [None, None]


def test_a_record_that_powertools_wrote_is_read_by_alias_as_powertools_reads_it(
    once: Any, store: CountingStore
) -> None:
    """Its records have no version."""
    call = returning(once, Aliased, Aliased.model_validate({"paymentId": "1", "cents": 5, "paidAt": NOW}))
    call(ORDER)
    stored = record(store)
    del stored["version"], stored["attempts"], stored["owner"]
    stored["data"] = json.dumps({"paymentId": "2", "cents": 6, "paidAt": NOW.isoformat()})
    assert answer(call) == Aliased.model_validate({"paymentId": "2", "cents": 6, "paidAt": NOW})


def test_a_transaction_commits_although_its_functions_result_cannot_be_replayed(store: CountingStore) -> None:
    """The comparison comes before the commit and never prevents it."""

    @idempotent(store, key=by_order, lease_seconds=60)
    def post(order: dict[str, Any], tx: Transaction) -> bytes | str:
        tx.put(TableName="ledger", Item={"id": order["id"]})
        return "posted"

    assert post(ORDER) == "posted"  # type: ignore[call-arg]  # the library supplies the transaction
    assert list(store.tables["ledger"].items.values()) == [{"id": "1"}]


def test_a_coroutines_result_is_compared_like_any_other(once: Any) -> None:
    @once()
    async def work(order: dict[str, Any]) -> Base:
        return More("1")

    assert asyncio.run(work(ORDER)) == More("1")
    with pytest.raises(ResultUnavailable):
        asyncio.run(work(ORDER))


# Types that can never be right are refused at set-up.


class Yes(BaseModel):
    id: str


class No(BaseModel):
    """Of the same shape, under another title."""

    id: str


@dataclass
class HoldsEither:
    one: list[Yes | No]


class Text(str):
    __slots__ = ()


class Mapping(dict[str, int]):
    pass


class Listing(list[int]):
    pass


class HasId(Protocol):
    id: str


class Plain:
    pass


@pytest.mark.parametrize("hint", [Yes | No, list[Yes | No] | None, HoldsEither, dict[str, tuple[Yes | No, int]]])
def test_a_union_whose_members_look_alike_is_refused_at_set_up(once: Any, hint: Any) -> None:
    """One member would always be read as the other."""
    with pytest.raises(TypeError, match=r"returning.*Yes and No have the same JSON.*add a discriminator"):
        returning(once, hint, None)


@pytest.mark.parametrize(
    "hint", [Text, Mapping, Listing, HasId, Plain, bytearray, list[Text], dict[tuple[int, int], str], dict[Point, str]]
)
def test_a_type_that_cannot_be_read_back_is_refused_at_set_up(once: Any, hint: Any) -> None:
    with pytest.raises(TypeError, match=r"returning.*return type .* cannot be read back from JSON"):
        returning(once, hint, None)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="pydantic reads typing.TypedDict from Python 3.12 on")
def test_typings_typed_dict_is_refused_where_pydantic_does_not_read_it(once: Any) -> None:
    from typing import TypedDict as Old  # noqa: PLC0415

    class Amounts(Old):
        amount: int

    with pytest.raises(TypeError, match=r"typing_extensions\.TypedDict.* 3\.12\. Return data"):
        returning(once, Amounts, None)


def test_a_key_type_with_a_serializer_of_its_own_is_not_refused(once: Any) -> None:
    """Only a type that can never be right is."""
    pair = Annotated[
        tuple[int, int],
        BeforeValidator(lambda key: tuple(map(int, key.split(":"))) if isinstance(key, str) else key),
        PlainSerializer(lambda key: f"{key[0]}:{key[1]}"),
    ]

    class Sparse(BaseModel):
        cells: dict[pair, str]  # type: ignore[valid-type]  # mypy takes it for a variable

    call = returning(once, Sparse, Sparse(cells={(1, 2): "a"}))
    assert [call(ORDER), call(ORDER)] == [Sparse(cells={(1, 2): "a"})] * 2


def test_a_model_that_is_completed_later_is_read_from_then_on(once: Any) -> None:
    """Its forward reference cannot be resolved when the function is wrapped."""

    class Tree(BaseModel):
        leaf: Leaf  # defined below, as in a module

    call = returning(once, Tree, None)
    assert [call(ORDER), call(ORDER)] == [None, None]

    class Leaf(BaseModel):
        id: str

    Tree.model_rebuild(_types_namespace={"Leaf": Leaf})
    tree = Tree.model_validate({"leaf": {"id": "1"}})
    call = returning(once, Tree, tree)
    assert [call({"id": "2"}), call({"id": "2"})] == [tree, tree]


HINTS = ["", " -> dict", " -> list", " -> str", " -> int", " -> float", " -> bool", " -> None", " -> dict[str, Any]"]


@pytest.mark.slow
def test_pydantic_is_not_imported_for_results_that_are_json_values_anyway() -> None:
    """Neither at set-up nor for a call without a result: a cold start stays what it was."""
    functions = "\n".join(
        f"@idempotent(MemoryStore('n{place}'), key=lambda order: 'k', payload=None, lease_seconds=60)\n"
        f"def f{place}(order){hint}: return None\nf{place}(1); f{place}(1)"
        for place, hint in enumerate(HINTS)
    )
    code = (
        "import sys\nfrom typing import Any\nfrom idempotent_receiver import MemoryStore, idempotent\n"
        f"{functions}\nprint('pydantic' in sys.modules, 'pydantic_core' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "False False\n"


def test_a_result_that_looks_like_a_marker_comes_back(once: Any) -> None:
    call = returning(once, dict, {"idempotent-receiver": {"result": "dropped", "why": "mine"}})
    assert [call(ORDER)] * 2 == [call(ORDER)] * 2
    assert call(ORDER) == {"idempotent-receiver": {"result": "dropped", "why": "mine"}}


def test_a_store_keeps_each_functions_types_apart(once: Any) -> None:
    store = MemoryStore("shared")

    @idempotent(store.named("a"), key=by_order, lease_seconds=60)
    def one(order: dict[str, Any]) -> Receipt:
        return Receipt(id="1", amount=Decimal(1), at=NOW)

    @idempotent(store.named("b"), key=by_order, lease_seconds=60)
    def other(order: dict[str, Any]) -> Model:
        return Model(id="1")

    assert [type(each(ORDER)) for each in (one, other, one, other)] == [Receipt, Model, Receipt, Model]


# Random types and values.

LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, st.integers() | st.booleans()),
    (float, st.floats(allow_nan=False, allow_infinity=False) | st.integers()),
    (bool, st.booleans()),
    (str, st.text()),
    (type(None), st.none()),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    (bytes, st.text().map(str.encode) | st.binary(max_size=4)),
    (datetime, st.datetimes()),
    (date, st.dates()),
    (timedelta, st.timedeltas()),
    (UUID, st.uuids()),
    (Colour, st.sampled_from(Colour)),
    (Level, st.sampled_from(Level)),
    (Receipt, st.builds(Receipt, at=st.datetimes(), amount=st.decimals(allow_nan=False, allow_infinity=False))),
    (Crossed, st.builds(lambda one: Crossed.model_validate({"from_": one, "payer": one + "'"}), st.text())),
    (Line, st.builds(Line, st.text(), st.decimals(allow_nan=False, allow_infinity=False), st.just(frozenset()))),
    (Left, st.builds(Left, st.text())),
    (Right, st.builds(Right, st.text() | st.none())),
    (Base, st.builds(Base, st.text()) | st.builds(More, st.text(), st.text())),
    (Counted, st.builds(Counted, st.integers())),
]


@st.composite
def typed(draw: st.DrawFn, depth: int = 2) -> tuple[Any, Any]:
    """A type, and a value that a function with this annotation may return."""
    kind = draw(st.sampled_from(["leaf", "union", "list", "dict", "tuple"] if depth else ["leaf"]))
    if kind == "leaf":
        hint, values = draw(st.sampled_from(LEAVES))
        return hint, draw(values)
    one, other = draw(typed(depth - 1)), draw(typed(depth - 1))
    if kind == "union":
        return one[0] | other[0], draw(st.sampled_from([one[1], other[1]]))
    if kind == "list":
        return list[one[0]], [one[1]] * draw(st.integers(0, 2))  # type: ignore[valid-type]  # drawn
    if kind == "dict":
        return dict[str, one[0]], {draw(st.text(max_size=3)): one[1]}  # type: ignore[valid-type]  # drawn
    return tuple[one[0], other[0]], (one[1], other[1])  # type: ignore[valid-type]  # drawn


@given(typed())
def test_each_replay_is_the_first_result_or_an_error(drawn: tuple[Any, Any]) -> None:
    """Judged by how the two print, which shows types and values."""
    hint, result = drawn
    try:
        call = returning(partial(idempotent, MemoryStore("random"), key=by_order, lease_seconds=60), hint, result)
    except TypeError as error:
        assert "add a discriminator" in str(error)  # noqa: PT017  # refused at set-up, for this reason only
        return
    assert call(ORDER) is result
    with suppress(ResultUnavailable):
        assert repr(call(ORDER)) == repr(result)


class Shipped(TypedDict):
    id: str


class Returned(TypedDict):
    id: str


def test_two_typed_dicts_of_the_same_keys_are_one_dict(once: Any) -> None:
    """A value of either is a dict and comes back as it was."""
    call = returning(once, Shipped | Returned, {"id": "1"})
    assert [call(ORDER), call(ORDER)] == [{"id": "1"}] * 2
