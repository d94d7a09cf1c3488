"""What is kept of an error: type and place, a text only if its author chose it, and never anything of a body."""

from __future__ import annotations

import asyncio
import json

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from idempotent_receiver import PermanentError, RetryLater
from idempotent_receiver.errors import Failure, InvalidBody, failure_of, invalid_body, misuse
from idempotent_receiver.handler.annotations import field_names


class Overdrawn(PermanentError):
    """A user's own permanent error."""


def caught(error: Exception) -> Exception:
    with pytest.raises(type(error)) as raised:
        throw(error)
    return raised.value


def throw(error: Exception) -> None:
    raise error


def test_of_an_ordinary_error_type_and_place_are_kept_and_no_text() -> None:
    """The texts of libraries quote their input."""
    failure = failure_of(caught(ValueError("card 4111")))

    assert failure.type == "ValueError"
    assert failure.at is not None
    assert failure.at.startswith(f"{__name__}.throw:")
    assert failure.text is None
    assert not failure.permanent
    assert "4111" not in failure.to_json() + failure.reason


def test_a_permanent_errors_text_was_chosen_to_be_read() -> None:
    """That of a subclass too."""
    failure = failure_of(caught(Overdrawn("account closed")))

    assert (failure.type, failure.reason, failure.permanent) == ("Overdrawn", "account closed", True)
    assert json.loads(failure.to_json()) == {
        "type": "Overdrawn",
        "at": failure.at,
        "text": "account closed",
        "permanent": True,
    }


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

    async def run() -> None:
        async with asyncio.TaskGroup():
            raise ExceptionGroup("4111", errors)

    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(run())
    failure = failure_of(raised.value)

    assert (failure.type, failure.permanent, failure.delay_seconds) == (type, permanent, delay_seconds)
    assert "4111" not in failure.reason


def test_of_an_error_in_a_task_group_its_own_place_is_kept() -> None:
    async def fail() -> None:
        throw(ValueError("4111"))

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())

    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(run())

    assert str(failure_of(raised.value).at).startswith(f"{__name__}.throw:")


def misusing() -> None:
    raise misuse(ValueError("Item.limits.4111 is a float"), shown="Item.limits.* is a float")


def test_the_text_of_a_wrong_use_of_this_library_is_kept() -> None:
    """It says what to change, and holds no value; what of it may be data is left out unless the user enables texts."""
    with pytest.raises(ValueError, match="4111") as raised:
        misusing()

    assert failure_of(raised.value).text == "Item.limits.* is a float"
    assert failure_of(raised.value, with_text=True).text == "Item.limits.4111 is a float"
    assert failure_of(misuse(TypeError("x" * 10_000))).text == "x" * 500
    assert failure_of(misuse(TypeError("a\ud800b"))).text == "a?b"


def test_a_traceback_is_kept_for_the_log_where_texts_are_and_never_stored() -> None:
    """It holds the texts of the error and of what caused it. Its end is what counts."""
    try:
        throw(ValueError("card 4111"))
    except ValueError as cause:
        with pytest.raises(KeyError) as raised:
            raise KeyError("x" * 100_000) from cause
    assert failure_of(raised.value).traceback is None

    whole = failure_of(caught(ValueError("card 4111")), with_text=True)
    assert whole.traceback is not None
    assert whole.traceback.startswith("Traceback (most recent call last):")
    assert whole.traceback.endswith(", in throw\n    raise error\nValueError: card 4111\n")
    assert set(json.loads(whole.to_json())) == {"type", "at", "text"}
    long = failure_of(raised.value, with_text=True)
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


def test_a_text_is_cut_to_what_a_small_record_can_hold() -> None:
    """And no character of it can keep the record from being written."""
    assert len(failure_of(PermanentError("x" * 10_000)).text or "") == 500
    assert failure_of(PermanentError("a\ud800b")).text == "a?b"


@pytest.mark.parametrize("error", [RuntimeError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_text_that_cannot_be_formatted_does_not_lose_the_failure(error: type[BaseException]) -> None:
    """The error's own `__str__` may raise anything."""

    class Unspeakable(PermanentError):
        def __str__(self) -> str:
            raise error

    assert "could not be read" in failure_of(Unspeakable()).reason


def test_a_text_that_cannot_be_cut_does_not_lose_the_failure() -> None:
    class Uncut(str):
        __slots__ = ()

        def __getitem__(self, part: object) -> str:
            raise SystemExit

    class Unspeakable(PermanentError):
        def __str__(self) -> str:
            return Uncut("x")

    assert "could not be read" in failure_of(Unspeakable()).reason


def test_an_error_that_was_never_raised_has_no_place() -> None:
    """Like the one that a transaction's action names."""
    failure = failure_of(RuntimeError("x"))

    assert failure.at is None
    assert failure.reason == "RuntimeError"


@pytest.mark.parametrize(
    ("error", "started"), [(InvalidBody("x"), False), (PermanentError("x"), True), (OSError(), True)]
)
def test_only_an_invalid_body_means_that_the_handler_had_not_started(error: Exception, started: bool) -> None:
    """It is raised while the handler's arguments are prepared."""
    assert failure_of(error).started is started


class Inner(BaseModel):
    number: int


class Outer(BaseModel, extra="forbid"):
    inner: Inner
    items: list[int]


def refused(body: str, shape: object = Outer) -> InvalidBody:
    adapter: TypeAdapter[object] = TypeAdapter(shape)
    with pytest.raises(ValidationError) as refusal:
        adapter.validate_json(body)
    return invalid_body(refusal.value, field_names(adapter))


def test_of_a_validation_error_locations_and_types_are_kept_and_never_input() -> None:
    """Enough to repair the body, without leaking it."""
    text = str(refused('{"inner":{"number":"secret"},"items":[1,"secret"]}'))

    assert "inner.number: int_parsing" in text
    assert "items.1: int_parsing" in text
    assert "Outer" in text
    assert "secret" not in text


def test_names_that_the_sender_wrote_are_not_shown() -> None:
    """An extra field and a mapping's key are input like any other."""
    assert "secret" not in str(refused('{"inner":{"number":1},"items":[],"secret":1}'))
    assert str(refused('{"secret":"x"}', dict[str, int])).endswith("*: int_parsing")


def test_a_body_that_is_no_json_says_so() -> None:
    """Its location is the body itself."""
    assert "body: json_invalid" in str(refused("{"))


def test_of_many_problems_ten_are_listed() -> None:
    """The record should stay within 1 KB."""
    text = str(refused("[" + ",".join(['"x"'] * 50) + "]", list[int]))

    assert text.count("int_parsing") == 10
    assert text.endswith("and 40 more")


def test_a_failure_without_text_or_place_still_has_a_reason() -> None:
    """A person must have something to read."""
    assert Failure(type="Odd").reason == "Odd"
    assert Failure(type="Odd", at="m.f:1").reason == "Odd at m.f:1"
