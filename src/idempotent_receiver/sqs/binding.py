"""Calls the function for one message. Annotations determine each parameter's argument."""

import inspect
import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, get_args, get_origin

from idempotent_receiver.errors import InvalidBody, PermanentError, blames_input, invalid_body
from idempotent_receiver.handler.annotations import (
    classes_in,
    field_names,
    hints_of,
    refuse_method,
    require_plain,
    runnable,
)
from idempotent_receiver.handler.attempt import Attempt
from idempotent_receiver.sqs.message import Message
from idempotent_receiver.transaction.transaction import Transaction

ArgumentSource = Callable[[Message, Attempt], Any]


@dataclass(frozen=True, slots=True)
class Binding:
    """A handler, and the source of each of its parameters, in order."""

    function: Callable[..., Any]
    sources: tuple[ArgumentSource, ...]
    asynchronous: bool
    wants_message: bool
    transactional: bool

    def run(self, message: Message, attempt: Attempt) -> Any:
        """Call the handler. If it is a coroutine function, the caller awaits the result. Raises InvalidBody."""
        attempt.parsing = True
        arguments = self.arguments(message, attempt)
        attempt.parsing = False
        return self.function(*arguments)

    def arguments(self, message: Message, attempt: Attempt) -> list[Any]:
        """The handler's arguments. Raises InvalidBody if the body does not match the annotation."""
        given = _lent(message, attempt) if self.wants_message else message
        return [source(given, attempt) for source in self.sources]


Lends = Callable[[type], bool]
"""Whether the store lends what a parameter of this class requests."""


def _nothing(kind: type) -> bool:
    return False


def bind(function: Callable[..., Any], lends: Lends = _nothing) -> Binding:
    """Read a handler's annotations. Raises TypeError, with the remedy, unless exactly one parameter takes the body."""
    name = runnable(function)
    parameters = inspect.signature(function).parameters
    try:
        hints = hints_of(function, name, needed=lambda parameter: parameter != "return")
    except TypeError:
        # Often caused by Lambda's context, whose type was imported only for type checkers.
        _refuse_lambda_handler(name, parameters, {})
        raise
    _refuse_lambda_handler(
        name, parameters, {one: Message if _is_lent(hint, lends) else hint for one, hint in hints.items()}
    )
    refuse_method(function, name, "sqs_consumer(store)")
    sources = {
        each.name: _source(each, hints, name, lends) for each in parameters.values() if not _is_left_out(each, hints)
    }
    bodies = [
        each
        for each, source in sources.items()
        if source not in (_the_message, _the_transaction)
        and not isinstance(source, LentSource)
        and not _is_left_alone(parameters[each], hints)
    ]
    if len(bodies) != 1:
        found = f"{len(bodies)}: {', '.join(bodies)}" if bodies else "none"
        raise TypeError(f"{name} must take exactly one body, but takes {found}: {_REMEDY}")
    return Binding(
        function,
        tuple(sources.values()),
        asynchronous=inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__),
        wants_message=_the_message in sources.values(),
        transactional=_the_transaction in sources.values(),
    )


_REMEDY = (
    "annotate one parameter with the body's type (dict, str, bytes, or anything pydantic can validate), "
    "and any other with Message or Transaction"
)


def _is_left_alone(parameter: inspect.Parameter, hints: Mapping[str, Any]) -> bool:
    """Whether a parameter keeps its default: it has one, and no annotation."""
    return parameter.default is not parameter.empty and parameter.name not in hints


def _is_left_out(parameter: inspect.Parameter, hints: Mapping[str, Any]) -> bool:
    """Whether nothing is passed. Others may follow a positional parameter, so that one is given its default."""
    return parameter.kind is parameter.KEYWORD_ONLY and _is_left_alone(parameter, hints)


def _refuse_lambda_handler(name: str, parameters: Mapping[str, inspect.Parameter], hints: Mapping[str, Any]) -> None:
    """Raise TypeError for a function that takes Lambda's event and context: several parameters would be bodies, and one
    of them has such a name; or both have, whatever their defaults.
    """
    bodies = [one for one in parameters if hints.get(one) is not Message and hints.get(one) is not Transaction]
    names = {one.strip("_") for one in bodies}
    required = [one for one in bodies if not _is_left_alone(parameters[one], hints)]
    of_lambda = {"event", "context"}
    if of_lambda <= names or (len(required) > 1 and of_lambda & {one.strip("_") for one in required}):
        raise TypeError(
            f"{name} takes one message, not an event: {_REMEDY}. Lambda calls the decorated function with "
            "(event, context)"
        )


@dataclass(frozen=True, slots=True)
class LentSource:
    """The source of what the store lends for a run, such as a database session."""

    kind: type

    def __call__(self, message: Message, attempt: Attempt) -> Any:
        """Lend it."""
        assert attempt.lend is not None  # only a store that lends binds this source
        return attempt.lend(self.kind)


def _is_lent(hint: Any, lends: Lends) -> bool:
    return isinstance(hint, type) and lends(hint)


def _source(parameter: inspect.Parameter, hints: dict[str, Any], name: str, lends: Lends) -> ArgumentSource:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.KEYWORD_ONLY):
        raise TypeError(
            f"{name}: parameter {parameter.name!r} must be an ordinary parameter, not *, ** or keyword-only"
        )
    if _is_left_alone(parameter, hints):
        return lambda message, attempt: parameter.default
    if parameter.name not in hints:
        raise TypeError(f"{name}: parameter {parameter.name!r} has no annotation; annotate it with the body's type")
    hint = hints[parameter.name]
    if hint is Message:
        return _the_message
    if hint is Transaction:
        return _the_transaction
    if _is_lent(hint, lends):
        return LentSource(hint)
    _refuse_batch(hint, parameter.name, name)
    for supplied in (Message, Transaction):
        require_plain(hint, supplied, parameter.name, name)
    for each in classes_in(hint):
        if lends(each):
            require_plain(hint, each, parameter.name, name)
        _refuse_foreign(each, parameter.name, name)
    parse = _body_parser(hint, name)
    return lambda message, attempt: parse(message.body)


def _refuse_foreign(kind: type, parameter: str, name: str) -> None:
    """Raise TypeError for a class of another library that is no body."""
    bases = {(base.__module__, base.__name__) for base in kind.__mro__}
    if kind.__name__ in _OF_POWERTOOLS and kind.__module__.startswith("aws_lambda_powertools."):
        raise TypeError(f"{name}: annotate {parameter!r} as Message, not as Powertools' {kind.__name__}")
    if _OF_PYDANTIC_1 in bases:
        raise TypeError(f"{name}: {kind.__name__} is a model of pydantic 1: derive it from pydantic.BaseModel")
    if bases & _OF_SQLALCHEMY:
        raise TypeError(f"{name}: {parameter!r} is SQLAlchemy's {kind.__name__}, which only an SQLStore lends")


_OF_POWERTOOLS = ("SQSRecord", "SqsRecordModel", "SqsFifoRecordModel")
"""Powertools' classes for one message of a batch."""

_OF_SQLALCHEMY = {("sqlalchemy.orm.session", "Session"), ("sqlalchemy.engine.base", "Connection")}
"""What a store may lend, by module and name."""

_OF_PYDANTIC_1 = ("pydantic.v1.main", "BaseModel")


def _refuse_batch(hint: Any, parameter: str, name: str) -> None:
    """Raise TypeError for an annotation that stands for all messages of a batch."""
    if get_origin(hint) is not list:
        return
    once = "the function is called once for each message"
    if get_args(hint) == (dict,):
        array = "If each body is itself a JSON array, annotate list[dict[str, Any]]"
        raise TypeError(f"{name}: annotate {parameter!r} as dict, not as a list: {once}. {array}")
    if any(issubclass(each, Message) or each.__name__ in _OF_POWERTOOLS for each in classes_in(hint)):
        raise TypeError(f"{name}: annotate {parameter!r} as Message, not as a list: {once}")


def _body_parser(hint: Any, name: str) -> Callable[[str], Any]:
    """A parser that converts a body to its annotated type. Raises TypeError for an annotation that no body can match.

    The parser raises InvalidBody if the body does not match.
    """
    if hint is str:
        return lambda body: body
    if hint is bytes:
        return lambda body: body.encode("utf-8", "surrogatepass")
    if hint is dict:
        return _a_dict
    # Imported here because it is the largest part of a cold start.
    import pydantic  # noqa: PLC0415

    try:
        adapter = pydantic.TypeAdapter(hint)
    except (pydantic.PydanticSchemaGenerationError, pydantic.PydanticUserError) as error:
        reason = str(error).splitlines()[0]
        raise TypeError(f"{name}: pydantic cannot validate a body of type {hint!r}: {reason}") from error

    def parse(body: str) -> Any:
        try:
            return adapter.validate_json(body.encode("utf-8", "surrogatepass"))
        except pydantic.ValidationError as error:
            raise invalid_body(error, field_names(adapter)) from None
        except Exception as error:
            # Only ValueError and AssertionError of a model's own validators become a ValidationError.
            if not blames_input(error) or isinstance(error, PermanentError):
                raise
            raise InvalidBody(
                f"the body does not fit its type: its validation raised {type(error).__name__}"
            ) from error

    return parse


def _a_dict(body: str) -> Any:
    """A JSON object, unchanged. Pydantic would return the same but is slow to import."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidBody("the body is not a dict: it is not JSON") from None
    if not isinstance(found, dict):
        raise InvalidBody(f"the body is not a dict: it is JSON of type {type(found).__name__}")
    return found


def _the_message(message: Message, attempt: Attempt) -> Message:
    return message


def _the_transaction(message: Message, attempt: Attempt) -> Transaction:
    return attempt.transaction


def _lent(message: Message, attempt: Attempt) -> Message:
    """A copy of the message that the handler may keep and change: the original is still needed for a backoff or dead
    letter.
    """
    return replace(
        message,
        attributes=dict(message.attributes),
        message_attributes=deepcopy(message.message_attributes),
        key=attempt.key,
        record_id=attempt.id,
        attempt=attempt.attempt,
        remaining_time_ms=attempt.remaining_time_ms,
    )
