"""What varies by itself is hidden, and nothing beside it."""

from __future__ import annotations

from typing import Any

import pytest

from idempotent_receiver.testing.varying import places, plain, without

DIFFERENT: list[tuple[Any, Any, set[str]]] = [
    ({"at": 1, "cents": 5}, {"at": 2, "cents": 5}, {"order.at"}),
    ({"by": {"at": 1, "who": "a"}}, {"by": {"at": 2, "who": "a"}}, {"order.by.at"}),
    ([{"at": 1}, {"at": 2}], [{"at": 1}, {"at": 3}], {"order[].at"}),
    ([1], [1, 2], {"order"}),
    ({"a": 1}, {"b": 1}, {"order"}),
    ({"a", "b"}, {"a", "c"}, {"order"}),
    (5, 5, set()),
]


@pytest.mark.parametrize(("here", "there", "found"), DIFFERENT)
def test_a_place_is_as_small_as_it_can_be(here: Any, there: Any, found: set[str]) -> None:
    assert places(here, there, "order") == found


@pytest.mark.parametrize(("here", "there", "found"), DIFFERENT[:3])
def test_without_their_places_two_values_are_equal_and_differ_in_what_else_does(
    here: Any, there: Any, found: set[str]
) -> None:
    assert without(here, found, "order") == without(there, found, "order")
    more = [*here, here[0]] if isinstance(here, list) else {**here, "cents": 6}
    assert without(more, found, "order") != without(there, found, "order")


@pytest.mark.parametrize("varying", [{"a": 1}, [1], {1}])
def test_the_size_of_what_varies_is_compared(varying: Any) -> None:
    """A journal whose keys are random has as many entries each time."""
    assert without(varying, {"journal"}, "journal") == "varies (1)"


def test_an_argument_is_found_by_its_parameter() -> None:
    """Also within what it is, as it was when it was given."""
    order: dict[str, Any] = {"lines": ({"at": 1},), "who": {"b", "a"}}
    given = plain({"order": order, "cents": 5})
    order.clear()

    assert given == {"order": {"lines": [{"at": "1"}], "who": ["'a'", "'b'"]}, "cents": "5"}
    other = plain({"order": {"lines": [{"at": 2}], "who": {"a", "b"}}, "cents": 5})
    assert places(given, other, "charge(") == {"charge(order.lines[].at"}
