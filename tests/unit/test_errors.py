"""What is kept of an error: type and place, a text only if its author chose it, and never anything of a body."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from idempotent_receiver import PermanentError, RetryLater
from idempotent_receiver.errors import (
    Failure,
    InProgress,
    InvalidBody,
    NotStarted,
    StoreUnavailable,
    failure_of,
    invalid_body,
    misuse,
)
from idempotent_receiver.handler.annotations import field_names
from idempotent_receiver.transaction.action import ConditionFailed

if TYPE_CHECKING:
    from collections.abc import Callable


class Overdrawn(PermanentError):
    """A user's own permanent error."""


def caught(error: Exception) -> Exception:
    with pytest.raises(type(error)) as raised:
        throw(error)
    return raised.value


def throw(error: Exception) -> None:
    raise error


def caught_of_a_task_group(error: Exception) -> Exception:
    async def run() -> None:
        async with asyncio.TaskGroup():
            throw(error)

    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(run())
    return raised.value


def test_of_an_ordinary_error_type_and_place_are_kept_and_no_text() -> None:
    """The texts of libraries quote their input."""
    failure = failure_of(caught(ValueError("card 4111")))
    assert failure == Failure(type="ValueError", at=failure.at)
    assert str(failure.at).startswith(f"{__name__}.throw:")
    assert "4111" not in failure.to_json() + failure.reason


def test_a_permanent_errors_text_was_chosen_to_be_read() -> None:
    """That of a subclass too."""
    failure = failure_of(caught(Overdrawn("account closed")))
    assert failure.reason == "account closed"
    told = {"type": "Overdrawn", "at": failure.at, "text": "account closed", "permanent": True}
    assert json.loads(failure.to_json()) == told


def test_texts_are_kept_if_the_user_enables_them() -> None:
    """For errors of every kind."""
    assert failure_of(caught(ValueError("x")), with_text=True).text == "x"


@pytest.mark.parametrize(
    ("errors", "type", "permanent", "delay_seconds"),
    [
        ([ValueError("4111"), KeyError("4111")], "ValueError", False, None),
        ([ValueError("4111"), Overdrawn("closed")], "Overdrawn", True, None),
        ([RetryLater(seconds=9), ExceptionGroup("", [PermanentError("no")])], "PermanentError", True, None),
        ([RetryLater(seconds=9), ValueError("4111")], "ValueError", False, None),
        ([RetryLater(seconds=9), RetryLater(seconds=60)], "RetryLater", False, 60),
    ],
)
def test_of_several_errors_the_one_is_kept_that_tells_whether_a_retry_can_help(
    errors: list[Exception], type: str, permanent: bool, delay_seconds: int | None
) -> None:
    """An `asyncio.TaskGroup` raises a group of them. A retry cannot help what one has given up; to wait is enough only
    if all of them wait.
    """
    failure = failure_of(caught_of_a_task_group(ExceptionGroup("4111", errors)))
    assert (failure.type, failure.permanent, failure.delay_seconds) == (type, permanent, delay_seconds)
    assert "4111" not in failure.reason


def test_of_an_error_in_a_task_group_its_own_place_is_kept() -> None:
    failure = failure_of(caught_of_a_task_group(ValueError("4111")))
    assert str(failure.at).startswith(f"{__name__}.throw:")


def test_the_text_of_a_wrong_use_of_this_library_is_kept() -> None:
    """It says what to change, and holds no value; what of it may be data is left out unless the user enables texts."""
    error = caught(misuse(ValueError("Item.limits.4111 is a float"), shown="Item.limits.* is a float"))
    texts = [failure_of(error, with_text=with_text).text for with_text in (False, True)]
    assert texts == ["Item.limits.* is a float", "Item.limits.4111 is a float"]


@pytest.mark.parametrize("kept", [PermanentError, lambda text: misuse(TypeError(text))])
def test_a_text_is_cut_to_what_a_small_record_can_hold(kept: Callable[[str], Exception]) -> None:
    """And no character of it can keep the record from being written."""
    assert failure_of(kept("x" * 10_000)).text == "x" * 500
    assert failure_of(kept("a\ud800b")).text == "a?b"


def test_a_traceback_is_kept_for_the_log_where_texts_are_and_never_stored() -> None:
    """It holds the texts of the error and of what caused it. Its end is what counts."""
    try:
        throw(ValueError("card 4111"))
    except ValueError as cause:
        with pytest.raises(KeyError) as raised:
            raise KeyError("x" * 100_000) from cause
    assert failure_of(raised.value).traceback is None

    whole, long = (failure_of(each, with_text=True) for each in (caught(ValueError("card 4111")), raised.value))
    assert str(whole.traceback).startswith("Traceback (most recent call last):")
    assert str(whole.traceback).endswith(", in throw\n    raise error\nValueError: card 4111\n")
    assert set(json.loads(whole.to_json())) == {"type", "at", "text"}
    assert len(long.traceback or "") == 10_000
    assert str(long.traceback).endswith("xxx'\n")


def test_a_body_that_is_refused_leaves_no_traceback() -> None:
    """Its validation error quotes the body."""
    assert failure_of(caught(InvalidBody("the body is not an Order")), with_text=True).traceback is None


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
def test_an_error_that_refuses_every_question_does_not_lose_the_failure(error: type[BaseException]) -> None:
    """Whether its text may be kept is not for itself to say."""

    class Hostile(ValueError):
        def __getattr__(self, name: str) -> object:
            raise error

    assert failure_of(Hostile("card 4111")).reason == Hostile.__qualname__
    assert failure_of(caught(Hostile("card 4111")), with_text=True).text == "card 4111"


class Uncut(str):
    __slots__ = ()

    def __getitem__(self, part: object) -> str:
        raise SystemExit


@pytest.mark.parametrize("told", [RuntimeError(), SystemExit(), KeyboardInterrupt(), GeneratorExit(), Uncut("x")])
def test_a_text_that_cannot_be_formatted_or_cut_does_not_lose_the_failure(told: BaseException | str) -> None:
    """The error's own `__str__` may raise anything."""

    class Unspeakable(PermanentError):
        def __str__(self) -> str:
            if isinstance(told, BaseException):
                raise told
            return told

    assert "could not be read" in failure_of(Unspeakable()).reason


def test_an_error_that_was_never_raised_has_no_place_and_still_a_reason() -> None:
    """Like the one that a transaction's action names. A person must have something to read."""
    assert failure_of(RuntimeError("x")) == Failure(type="RuntimeError")
    assert Failure(type="Odd").reason == "Odd"
    assert Failure(type="Odd", at="m.f:1").reason == "Odd at m.f:1"


@pytest.mark.parametrize("error", [InvalidBody("x"), PermanentError("x"), OSError()])
def test_only_an_invalid_body_means_that_the_handler_had_not_started(error: Exception) -> None:
    """It is raised while the handler's arguments are prepared."""
    assert failure_of(error).started is not isinstance(error, InvalidBody)


class Inner(BaseModel):
    number: int


class Outer(BaseModel, extra="forbid"):
    inner: Inner
    items: list[int]


def refused(body: str, shape: object = Outer) -> str:
    adapter: TypeAdapter[object] = TypeAdapter(shape)
    with pytest.raises(ValidationError) as refusal:
        adapter.validate_json(body)
    return str(invalid_body(refusal.value, field_names(adapter)))


@pytest.mark.parametrize(
    ("body", "shape", "told"),
    [
        ('{"inner":{"number":"a1"},"items":[1,"x"]}', Outer, "Outer: inner.number: int_parsing; items.1: int_parsing"),
        # An extra field and a mapping's key are input like any other.
        ('{"inner":{"number":1},"items":[],"secret":1}', Outer, "Outer: *: extra_forbidden"),
        ('{"secret":"x"}', dict[str, int], "dict[str,int]: *: int_parsing"),
        # The location is the body itself.
        ("{", Outer, "Outer: body: json_invalid"),
    ],
)
def test_of_a_validation_error_locations_and_types_are_kept_and_never_input(body: str, shape: Any, told: str) -> None:
    """Enough to repair the body, without leaking it."""
    assert refused(body, shape) == f"the body is not a {told}"


def test_of_many_problems_ten_are_listed() -> None:
    """The record should stay within 1 KB."""
    text = refused("[" + ",".join(['"x"'] * 50) + "]", list[int])
    assert text.count("int_parsing") == 10
    assert text.endswith("and 40 more")


@pytest.mark.parametrize(
    ("error", "charged"),
    [
        (ValueError("x"), True),
        (PermanentError("x"), True),
        (SystemExit(1), True),
        (asyncio.CancelledError(), True),
        (ConditionFailed("x"), True),
        (InvalidBody("x"), False),
        (RetryLater(seconds=1), False),
        (InProgress("k", 5), False),
        (NotStarted("k", "late"), False),
        (StoreUnavailable("k", "down", ran=True), False),
        (ExceptionGroup("two", [RetryLater(seconds=1), ValueError("x")]), True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_message_pays_for_what_its_handler_raises_unless_others_are_the_cause(
    error: BaseException, charged: bool
) -> None:
    assert failure_of(error).charged is charged
