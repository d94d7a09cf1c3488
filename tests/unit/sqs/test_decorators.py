"""What stands above a consumer: a consumer is a function of (event, context), as decorators for Lambda expect."""

from __future__ import annotations

import functools
import inspect
import itertools
import typing
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from aws_lambda_powertools import Logger, Metrics, Tracer
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.middleware_factory import lambda_handler_decorator
from aws_lambda_powertools.utilities.data_classes import SQSEvent, event_source
from aws_lambda_powertools.utilities.parser import event_parser
from aws_lambda_powertools.utilities.parser.models import SqsModel
from aws_lambda_powertools.utilities.validation import SchemaValidationError, validator

from idempotent_receiver import InvalidEvent, MemoryStore, PermanentError, body_field, sqs_consumer
from idempotent_receiver.sqs.consumer import Consumer
from idempotent_receiver.sqs.handlers import consumer_inside, names_in
from idempotent_receiver.testing import lambda_context, sqs_event
from idempotent_receiver.testing.worker import SILENT

SCHEMA = {"required": ["Records"]}
"""Without "type": "object", which Powertools' validator denies of what Powertools' event_source makes."""


@lambda_handler_decorator
def own(handler: Any, event: Any, context: Any) -> Any:
    """A middleware, as users write them."""
    return handler(event, context)


@pytest.fixture
def decorators(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    for name, value in {"TRACE_DISABLED": "1", "SERVICE_NAME": "orders", "METRICS_NAMESPACE": "Orders"}.items():
        monkeypatch.setenv(f"POWERTOOLS_{name}", value)
    return {
        "event_source": event_source(data_class=SQSEvent),
        "event_parser": event_parser,
        "validator": validator(inbound_schema=SCHEMA),
        "inject_lambda_context": Logger().inject_lambda_context(clear_state=True, log_event=False),
        "log_metrics": Metrics().log_metrics(raise_on_empty_metrics=True),
        "capture_lambda_handler": Tracer().capture_lambda_handler,
    }


def take(order: dict) -> None:
    """Takes an order."""


def count(order: dict) -> None:
    """Counts an order in the function's metrics, unless it refuses it."""
    if order.get("fails"):
        raise PermanentError("refused")
    Metrics().add_metric(name="Orders", unit=MetricUnit.Count, value=1)


def test_a_consumer_works_below_what_decorates_lambda_handlers_in_every_order(decorators: dict[str, Any]) -> None:
    """All of Powertools', with one of one's own among them: each sees the one below it, the consumer the lowest."""
    function = sqs_consumer(MemoryStore(), logger=SILENT, metrics=SILENT)(count)
    for number, order in enumerate(itertools.permutations(decorators)):
        names = [*order]
        names.insert(number % (len(order) + 1), "own")
        handler: Any = function
        for name in reversed(names):
            handler = own(handler) if name == "own" else decorators[name](handler)
        ids = [f"{number}-taken", f"{number}-refused"]
        answer = handler(sqs_event({}, {"fails": True}, ids=ids), lambda_context())

        assert answer == {"batchItemFailures": [{"itemIdentifier": ids[1]}]}, names
        assert consumer_inside(handler) is consumer_inside(function), names
    assert number == 719


def test_a_decorators_refusal_reaches_lambda(decorators: dict[str, Any]) -> None:
    """So that the whole batch is delivered again."""
    handler = decorators["validator"](sqs_consumer(MemoryStore())(take))
    with pytest.raises(SchemaValidationError):
        handler({"records": []}, lambda_context())


def test_an_event_that_a_decorator_has_made_a_model_is_refused_by_its_type() -> None:
    """A model keeps no field that it does not declare, and changes the others' types."""
    handler, event = event_parser(model=SqsModel)(sqs_consumer(MemoryStore())(take)), sqs_event({})
    event["Records"][0]["md5OfBody"] = event["Records"][0]["attributes"]["SenderId"] = "needed by SqsModel"
    with pytest.raises(InvalidEvent, match=r"type SqsModel.*does each decorator above sqs_consumer pass a mapping on"):
        handler(event, lambda_context())


def test_a_consumer_is_a_function_of_event_and_context() -> None:
    """Whatever its own function takes, for all who ask: a decorator, too, which copies its attributes."""
    consumer: Any = sqs_consumer(MemoryStore())(take)
    assert inspect.isfunction(consumer)
    assert (consumer.__name__, consumer.__doc__, consumer.__module__) == ("take", "Takes an order.", __name__)
    assert consumer.__wrapped__ is take
    for one in (consumer, own(consumer)):
        assert list(inspect.signature(one).parameters) == ["event", "context"]
        hints = typing.get_type_hints(one)
        assert hints == {"event": Any, "context": Any, "return": dict[str, list[dict[str, str]]]}
        assert next(iter(hints)) == "event"  # where event_parser looks for its model
        assert one.options.store is consumer.options.store


def test_a_copy_with_other_options_is_a_function_too() -> None:
    """With a decorator above it, a copy of the consumer alone."""
    consumer, other = sqs_consumer(MemoryStore("orders"), key=body_field("id"))(take), MemoryStore("orders")
    copy = own(consumer).with_options(replace(consumer.options, store=other))
    assert inspect.isfunction(copy)
    assert own(copy)(sqs_event({"id": "o-1"}), lambda_context()) == {"batchItemFailures": []}
    assert list(other.items) == ["orders#o-1"]
    assert consumer_inside(copy) is not consumer_inside(consumer)
    assert copy.__wrapped__ is take


def test_attributes_that_functools_wraps_copies_name_no_consumer() -> None:
    """Only the function that the consumer names as its own is one: another with its attributes does something else."""
    consumer: Any = sqs_consumer(MemoryStore())(take)

    @functools.wraps(consumer)
    def without(event: Any, context: Any) -> None: ...

    del without.__wrapped__
    assert without.options is consumer.options
    assert consumer_inside(without) is None
    assert isinstance(consumer_inside(consumer), Consumer)


def test_a_chain_without_an_end_has_no_consumer() -> None:
    def one(event: Any, context: Any) -> None: ...

    one.__wrapped__ = one  # type: ignore[attr-defined]
    assert consumer_inside(one) is None


def test_a_module_has_consumers_below_decorators_and_nothing_else_is_asked() -> None:
    """Some objects answer any question about their attributes, or raise."""

    class Proxy:
        def __getattr__(self, name: str) -> Any:
            pytest.fail("asked outside of its context")

    module: Any = ModuleType("orders")
    consumer = sqs_consumer(MemoryStore())(take)
    module.proxy, module.take, module.one, module.two = Proxy(), take, consumer, own(consumer)
    assert names_in(module) == ["one", "two"]
