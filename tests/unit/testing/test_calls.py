"""Fakes: they take what the real function takes, and tell which key they were given."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from idempotent_receiver import MemoryStore, Message, sqs_consumer
from idempotent_receiver.testing import Calls, lambda_context, sqs_event


def charge(cents: int, *, idempotency_key: str, note: str = "") -> str:
    """The real one."""
    raise AssertionError("nobody calls it")


async def charge_soon(cents: int, headers: dict[str, str]) -> str:
    """A real one that is awaited."""
    raise AssertionError("nobody calls it")


def test_a_fake_records_its_calls_and_their_keys() -> None:
    calls = Calls()
    fake = calls.fake(charge, key="idempotency_key", returns="paid")

    assert fake(5, idempotency_key="k-1") == "paid"
    assert fake(7, idempotency_key="k-2", note="n") == "paid"
    assert [(call.name, call.args, call.key, call.message) for call in calls.made] == [
        ("charge", (5,), "k-1", None),
        ("charge", (7,), "k-2", None),
    ]
    assert str(calls.made[1]) == "charge(7, idempotency_key='k-2', note='n')"


def test_a_fake_takes_no_call_that_the_real_function_would_not() -> None:
    """So that a fake does not outlive a change of what it stands for."""
    fake = Calls().fake(charge, key="idempotency_key")
    with pytest.raises(TypeError, match="idempotency_key"):
        fake(5)


def test_a_key_is_found_where_it_is() -> None:
    """By position, by name, by a callable, or nowhere."""
    calls = Calls()
    by_place = calls.fake(lambda key, cents: None, key="key")
    by_callable = calls.fake("charge", key=lambda *args, headers: headers["Idempotency-Key"])
    by_name = calls.fake("charge", key="key")

    by_place("k-1", 5)
    by_callable(5, headers={"Idempotency-Key": "k-2"})
    by_name(5, key="k-3")
    by_name(5)
    assert [call.key for call in calls.made] == ["k-1", "k-2", "k-3", None]


def test_a_fake_of_a_coroutine_function_is_awaited() -> None:
    """And may return what a coroutine function makes."""
    calls = Calls()

    async def answer(cents: int, headers: dict[str, str]) -> str:
        return f"paid {cents}"

    fake = calls.fake(charge_soon, key=lambda cents, headers: headers["key"], returns=answer)
    assert asyncio.iscoroutinefunction(fake)
    assert asyncio.run(fake(5, {"key": "k-1"})) == "paid 5"
    assert [call.key for call in calls.made] == ["k-1"]


def test_an_empty_key_is_none() -> None:
    """No service knows a call again by it."""
    calls = Calls()
    calls.fake("charge", key="key")(5, key="")
    assert [call.key for call in calls.made] == [None]


def test_what_a_caller_does_to_an_answer_changes_no_other() -> None:
    """Or one schedule would begin with what another one has left."""
    fake = Calls().fake("lines", returns={"lines": []})
    fake()["lines"].append("goods")
    assert fake() == {"lines": []}


class Payments:
    """A client as people write it."""

    @staticmethod
    def charge(cents: int, key: str, note: str = "") -> None:
        """Asks the service."""

    @classmethod
    def refund(cls, cents: int, key: str, note: str = "") -> None:
        """Asks the service."""

    def book(self, cents: int, key: str, note: str = "") -> None:
        """Asks the service."""


@pytest.mark.parametrize("name", ["charge", "refund", "book"])
def test_a_method_is_replaced_as_what_it_is(name: str, calls: Calls) -> None:
    """A static one gets no instance, nor does a class's get its class."""
    calls.replace(Payments, name, key="key")
    getattr(Payments(), name)(5, "k-1")
    assert [call.key for call in calls.made] == ["k-1"]
    assert ("self" in calls.made[0].given) == (name == "book")


@pytest.mark.parametrize("key", ["idempotencykey", 5])
def test_a_key_that_the_real_function_has_no_parameter_for_is_refused(key: Any) -> None:
    with pytest.raises(TypeError, match="key"):
        Calls().fake(charge, key=key)


@pytest.mark.parametrize("given", ["declined", int, UnicodeDecodeError])
@pytest.mark.parametrize("option", ["raises", "refuses"])
def test_what_is_no_error_cannot_be_raised(option: str, given: Any) -> None:
    """Nor can a class that needs arguments."""
    with pytest.raises(TypeError, match=f"{option} must be an error, such as {option}=TimeoutError"):
        Calls().fake(charge, **{option: given})


def test_a_call_says_for_which_message_it_was_made(calls: Calls) -> None:
    payments = SimpleNamespace(charge=charge)
    calls.replace(payments, "charge", key="idempotency_key")

    @sqs_consumer(MemoryStore())
    def handle(order: dict, message: Message) -> None:
        payments.charge(order["cents"], idempotency_key=message.idempotency_key)

    handle(sqs_event({"cents": 5}, ids=["m-1"]), lambda_context())
    (call,) = calls.made
    assert (call.message, call.args) == ("m-1", (5,))
    assert call.key


def test_without_pytest_nothing_is_replaced() -> None:
    with pytest.raises(TypeError, match="the `calls` fixture"):
        Calls().replace(SimpleNamespace(charge=charge), "charge")
