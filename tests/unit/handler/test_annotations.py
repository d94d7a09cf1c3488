"""A handler's arguments are found by its annotations; an error about them names the remedy."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, NewType, Optional

import pydantic.v1
import pytest
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.parser.models import SqsRecordModel
from aws_lambda_powertools.utilities.typing import LambdaContext  # resolved by its name
from pydantic import BaseModel
from typing_extensions import TypeAliasType

from idempotent_receiver import MemoryStore, Message, Transaction, http_endpoint, idempotent
from idempotent_receiver.clock import Deadline
from idempotent_receiver.errors import InvalidBody
from idempotent_receiver.handler.attempt import Attempt
from idempotent_receiver.sqs.binding import bind
from tests.contexts import Context
from tests.manual_clock import ManualClock


class Model(BaseModel):
    amount: Decimal


@dataclass
class Plain:
    amount: int


def arguments(function: Any, body: str = "{}") -> list[Any]:
    attempt = Attempt("k", "k", 1, Deadline.after(ManualClock(), 1000))
    return bind(function).arguments(Message(id="1", body=body, raw_body=body), attempt)


def body_of(annotation: Any, body: str) -> Any:
    def handle(it: Any) -> None: ...

    handle.__annotations__ = {"it": annotation, "return": None}
    return arguments(handle, body)[0]


@pytest.mark.parametrize(
    ("annotation", "body", "value"),
    [
        (dict, '{"a":1}', {"a": 1}),
        (str, '{"a":1}', '{"a":1}'),
        (bytes, "é", "é".encode()),
        (bytes, "\ud800", b"\xed\xa0\x80"),
        (list[int], "[1,2]", [1, 2]),
        (Any, "null", None),
        (int | None, "null", None),
        (Plain, '{"amount":1}', Plain(1)),
        (Model, '{"amount":"0.12345678901234567890123"}', Model(amount=Decimal("0.12345678901234567890123"))),
    ],
)
def test_a_body_is_what_its_annotation_says(annotation: Any, body: str, value: Any) -> None:
    """The text as it came, or anything that pydantic can validate, exact to the last digit."""
    assert body_of(annotation, body) == value


@pytest.mark.parametrize(
    ("annotation", "body", "told"),
    [
        (dict, "[]", "the body is not a dict: it is JSON of type list"),
        (dict, "", "the body is not a dict: it is not JSON"),
        (dict, "{", "the body is not a dict: it is not JSON"),
        (Model, "{}", "the body is not a Model: amount: missing"),
        (list[int], '["a"]', "the body is not a list[int]: 0: int_parsing"),
        (list[int], '["\ud800"]', "the body is not a list[int]: body: json_invalid"),
    ],
)
def test_a_body_that_is_not_what_the_annotation_says_is_invalid(annotation: Any, body: str, told: str) -> None:
    """It fails for good, because a retry cannot help."""
    with pytest.raises(InvalidBody) as invalid:
        body_of(annotation, body)
    assert str(invalid.value) == told


def test_message_and_transaction_are_given_where_they_are_asked_for_in_any_order() -> None:
    """By their annotations, not by their names."""

    def handle(tx: Transaction, body: dict, message: Message) -> None: ...

    transaction, body, message = arguments(handle, '{"a":1}')

    assert isinstance(transaction, Transaction)
    assert body == {"a": 1}
    assert isinstance(message, Message)
    assert bind(handle).transactional
    assert bind(handle).wants_message


def test_a_handler_that_asks_for_its_body_alone_is_given_no_more() -> None:
    """Its store does not need transactions."""

    def handle(body: dict) -> None: ...

    assert not bind(handle).transactional
    assert not bind(handle).wants_message


def none_at_all(message: Message) -> None: ...


def no_parameter() -> None: ...


def two(one: dict, other: str) -> None: ...


def unannotated(body) -> None: ...  # type: ignore[no-untyped-def]


def unresolved(body: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


class DerivedMessage(Message):
    """Nothing makes one."""


class DerivedTransaction(Transaction):
    """Nothing makes one."""


class OfPydantic1(pydantic.v1.BaseModel):
    amount: int


def of_powertools(record: SQSRecord) -> None: ...


def parsed_by_powertools(record: SqsRecordModel) -> None: ...


def list_of_powertools(records: list[SQSRecord]) -> None: ...


def of_dicts(orders: list[dict]) -> None: ...


def of_messages(orders: list[Message]) -> None: ...


def of_pydantic_1(order: OfPydantic1) -> None: ...


def maybe_of_pydantic_1(order: OfPydantic1 | None) -> None: ...


class Service:
    def handle(self, order: dict) -> None: ...

    @classmethod
    def make(cls, order: dict) -> None: ...

    def unannotated(self, order) -> None: ...  # type: ignore[no-untyped-def]


def misspelt(body: json.Nothing) -> None: ...  # type: ignore[name-defined]


def impossible(body: Iterator[Clockwork]) -> None: ...


class Clockwork:
    """A class for which pydantic has no schema."""


def starred(*bodies: dict) -> None: ...


def keywords(**bodies: dict) -> None: ...


def keyword_only(*, body: dict) -> None: ...


def generator(body: dict) -> Iterator[int]:
    yield 1


async def async_generator(body: dict) -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (none_at_all, r"takes none: annotate one parameter with the body's type"),
        (no_parameter, "takes none"),
        (two, "takes 2: one, other"),
        (functools.partial(two), "takes 2: one, other"),
        (unannotated, "'body' has no annotation; annotate it"),
        (unresolved, "'body' cannot be resolved .* import its type at run time, not only `if TYPE_CHECKING`"),
        (misspelt, r"'body' cannot be resolved \(.* no attribute 'Nothing'.*\): name a type there"),
        (of_dicts, r"annotate 'orders' as dict, .* called once for each message.*annotate list\[dict\[str, Any\]\]"),
        (of_messages, "annotate 'orders' as Message, .* called once for each message"),
        (list_of_powertools, "annotate 'records' as Message, .* called once for each message"),
        (of_pydantic_1, "OfPydantic1 is a model of pydantic 1: derive it from pydantic.BaseModel"),
        (maybe_of_pydantic_1, "OfPydantic1 is a model of pydantic 1"),
        (Service.handle, r"Service.handle is a method, and nothing gives it its 'self': .*\(service.handle\)"),
        (Service().unannotated, "'order' has no annotation; annotate it with the body's type$"),
        (of_powertools, "annotate 'record' as Message, not as Powertools' SQSRecord"),
        (parsed_by_powertools, "annotate 'record' as Message, not as Powertools' SqsRecordModel"),
        (impossible, "pydantic cannot validate"),
        (starred, "must be an ordinary parameter"),
        (keywords, "must be an ordinary parameter"),
        (keyword_only, "must be an ordinary parameter"),
        (generator, "is a generator"),
        (async_generator, "is a generator"),
    ],
)
def test_a_handler_that_cannot_be_called_is_refused_at_set_up_with_the_remedy(function: Any, says: str) -> None:
    """And named."""
    with pytest.raises(Exception, match=says) as refused:
        bind(function)
    assert isinstance(refused.value, TypeError)
    assert getattr(function, "__name__", repr(function)) in str(refused.value)


def a_type_alias(value: Any) -> Any:
    return TypeAliasType("Alias", value)  # type: ignore[misc]  # made at run time


FORMS: dict[str, Callable[[Any, Any], Any]] = {
    "optional": lambda plain, derived: plain | None,
    "typing.Optional": lambda plain, derived: Optional[plain],  # noqa: UP045  # as older code has it
    "annotated": lambda plain, derived: Annotated[plain, "one"],
    "NewType": lambda plain, derived: NewType("Renamed", plain),
    "type alias": lambda plain, derived: a_type_alias(plain),
    "type alias of a union": lambda plain, derived: a_type_alias(plain | None),
    "subclass": lambda plain, derived: derived,
    "list": lambda plain, derived: list[plain],
    "dict": lambda plain, derived: dict[str, plain],
}
BOTH = [(Message, DerivedMessage), (Transaction, DerivedTransaction)]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("plain", "derived"), BOTH)
@pytest.mark.parametrize("beside", [False, True])
def test_a_message_or_transaction_in_disguise_is_refused_at_set_up(
    form: str, plain: type, derived: type, beside: bool
) -> None:
    """As the only parameter and beside a body: taken for a body's type, it would fail every message for good."""

    def alone(given: Any) -> None: ...
    def after_a_body(body: Any, given: Any) -> None: ...

    handle: Any = after_a_body if beside else alone
    handle.__annotations__ = {"body": dict, "given": FORMS[form](plain, derived)}
    handle.__annotations__ = {name: handle.__annotations__[name] for name in inspect.signature(handle).parameters}

    with pytest.raises(TypeError, match=f"annotate 'given' as {plain.__name__}, not as ") as refused:
        bind(handle)
    assert "bodies" not in str(refused.value)


@pytest.mark.parametrize("form", FORMS)
def test_a_transaction_in_disguise_is_refused_by_the_other_ways_in(form: str) -> None:
    def handle(event: Any, context: Any, tx: Any = None) -> Any: ...

    handle.__annotations__["tx"] = FORMS[form](Transaction, DerivedTransaction)

    with pytest.raises(TypeError, match="annotate 'tx' as Transaction, not as "):
        http_endpoint(MemoryStore("http-handler"))(handle)
    with pytest.raises(TypeError, match="annotate 'tx' as Transaction, not as "):
        idempotent(MemoryStore("any-handler"), key=lambda *_, **__: "k")(handle)


def test_a_parameter_with_a_default_and_no_annotation_is_left_alone() -> None:
    """Wherever it stands; with neither, it would have no value."""

    def handle(body: dict, retries=3, message: Message = None, *, client="c") -> Any:  # type: ignore[no-untyped-def, assignment]
        return body, retries, message, client

    attempt = Attempt("k", "k", 1, Deadline.after(ManualClock(), 1000))
    try:
        bound = bind(handle)
    except TypeError as refused:
        pytest.fail(f"it was not left alone: {refused}")
    body, retries, message, client = bound.run(Message(id="1", body="{}", raw_body="{}"), attempt)

    assert (body, retries, client) == ({}, 3, "c")
    assert isinstance(message, Message)


def test_a_method_is_bound_before_it_is_wrapped() -> None:
    assert arguments(Service().handle, '{"a":1}') == [{"a": 1}]
    assert arguments(Service.make, '{"a":1}') == [{"a": 1}]


def plain_lambda(event, context) -> None: ...  # type: ignore[no-untyped-def]


def half_annotated(event: dict, context) -> None: ...  # type: ignore[no-untyped-def]


def typed_for_any(event: dict, context: Any) -> None: ...


def typed_for_lambda(event: dict, context: LambdaContext) -> None: ...


def typed_for_checkers(event: dict, context: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def with_defaults(event=None, context=None) -> None: ...  # type: ignore[no-untyped-def]


def typed_with_a_default(event: dict, context=None) -> None: ...  # type: ignore[no-untyped-def]


def context_unused(event: dict, _context: object) -> None: ...


def event_of_records(event: dict[str, Any], context: dict[str, Any]) -> None: ...


def with_transaction(event: dict, context: Any, tx: Transaction) -> None: ...


@pytest.mark.parametrize(
    "function",
    [
        plain_lambda,
        half_annotated,
        typed_for_any,
        typed_for_lambda,
        typed_for_checkers,
        with_defaults,
        typed_with_a_default,
        context_unused,
        event_of_records,
        with_transaction,
    ],
)
def test_a_lambda_handler_is_told_that_it_takes_one_message(function: Any) -> None:
    """However it is annotated: both of its parameters would be bodies, or nothing at all."""
    with pytest.raises(TypeError) as refused:
        bind(function)
    assert str(refused.value) == (
        f"{function.__name__} takes one message, not an event: annotate one parameter with the body's type (dict, str, "
        "bytes, or anything pydantic can validate), and any other with Message or Transaction. Lambda calls the "
        "decorated function with (event, context)"
    )


def test_a_parameter_may_be_called_event_or_context() -> None:
    """Annotations say what a parameter is, not its name."""

    def event_alone(event: Model) -> None: ...

    def context_as_body(context: Model, event: Message) -> None: ...

    assert arguments(event_alone, '{"amount":"1"}') == [Model(amount=Decimal(1))]
    body, message = arguments(context_as_body, '{"amount":"1"}')
    assert body == Model(amount=Decimal(1))
    assert isinstance(message, Message)


def test_the_other_ways_in_wrap_lambda_handlers() -> None:
    """An API's handler, and the handler of any other event, take the event and the context."""
    event = {"httpMethod": "GET", "path": "/", "headers": {}, "requestContext": {"identity": {}}}
    context = Context(seconds=60)

    @http_endpoint(MemoryStore("http-handler"), required=False)
    def endpoint(event, context):  # type: ignore[no-untyped-def]
        return {"statusCode": 200, "body": context.aws_request_id}

    @idempotent(MemoryStore("any-handler"), key=lambda event, context: "k")
    def handler(event: dict, context: Any) -> str:
        return str(context.aws_request_id)

    assert endpoint(event, context)["body"] == "invocation-1"
    assert handler(event, context) == "invocation-1"


def test_coroutine_functions_are_recognised_in_their_usual_disguises() -> None:
    """Declared, decorated, partial, or an object that is called."""

    async def declared(body: dict) -> None: ...

    @functools.wraps(declared)
    async def decorated(*arguments: Any) -> None: ...

    class Called:
        async def __call__(self, body: dict) -> None: ...

    class CalledPlainly:
        def __call__(self, body: dict) -> None: ...

    assert bind(declared).asynchronous
    assert bind(decorated).asynchronous
    assert bind(Called()).asynchronous
    assert not bind(CalledPlainly()).asynchronous
