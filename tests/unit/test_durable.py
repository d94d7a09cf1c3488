"""Lambda durable functions: what cannot be wrapped is refused with the remedy, and a step works.

Their SDK suspends a function by an exception that derives from BaseException, and runs it again from its start. These
stand-ins have the names and modules of its classes, version 3.0; a run with the SDK itself behaved like them.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Annotated, Any, Protocol

import pytest

from idempotent_receiver import MemoryStore, http_endpoint, idempotent, sqs_consumer
from idempotent_receiver.durable import is_durable_context
from idempotent_receiver.testing import lambda_context
from tests.unit.http.api import request

pytestmark = pytest.mark.quick

SDK = "aws_durable_execution_sdk_python"


class Suspended(BaseException):
    """What the SDK raises where a durable function waits."""


class DurableContextProtocol(Protocol):
    """`types.DurableContext`."""

    def step(self, func: Callable[[object], Any]) -> Any: ...


DurableContextProtocol.__name__, DurableContextProtocol.__module__ = "DurableContext", f"{SDK}.types"


class DurableContext(DurableContextProtocol):
    """`context.DurableContext`: it runs a step once, and remembers its result."""

    def __init__(self, steps: list[Any]) -> None:
        self.lambda_context = lambda_context()
        self._steps, self._place = steps, 0

    def step(self, func: Callable[[object], Any]) -> Any:
        self._place += 1
        if len(self._steps) < self._place:
            self._steps.append(func(object()))
        return self._steps[self._place - 1]

    def wait(self) -> None:
        self.step(self._suspend)

    def _suspend(self, step_context: object) -> None:
        self._steps.append(None)
        raise Suspended


DurableContext.__module__ = f"{SDK}.context"


class Child(DurableContext):
    """A user's own."""


def durable_execution(function: Callable[..., Any]) -> Callable[..., Any]:
    """As the SDK's: it is defined in its module, and looks like the function that it wraps."""
    module = ModuleType(f"{SDK}.execution")
    vars(module).update(functools=functools, DurableContext=DurableContext, Suspended=Suspended)
    exec(  # a function's globals are those of the module that defines it
        """
def durable_execution(func):
    steps = []
    @functools.wraps(func)
    def wrapper(event, context):
        try:
            return {"Status": "SUCCEEDED", "Result": func(event, DurableContext(steps))}
        except Suspended:
            return {"Status": "PENDING"}
    return wrapper
""",
        vars(module),
    )
    wrapped: Callable[..., Any] = module.durable_execution(function)
    return wrapped


def settled(run: Callable[..., Any]) -> Any:
    """What a durable function returns in the end. Lambda runs it again until it does."""
    for _ in range(5):
        answer = run({"id": "7"}, lambda_context())
        if answer["Status"] != "PENDING":
            return answer["Result"]
    raise AssertionError("it never ends")


REMEDY = r"inside a step, context\.step\(lambda _: charge\(order\)\)"


def plain(event: Any, context: Any) -> str:
    raise AssertionError("never run")


def annotated(event: Any, context: DurableContext) -> str:
    raise AssertionError("never run")


def with_the_protocol(event: Any, context: DurableContextProtocol) -> str:
    raise AssertionError("never run")


def optional(event: Any, context: Annotated[DurableContext | None, "a note"] = None) -> str:
    raise AssertionError("never run")


def with_a_child(event: Any, *, context: Child) -> str:
    raise AssertionError("never run")


ANNOTATED = [annotated, with_the_protocol, optional, with_a_child]
WAYS_IN: dict[str, Callable[[], Callable[..., Any]]] = {
    "idempotent": lambda: idempotent(MemoryStore("calls"), key=lambda *_, **__: "1", lease_seconds=60),
    "http_endpoint": lambda: http_endpoint(MemoryStore("requests")),
    "sqs_consumer": lambda: sqs_consumer(MemoryStore("messages")),
}


@pytest.mark.parametrize("function", ANNOTATED, ids=lambda function: function.__name__)
@pytest.mark.parametrize("way_in", [WAYS_IN["idempotent"], WAYS_IN["http_endpoint"]], ids=["idempotent", "http"])
def test_a_function_that_takes_a_durable_context_is_refused_at_set_up(
    way_in: Callable[[], Any], function: Callable[..., Any]
) -> None:
    """Its suspension would be recorded as a failure, and each resumption, or a duplicate, would charge again."""
    with pytest.raises(TypeError, match=rf"^{function.__name__}: .*durable function.*{REMEDY}"):
        way_in()(function)


@pytest.mark.parametrize("way_in", WAYS_IN.values(), ids=WAYS_IN)
@pytest.mark.parametrize("function", [plain, annotated])
def test_a_durable_function_itself_is_refused_at_set_up(way_in: Callable[[], Any], function: Any) -> None:
    """Its first answer, that it is suspended, would be the result for ever, and its execution would never end."""
    with pytest.raises(TypeError, match=rf"^{function.__name__}: .*durable function.*{REMEDY}"):
        way_in()(durable_execution(function))


@pytest.mark.parametrize("context", [DurableContext([]), Child([])])
@pytest.mark.parametrize("named", [True, False])
def test_a_durable_context_is_refused_at_the_call(context: DurableContext, named: bool) -> None:
    store = MemoryStore("calls")

    def pay(event: Any, context: Any) -> str:
        return "paid"

    for options in ({"payload": None, "lease_seconds": 60}, {"lease_seconds": 60}, {}):
        call = idempotent(store, key=lambda *_, **__: "1", **options)(pay)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=rf"pay: .*durable function.*{REMEDY}"):
            call({}, context=context) if named else call({}, context)
    assert store.items == {}


@pytest.mark.parametrize("way_in", ["http_endpoint", "sqs_consumer"])
def test_a_handler_that_gets_a_durable_context_is_refused_at_the_call(way_in: str) -> None:
    """Its message about a test's context would lead to one that hides the durable one."""

    def take(body: dict) -> None:
        raise AssertionError("never run")

    handler = WAYS_IN[way_in]()(plain if way_in == "http_endpoint" else take)
    event = request() if way_in == "http_endpoint" else {"Records": []}
    with pytest.raises(TypeError, match=rf"durable function.*{REMEDY}"):
        handler(event, DurableContext([]))


def test_a_context_of_another_name_or_module_is_none_of_these() -> None:
    class DurableContext:  # of this module
        pass

    class Context(dict[str, Any]):
        pass

    Context.__module__ = f"{SDK}.context"
    call = idempotent(MemoryStore("calls"), key=lambda *_: "1", payload=None, lease_seconds=60)
    assert not any(map(is_durable_context, (DurableContext(), Context())))
    assert call(lambda one, other: "ran")(DurableContext(), Context()) == "ran"
    assert SDK not in sys.modules, "it is recognised without being imported"


@pytest.mark.parametrize("by", ["lease_seconds", "lambda_context"])
def test_inside_a_step_a_call_takes_effect_once(by: str) -> None:
    """However often the durable function is resumed, and for a second execution of the same order."""
    charged: list[Any] = []

    def charge(order: dict[str, Any], context: Any = None) -> str:
        charged.append(order)
        return f"receipt {len(charged)}"

    lease = 60 if by == "lease_seconds" else None
    once = idempotent(MemoryStore("charges"), key=lambda order, *_: order["id"], lease_seconds=lease)(charge)

    def pay(event: Any, context: DurableContext) -> str:
        args = (event,) if by == "lease_seconds" else (event, context.lambda_context)
        receipt: str = context.step(lambda _: once(*args))
        context.wait()
        return receipt

    assert [settled(durable_execution(pay)) for _ in range(2)] == ["receipt 1", "receipt 1"]
    assert charged == [{"id": "7"}]


def test_without_a_time_limit_it_is_lambdas_context_that_is_asked_for() -> None:
    """In a step, too, where the only context at hand is the durable one."""
    call = idempotent(MemoryStore("calls"), key=lambda *_: "1")(plain)
    told = r"Pass lease_seconds to .* Lambda's context .* in a durable function's step is its context\.lambda_context$"
    with pytest.raises(TypeError, match=told):
        call({}, None)
