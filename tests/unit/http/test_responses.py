"""HTTP: the form of a response for each way in, and what is refused at set-up."""

from __future__ import annotations

import io
import json
from contextvars import Context
from decimal import Decimal
from typing import Any

import pytest
from aws_lambda_powertools import Logger

from idempotent_receiver import (
    MemoryStore,
    Payload,
    Transaction,
    body_field,
    header,
    http_endpoint,
    message_id,
    payload_key,
)
from tests.contexts import Context as Invocation
from tests.manual_clock import ManualClock
from tests.unit.http.api import ANSWER, FORMATS, Api, problem, raising, request


@pytest.mark.parametrize("form", ["alb", "alb-multi"])
def test_a_load_balancer_gets_problems_in_its_form(api: Api, form: str) -> None:
    """With a status description, and with headers in the mapping that it reads; it ignores the other one."""
    told: list[dict[str, Any]] = [api(request(None, form=form))]
    api.does = lambda event: told.append(Context().run(api, request(form=form))) or ANSWER
    api(request(form=form))
    api.store.down = {"insert", "read"}
    told.append(api(request("k-2", form=form)))

    described = {400: "400 Bad Request", 409: "409 Conflict", 503: "503 Service"}
    for response, (status, description) in zip(told, described.items(), strict=True):
        problem(response, status)
        assert response["statusDescription"].startswith(description)
        assert ("headers" in response, "multiValueHeaders" in response) == (form == "alb", form == "alb-multi")


@pytest.mark.parametrize("form", ["rest", "http", "url"])
def test_others_get_only_the_fields_that_they_accept(api: Api, form: str) -> None:
    """A REST API answers 502 to a field that it does not know."""
    assert set(api(request(None, form=form))) == {"statusCode", "headers", "body", "isBase64Encoded"}


# Headers of one's own, such as a browser wants them.


def cors(event: dict[str, Any]) -> dict[str, str]:
    """Of the origin that asks, whichever mapping tells it."""
    told = {name.lower(): value for name, value in (event.get("headers") or {}).items()}
    several = {name.lower(): value for name, [value] in (event.get("multiValueHeaders") or {}).items()}
    return {"Access-Control-Allow-Origin": {**told, **several}["origin"], "Vary": "Origin"}


def headers_in(response: dict[str, Any], form: str) -> dict[str, str]:
    """The headers in the one mapping that a way in reads."""
    mapping, other = ("headers", "multiValueHeaders") if form != "alb-multi" else ("multiValueHeaders", "headers")
    assert other not in response
    return {name: value if form != "alb-multi" else value[0] for name, value in response[mapping].items()}


@pytest.mark.parametrize("form", FORMATS)
def test_every_response_of_the_librarys_own_has_the_headers_that_the_user_adds(form: str) -> None:
    """Otherwise a browser hides from a page of another origin that its request was refused, and why."""
    api = Api(headers=cors, on_exception="replay")

    def ask(key: str | None, body: Any = None) -> dict[str, Any]:
        return Context().run(api, request(key, body, form=form, headers={"Origin": f"https://{key}.example"}))

    told = [ask(None)]
    api.does = lambda event: told.append(ask("busy")) or ANSWER
    ask("busy")
    told.append(ask("busy", {"amount": 6}))
    api.does = lambda event: {"statusCode": 200, "body": "x" * 400_000}
    ask("large")
    told.append(ask("large"))
    api.does = raising(ConnectionError())
    told += [ask("fails"), ask("fails")]
    api.store.items["tests#odd"] = {"id": "tests#odd", "status": "PAUSED"}
    told.append(ask("odd"))
    api.store.down = {"insert", "read"}
    told.append(ask("down"))

    keys = [None, "busy", "busy", "large", "fails", "fails", "odd", "down"]
    assert [each["statusCode"] for each in told] == [400, 409, 422, 410, 500, 500, 500, 503]
    for key, headers in zip(keys, (headers_in(each, form) for each in told), strict=True):
        assert headers["Access-Control-Allow-Origin"] == f"https://{key}.example"
        assert headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("answer", [ANSWER, {"ok": True}])
def test_what_the_function_answers_has_its_own_headers_alone(answer: dict[str, Any]) -> None:
    """Now and when it is replayed."""
    api = Api(headers=lambda event: {"X-Added": "1"})
    api.does = lambda event: answer

    assert api(request()) == answer
    assert "X-Added" not in api(request())["headers"]
    assert api(request(method="GET")) == answer


def test_a_responses_own_headers_stay() -> None:
    """However they are written: two of one name would be for each gateway to choose from."""
    api = Api(headers=lambda event: {"retry-after": "9", "CONTENT-TYPE": "text/html", "X-Added": "1"})
    api.store.down = {"insert", "read"}

    own = {"Content-Type": "application/problem+json", "Cache-Control": "no-store", "Retry-After": "1"}
    assert api(request())["headers"] == {**own, "X-Added": "1"}


@pytest.mark.parametrize(
    ("headers", "error", "said"),
    [
        (raising(KeyError("secret")), "KeyError", f"KeyError at {raising.__module__}.raises"),
        (lambda event: None, "TypeError", "headers must return a mapping of str to str"),
        (lambda event: {"X-Added": 1}, "TypeError", "headers must return a mapping of str to str"),
        (lambda event: {b"x-added": "1"}, "TypeError", "headers must return a mapping of str to str"),
        (lambda event: {"X-Added": ["1"]}, "TypeError", "headers must return a mapping of str to str"),
    ],
)
def test_headers_that_cannot_be_made_change_no_response_and_are_logged(headers: Any, error: str, said: str) -> None:
    """A 409 that became an exception would be taken for a failure of the request that still runs."""
    stream, inside = io.StringIO(), []
    api = Api(headers=headers, logger=Logger(service=f"headers-{id(headers)}", stream=stream))
    api.does = lambda event: inside.append(Context().run(api, request())) or ANSWER

    assert api(request()) == ANSWER
    problem(inside[0], 409)
    assert set(inside[0]["headers"]) == {"Content-Type", "Cache-Control", "Retry-After"}
    (line,) = [json.loads(line) for line in stream.getvalue().splitlines() if "headers" in json.loads(line)["message"]]
    assert (line["level"], line["error_type"]) == ("ERROR", error)
    assert line["reason"].startswith(said)
    assert "secret" not in stream.getvalue()


@pytest.mark.parametrize(
    "answer", [{"statusCode": 200, "body": "a"}, {"statusCode": 200, "headers": None, "multiValueHeaders": None}]
)
@pytest.mark.parametrize(
    ("form", "place", "mark"), [("alb", "headers", "true"), ("alb-multi", "multiValueHeaders", ["true"])]
)
def test_an_answer_without_headers_is_replayed_with_the_mark_where_a_load_balancer_looks(
    api: Api, form: str, place: str, mark: object, answer: dict[str, Any]
) -> None:
    api.does = lambda event: answer
    assert api(request(form=form)) == answer
    assert api(request(form=form)) == {**answer, place: {"Idempotency-Replayed": mark}}


def test_an_answer_without_a_status_is_replayed_in_the_load_balancers_form(api: Api) -> None:
    api.does = lambda event: {"ok": True}
    api(request(form="alb-multi"))
    headers = {"Content-Type": ["application/json"], "Idempotency-Replayed": ["true"]}
    written = {"statusCode": 200, "statusDescription": "200 OK", "body": '{"ok":true}', "isBase64Encoded": False}
    assert api(request(form="alb-multi")) == {**written, "multiValueHeaders": headers}


def test_a_number_is_replayed_as_the_number_that_lambda_sends(api: Api) -> None:
    """boto3's resources read numbers as Decimal: Lambda sends them as numbers, pydantic would keep them as text."""
    price = {"price": Decimal("12.50"), "counts": [Decimal(3), (Decimal("1E+2"),)]}
    api.does = lambda event: price
    first = api(request())
    assert json.dumps(first) == '{"price": 12.5, "counts": [3, [100]]}'
    assert json.loads(api(request())["body"]) == first

    api.does = lambda event: {"statusCode": Decimal(201), "body": "accepted"}
    assert api(request("k-2"))["statusCode"] == api(request("k-2"))["statusCode"] == 201


NESTED: Any = {}
for _ in range(5000):
    NESTED = [NESTED]


@pytest.mark.parametrize("part", [Decimal("-sNaN"), Decimal("Infinity"), NESTED])
def test_an_answer_that_is_not_json_is_the_first_clients_and_runs_once(api: Api, part: Any) -> None:
    """What took effect is not undone by its answer."""
    answer = {"a": part}
    api.does = lambda event: answer

    assert api(request()) is answer
    api(request())
    assert len(api.runs) == 1


def handle(event: Any, context: Any) -> None: ...
async def coroutine(event: Any, context: Any) -> None: ...
def generator(event: Any, context: Any) -> Any:
    yield {"statusCode": 201}


def without_a_context(event: Any) -> None: ...
def unannotated(event: Any, context: Any, tx) -> None: ...  # type: ignore[no-untyped-def]
def transaction_first(tx: Transaction, event: Any, context: Any) -> None: ...
def optional(event: Any, context: Any, tx: Transaction | None = None) -> None: ...


class Handlers:
    def method(self, event: Any, context: Any) -> None: ...


BY_PAYLOAD = {"key": payload_key("id")}
A_SCOPE = r"scope must be a callable .*header\('X-Tenant'\); it is"


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        *(({"key": wrong}, TypeError, "key must be") for wrong in (header, message_id, body_field)),
        ({"key": "Idempotency-Key"}, TypeError, r"key must be header\(name\), "),
        (BY_PAYLOAD, ValueError, "a key made from the payload needs a scope.*lambda event: .*scope=None"),
        (BY_PAYLOAD | {"required": False}, ValueError, "a key made from the payload needs a scope"),
        *(({"scope": wrong}, TypeError, A_SCOPE) for wrong in ("tenant", header, payload_key("tenant"), payload_key)),
        ({"payload": Payload}, TypeError, r"payload must be a Payload\(fields"),
        ({"error_texts": "false"}, TypeError, "error_texts must be True or False"),
        ({"required": None}, TypeError, "required must be True or False"),
        *(({"wait_seconds": wrong}, ValueError, "wait_seconds") for wrong in (float("nan"), -1)),
        *(({"retry_after_seconds": wrong}, ValueError, "retry_after_seconds must") for wrong in (0, 0.5, None, True)),
        ({"headers": {"X": "1"}}, TypeError, "headers must be a callable"),
        ({"is_final": None}, TypeError, "is_final must be a callable"),
        ({"logger": 3}, TypeError, "logger must be a Powertools Logger or a logging"),
        ({"metrics": 3}, TypeError, "metrics must be Powertools Metrics or the like"),
        ({"on_exception": "keep"}, ValueError, "'retry' or 'replay'"),
    ],
)
def test_wrong_options_are_refused_at_set_up(options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        http_endpoint(MemoryStore("a"), **options)


TAKES = r" must take \(event, context\), or \(event, context, tx: Transaction\)"
WRONG_HANDLERS = (without_a_context, unannotated, transaction_first)


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        (lambda: http_endpoint(handle), TypeError, "@http_endpoint.store"),
        (lambda: http_endpoint(MemoryStore()), ValueError, "namespace"),
        (coroutine, TypeError, "coroutine"),
        (generator, TypeError, "^generator is a generator"),
        *((wrong, TypeError, f"^{wrong.__qualname__}{TAKES}") for wrong in WRONG_HANDLERS),
        (optional, TypeError, "^optional: annotate 'tx' as Transaction, .* every call gets one"),
        (Handlers.method, TypeError, r"^Handlers.method is a method, .* http_endpoint\(store\)\(service.handle\)"),
        (lambda: http_endpoint(MemoryStore("a"))(handle)(request(), None), TypeError, "context"),
        *((lambda name=name: header(name), ValueError, "Idempotency-Key") for name in ("", " ", None, 5)),
    ],
)
def test_what_is_known_of_a_handler_or_store_is_said_at_set_up(wrong: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        wrong() if wrong.__name__ == "<lambda>" else http_endpoint(MemoryStore("a"))(wrong)


def test_only_a_transaction_among_the_annotations_must_be_there_at_run_time() -> None:
    """Lambda's context is often imported for type checkers alone."""

    def handle(event: Nowhere, context: Nowhere) -> Nowhere:  # type: ignore[name-defined]  # noqa: F821
        return {"statusCode": 201}

    def committing(event: Any, context: Nowhere, tx: Nowhere.Transaction) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert http_endpoint(MemoryStore("a"))(handle)(request(), Invocation(ManualClock()))["statusCode"] == 201
    with pytest.raises(TypeError, match=r"the annotation of 'tx' cannot be resolved .* not only `if TYPE_CHECKING`"):
        http_endpoint(MemoryStore("b"))(committing)


@pytest.mark.parametrize("annotation", ["mail.Message", "json.NoSuchName", "not a type", "int['x']", "Transaction"])
def test_another_annotation_than_a_transactions_is_nobodys_affair(annotation: str) -> None:
    """A third party's may not even be an expression. What is returned is no `Transaction` either."""

    def handle(event, context):  # type: ignore[no-untyped-def]
        return {"statusCode": 201}

    handle.__annotations__ = {"event": annotation.replace("Transaction", "dict"), "return": annotation}

    try:
        wrapped = http_endpoint(MemoryStore("a"))(handle)
    except TypeError as refused:
        pytest.fail(str(refused))
    assert wrapped(request(), Invocation(ManualClock()))["statusCode"] == 201


def test_a_method_is_wrapped_once_it_is_bound() -> None:
    class Service:
        def handle(self, event: Any, context: Any) -> Any:
            return {"statusCode": 201}

    assert http_endpoint(MemoryStore("a"))(Service().handle)(request(), Invocation(ManualClock()))["statusCode"] == 201
