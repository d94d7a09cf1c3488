"""A callable of one's own as `key` or `scope`: what it may be, and what it means that it raises."""

from __future__ import annotations

import gzip
import logging
import ssl
import zlib
from collections.abc import Callable
from decimal import InvalidOperation
from functools import partial
from typing import Any

import pytest
from botocore.exceptions import ClientError
from pydantic import TypeAdapter, ValidationError

from idempotent_receiver import (
    MemoryStore,
    Message,
    PermanentError,
    UnusableKey,
    http_endpoint,
    idempotent,
    sqs_consumer,
)
from idempotent_receiver.testing import lambda_context, sqs_event
from idempotent_receiver.testing.worker import failed_ids
from idempotent_receiver.workflow import Workflow, workflow_endpoint
from tests.fake_step_functions import FakeStepFunctions
from tests.unit.http.api import Api, problem, raising, request

pytestmark = pytest.mark.quick


def invalid() -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(int).validate_python("secret")
    return caught.value


DOES_NOT_FIT = [
    KeyError("secret"),
    IndexError("secret"),
    LookupError("secret"),
    TypeError("secret"),
    ValueError("secret"),
    UnicodeDecodeError("utf-8", b"secret", 0, 1, "secret"),
    AttributeError("secret"),
    RecursionError("secret"),
    InvalidOperation("secret"),
    ZeroDivisionError("secret"),
    EOFError("secret"),
    zlib.error("secret"),
    gzip.BadGzipFile("secret"),
    invalid(),
]
"""What a callable raises for input that it was not written for."""

THROTTLED = ClientError({"Error": {"Code": "SlowDown", "Message": "secret"}}, "GetObject")
RETRYABLE = [
    THROTTLED,
    RuntimeError("secret"),
    OSError("secret"),
    TimeoutError("secret"),
    ssl.SSLCertVerificationError("secret"),  # a ValueError, too
]
"""What a callable raises if what it asks cannot answer now."""

OTHERS = [*RETRYABLE, PermanentError("secret"), KeyboardInterrupt(), SystemExit()]


def error_of(run: Callable[[], Any]) -> BaseException | None:
    try:
        run()
    except BaseException as error:  # noqa: BLE001  # whatever it is
        return error
    return None


def charge(order: dict[str, Any]) -> str:
    raise AssertionError("never run")


@pytest.mark.parametrize("raised", DOES_NOT_FIT, ids=repr)
def test_a_call_that_its_key_does_not_fit_has_no_usable_key(raised: Exception) -> None:
    """The cause is chained. Its text may quote the payload, so the error's own text leaves it out."""
    store = MemoryStore("charges")
    call = idempotent(store, key=raising(raised), lease_seconds=60)(charge)

    found = error_of(lambda: call({"id": "1"}))
    assert isinstance(found, UnusableKey)
    assert (str(found), found.__cause__) == ("no key could be made from the arguments", raised)
    assert store.items == {}


def test_a_key_that_says_itself_why_it_cannot_be_used_is_believed() -> None:
    told = UnusableKey("the order has no number")
    call = idempotent(MemoryStore("charges"), key=raising(told), lease_seconds=60)(charge)
    assert error_of(lambda: call({})) is told


@pytest.mark.parametrize("raised", OTHERS, ids=repr)
def test_any_other_exception_of_a_calls_key_is_the_callers(raised: BaseException) -> None:
    """The key may have looked something up, and the network may have failed."""
    call = idempotent(MemoryStore("charges"), key=raising(raised), lease_seconds=60)(charge)
    assert error_of(lambda: call({})) is raised


@pytest.mark.parametrize("raised", DOES_NOT_FIT, ids=repr)
def test_a_message_and_a_request_have_no_usable_key_either(raised: Exception) -> None:
    """A request's response says nothing of the exception."""
    take = sqs_consumer(MemoryStore("orders"), key=raising(raised))(lambda_of_dict)
    assert failed_ids(take(sqs_event({"id": 1}), lambda_context())) == ["message-1"]

    api = Api(key=raising(raised))
    assert problem(api(request()), 400)["detail"] == "no key could be made from the request"


@pytest.mark.parametrize("option", ["key", "scope"])
@pytest.mark.parametrize("required", [True, False])
@pytest.mark.parametrize("raised", RETRYABLE, ids=repr)
def test_a_request_whose_key_could_not_be_made_now_may_come_again(
    raised: Exception, required: bool, option: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing runs, and neither the response nor the log says more than the error's type and place."""
    api = Api(required=required, logger=logging.getLogger("api"), **{option: raising(raised)})
    response = api(request())
    assert problem(response, 503)["detail"].endswith("Try again with the same key.")
    assert int(response["headers"]["Retry-After"]) > 0
    assert api.untouched
    (line,) = caplog.records
    assert (line.levelname, vars(line)["error_type"]) == ("ERROR", type(raised).__name__)
    assert "secret" not in str([vars(line), response])


def test_a_request_whose_key_says_that_no_retry_can_help_is_a_bad_one() -> None:
    api = Api(key=raising(PermanentError("the order is closed")))
    assert problem(api(request()), 400)["detail"] == "the order is closed"
    assert api.untouched


@pytest.mark.parametrize("raised", [*DOES_NOT_FIT, *RETRYABLE], ids=repr)
@pytest.mark.parametrize("option", ["key", "scope", "parse"])
def test_a_workflow_blames_a_request_by_the_same_rule(option: str, raised: Exception) -> None:
    """Any other error is Lambda's."""
    endpoint = of_a_workflow(f"{option}-{type(raised).__name__}", **{option: raising(raised)})
    if raised in DOES_NOT_FIT:
        assert endpoint(request(), lambda_context())["statusCode"] == 400
    else:
        assert error_of(lambda: endpoint(request(), lambda_context())) is raised


def lambda_of_dict(body: dict) -> None:
    raise AssertionError("never run")


# Coroutine functions.


async def coroutine(*_: object) -> str:
    return "never awaited"


class Asynchronous:
    """An object whose call must be awaited."""

    async def __call__(self, *_: object) -> str:
        return "never awaited"

    async def method(self, *_: object) -> str:
        return "never awaited"


NEVER_AWAITED = {
    "a function": coroutine,
    "an object": Asynchronous(),
    "a method": Asynchronous().method,
    "a partial": partial(coroutine, 1),
    "a partial of an object": partial(partial(Asynchronous(), 1), 2),
}


def of_a_workflow(name: str, **options: Any) -> Any:
    workflow = Workflow(
        MemoryStore(f"workflow-{name}"),
        client=FakeStepFunctions(),  # type: ignore[arg-type]
        state_machine_arn="arn:aws:states:us-east-1:123456789012:stateMachine:transfers",
        timeout_seconds=60,
    )
    return workflow_endpoint(workflow, **{"parse": bytes, **options})


SET_UPS = {
    "sqs_consumer": lambda key: sqs_consumer(MemoryStore("orders"), key=key),
    "http_endpoint": lambda key: http_endpoint(MemoryStore("requests"), key=key),
    "http_endpoint's scope": lambda key: http_endpoint(MemoryStore("requests"), scope=key),
    "idempotent": lambda key: idempotent(MemoryStore("calls"), key=key),
    "workflow_endpoint": lambda key: of_a_workflow("key", key=key),
    "workflow_endpoint's scope": lambda key: of_a_workflow("scope", scope=key),
}


@pytest.mark.parametrize("key", NEVER_AWAITED.values(), ids=NEVER_AWAITED)
@pytest.mark.parametrize("set_up", SET_UPS.values(), ids=SET_UPS)
def test_a_coroutine_function_is_refused_at_set_up(set_up: Any, key: Any) -> None:
    """Nobody awaits it, and what it returns is no key."""
    with pytest.raises(TypeError, match=r"^(key|scope) must be .*, a coroutine function, which is never awaited$"):
        set_up(key)


@pytest.mark.parametrize("key", [partial(lambda prefix, *_: f"{prefix}-1", "k"), lambda *_: "k", Message.__str__, str])
@pytest.mark.parametrize("set_up", SET_UPS.values(), ids=SET_UPS)
def test_any_other_callable_may_be_one(set_up: Any, key: Any) -> None:
    assert callable(set_up(key))
