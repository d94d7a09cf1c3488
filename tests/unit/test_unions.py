"""Members of a union that no JSON can tell apart, found in its schema."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple

import pytest
from pydantic import BaseModel, Field, TypeAdapter

from idempotent_receiver.unions import indistinguishable


@dataclass
class Approved:
    """An answer."""

    at: int
    by: str


@dataclass
class Declined:
    """The other answer, with its fields in another order."""

    by: str
    at: int


class Yes(BaseModel):
    """A field is named like a keyword of a schema."""

    title: str
    description: str = "yes"


class No(BaseModel):
    title: str
    description: str = "no"


class Titled(BaseModel):
    title: str


class Numbered(BaseModel):
    title: int


class Untitled(BaseModel):
    described: str


class Branch(BaseModel):
    """A model that contains itself."""

    next: list[Branch]


class Twig(BaseModel):
    next: list[Twig]


class Leaf(BaseModel):
    next: list[Yes]


class Holder(BaseModel):
    """A union among its fields."""

    anyOf: int  # noqa: N815  # a field's name is no keyword
    answers: dict[str, list[Yes | No | None]]


class Debit(BaseModel):
    kind: Literal["debit"]
    at: int


class Credit(BaseModel):
    kind: Literal["credit"]
    at: int


class Card(Enum):
    VISA = "a"
    AMEX = "b"


class Bank(Enum):
    N26 = "b"
    ING = "a"


class Here(NamedTuple):
    x: int


class There(NamedTuple):
    x: int


class OfDebits(BaseModel):
    each: Annotated[Debit | Credit, Field(discriminator="kind")]


class AlsoDebit(BaseModel):
    kind: Literal["debit"]
    at: int


class OfAlso(BaseModel):
    each: Annotated[AlsoDebit | Credit, Field(discriminator="kind")]


ALIKE = [
    (Yes | No, ("Yes", "No")),
    (Yes | None | No, ("Yes", "No")),
    (list[Yes | No], ("Yes", "No")),
    (list[Yes] | list[No], ("Yes", "No")),
    (tuple[Titled, Yes] | tuple[Titled, No], ("Yes", "No")),
    (dict[str, Holder], ("Yes", "No")),
    (Branch | Twig, ("Branch", "Twig")),
    (Card | Bank, ("Card", "Bank")),
    (Here | There, ("Here", "There")),
    (OfDebits | OfAlso, ("OfDebits", "OfAlso")),
]


@pytest.mark.parametrize("mode", ["validation", "serialization"])
@pytest.mark.parametrize(("hint", "names"), ALIKE)
def test_two_classes_of_one_schema_are_found_wherever_the_union_is(hint: Any, names: Any, mode: Any) -> None:
    assert indistinguishable(TypeAdapter(hint).json_schema(mode=mode, by_alias=False)) == names


def test_the_order_of_fields_makes_no_difference() -> None:
    schema = TypeAdapter(Approved | Declined).json_schema(mode="serialization")
    assert indistinguishable(schema) == ("Approved", "Declined")


APART = [
    Titled | Numbered,  # a field called title is no title
    Titled | Untitled,
    Debit | Credit,
    Annotated[Debit | Credit, Field(discriminator="kind")],
    Branch | Leaf,
    Yes | None,
    Yes | dict,
    list[Yes] | Yes,
    Here | tuple[int, int],
    int | str | None,
    Annotated[str, Field(title="A")] | Annotated[str, Field(title="B")],  # the same value either way
    Any,
]


@pytest.mark.parametrize("hint", APART)
def test_members_of_different_schemas_are_left_alone(hint: Any) -> None:
    assert indistinguishable(TypeAdapter(hint).json_schema(mode="serialization", by_alias=False)) is None


def test_what_looks_like_a_union_in_a_plain_value_is_none() -> None:
    member = {"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}
    schema = {
        "$defs": {"A": {"type": "string"}, "B": {"type": "string"}},
        "default": {"anyOf": member},
        "const": {"anyOf": member},
    }
    assert indistinguishable(schema) is None
