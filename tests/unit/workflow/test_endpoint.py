"""The response to a request to a workflow."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import parse_qs, urljoin

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError
from pydantic import BaseModel

from idempotent_receiver import MemoryStore, PermanentError, header, payload_key
from idempotent_receiver.workflow import workflow_endpoint
from tests.contexts import Context
from tests.unit.workflow.requests import ARN, NAME, OVERDRAWN, Requests

CONTEXT = Context(seconds=10)
LOCATION = f"transfers/{NAME}"
RUNNING = {"status": "running", "execution": ARN}


def parsed(body: bytes) -> Any:
    if not body:
        raise PermanentError("there is no body")
    return json.loads(body)


def tenant(event: Any) -> str:
    return str(event["headers"].get("Tenant", "someone"))


def raises(event: Any) -> str:
    raise KeyError("secret")


def unreadable(body: bytes) -> Any:
    class Exits(PermanentError):
        def __str__(self) -> str:
            raise SystemExit

    raise Exits


class Api(Requests):
    """The endpoint behind API Gateway."""

    def __init__(self) -> None:
        super().__init__()
        self.query = ""
        self.set_up()

    def set_up(self, **options: Any) -> None:
        self.handler = workflow_endpoint(self.workflow, **{"parse": parsed, **options})

    def call(self, method: str, path: str, body: str | bytes | None = None, **headers: str) -> dict[str, Any]:
        event = {
            "httpMethod": method,
            "path": path,
            "multiValueQueryStringParameters": parse_qs(self.query) or None,
            "headers": {name.replace("_", "-"): value for name, value in headers.items()},
            "body": base64.b64encode(body).decode() if isinstance(body, bytes) else body,
            "isBase64Encoded": isinstance(body, bytes),
            "requestContext": {},
        }
        answer = self.handler(event, CONTEXT)
        return {**answer, "body": json.loads(answer["body"])}

    def post(
        self, body: str | bytes | None = '{"amount": 1}', key: str | None = "key", **headers: str
    ) -> dict[str, Any]:
        keyed = {} if key is None else {"Idempotency_Key": key}
        return self.call("POST", "/workflows/transfers", body, **keyed, **headers)

    def get(self) -> tuple[int, Any]:
        answer = self.call("GET", f"/v1/workflows/{LOCATION}")
        return answer["statusCode"], answer["body"]


@pytest.fixture
def api() -> Api:
    return Api()


def test_a_request_is_accepted_with_its_location_and_so_it_is_while_it_runs(api: Api) -> None:
    assert api.get()[0] == 404
    answer = api.post()
    assert (answer["statusCode"], answer["headers"]["Location"]) == (202, LOCATION)
    assert answer["body"] == RUNNING | {"location": LOCATION}
    assert api.get() == (200, RUNNING)
    assert api.post() == answer
    assert len(api.machines.executions) == 1


def test_a_location_with_a_slash_at_its_end_is_the_same(api: Api) -> None:
    api.post()
    answer = api.call("GET", f"/v1/workflows/{LOCATION}/")
    assert (answer["statusCode"], answer["body"]) == (200, RUNNING)


def test_a_record_that_cannot_be_read_is_not_reported_as_an_execution_that_was_never_accepted(api: Api) -> None:
    api.store.items[f"transfers#{NAME}"] = {"id": f"transfers#{NAME}"}
    posted = api.post()
    assert api.get() == (posted["statusCode"], posted["body"])
    assert posted["statusCode"] == 500


@pytest.mark.parametrize("path", ["/workflows/transfers", "/v1/workflows/transfers/", "/transfers", "/"])
def test_the_location_leads_from_the_requests_own_address_to_the_execution(api: Api, path: str) -> None:
    """A slash at its end makes another relative address."""
    answer = api.call("POST", path, "1", Idempotency_Key="key")

    assert urljoin(path, answer["headers"]["Location"]) == f"{path.rstrip('/')}/{NAME}"


def test_asked_again_while_it_runs_it_may_be_a_conflict(api: Api) -> None:
    api.set_up(running_status=409)
    assert api.post()["statusCode"] == 202
    again = api.post()
    assert (again["statusCode"], again["body"]["detail"], again["headers"]["Retry-After"]) == (409, ARN, "5")


def test_once_it_succeeded_the_stored_result_is_the_answer(api: Api) -> None:
    api.post()
    api.complete('{"transfer_id":"t1"}')
    answer = api.post()
    assert (answer["statusCode"], answer["body"]) == api.get() == (200, {"transfer_id": "t1"})
    assert answer["headers"]["Idempotency-Replayed"] == "true"


@pytest.mark.parametrize(
    ("error", "status", "title", "detail"),
    [
        (OVERDRAWN, 422, "PermanentError", "overdrawn"),
        ('{"type": "TIMED_OUT", "status": 500}', 500, "TIMED_OUT", "The execution failed."),
        ('{"type": "KeyError"}', 500, "KeyError", "The execution failed."),
        ("not JSON", 500, "Failed", "The execution failed."),
        ('{"type": "X", "status": 7}', 500, "Failed", "The execution failed."),
    ],
)
def test_once_it_failed_the_stored_error_is_the_answer(
    api: Api, error: str, status: int, title: str, detail: str
) -> None:
    api.post()
    api.fail(error)
    answer = api.post()
    assert answer["statusCode"] == answer["body"]["status"] == status
    assert (answer["body"]["title"], answer["body"]["detail"]) == (title, detail)
    assert answer["headers"]["Content-Type"] == "application/problem+json"
    assert answer["headers"]["Idempotency-Replayed"] == "true"
    assert api.get() == (status, answer["body"])


@pytest.mark.parametrize(
    ("options", "asked", "said"),
    [
        *(({}, {"key": key}, "") for key in (None, "", "x" * 256, "é")),
        *(({"key": lambda event, made=made: made}, {}, "") for made in (None, "", 7)),
        ({"key": raises}, {}, "no key could be made from the request"),
        ({"scope": raises}, {}, "no scope could be made from the request"),
        ({"scope": tenant}, {"Tenant": ""}, ""),
        ({}, {"body": None}, "there is no body"),
        ({"parse": unreadable}, {}, ""),
        ({}, {"body": '{"amount": NaN}'}, "JSON"),
        ({}, {"body": '{"amount": "\\ud800"}'}, "UTF-8"),
        ({}, {"body": f'"{"x" * 262_144}"'}, "262144"),
    ],
)
def test_what_cannot_be_used_is_a_bad_request_and_nothing_is_stored(
    api: Api, options: dict[str, Any], asked: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether a key, a scope or a body. What raised is only logged, and its text is not."""
    api.set_up(**options)
    answer = api.post(**asked)
    assert (answer["statusCode"], said in answer["body"]["detail"]) == (400, True)
    assert (api.machines.executions, api.store.items) == ({}, {})
    logged = [vars(line) for line in caplog.records]
    if raises in options.values():
        assert logged[0]["reason"].startswith(f"KeyError at {__name__}.raises:")
    assert "secret" not in f"{logged}{answer}"


class Line(BaseModel):
    amount: int


class Order(BaseModel):
    lines: list[Line]
    to: str


def number(body: bytes) -> Any:
    return int(body)


BAD_BODIES: list[tuple[Any, str | bytes, str]] = [
    (json.loads, "", "the body is not JSON"),
    (json.loads, "{secret", "the body is not JSON"),
    (json.loads, "[" * 100_000, "the body is nested too deeply"),
    (json.loads, b"\xffsecret", "the body is not UTF-8"),
    (bytes.decode, b"\xffsecret", "the body is not UTF-8"),
    (
        Order.model_validate_json,
        '{"lines": [{"amount": 1}, {"amount": "secret"}]}',
        "the body is not a Order: lines.1.amount: int_parsing; to: missing",
    ),
    (lambda body: Order.model_validate(json.loads(body)), "[]", "the body is not a Order: body: model_type"),
    (Order.model_validate_json, "{secret", "the body is not a Order: body: json_invalid"),
    (number, "secret", "the body does not match this workflow's input"),
]


@pytest.mark.parametrize(("parse", "body", "said"), BAD_BODIES)
def test_a_body_that_cannot_be_parsed_is_a_bad_request_that_shows_none_of_it(
    api: Api, parse: Any, body: str | bytes, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An exception would be Lambda's error, which clients retry."""
    api.set_up(parse=parse)
    answer = api.post(body)

    assert (answer["statusCode"], answer["body"]["title"]) == (400, "The request is refused")
    assert answer["body"]["detail"] == said
    assert (api.machines.executions, api.store.items) == ({}, {})
    assert "secret" not in f"{answer}{[vars(line) for line in caplog.records]}"


@pytest.mark.parametrize(
    "parse", [Order.model_validate_json, lambda body: {**json.loads(body), "lines": [Line(amount=1)]}]
)
def test_a_parse_may_return_pydantic_models(api: Api, parse: Any) -> None:
    """The machine gets them as plain JSON."""
    api.set_up(parse=parse)

    assert api.post('{"to": "bob", "lines": [{"amount": 1}]}')["statusCode"] == 202
    assert json.loads(api.machines.executions[NAME]["input"])["payload"] == {"to": "bob", "lines": [{"amount": 1}]}


def test_a_payload_that_is_not_json_is_lambdas_error_and_nothing_is_stored(api: Api) -> None:
    """No other body would do better: the parse has to change, not the client."""
    api.set_up(parse=lambda body: {"of": object()})

    with pytest.raises(TypeError, match="object"):
        api.post()
    assert (api.machines.executions, api.store.items) == ({}, {})


def test_what_a_parse_raised_of_its_own_is_logged_by_its_place(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    """It may be the client's fault or the parse's: only its author can tell."""
    api.set_up(parse=number)
    api.post("secret")

    (line,) = [vars(line) for line in caplog.records]
    assert line["reason"].startswith(f"ValueError at {__name__}.number:")


def test_what_is_no_error_of_a_value_is_lambdas(api: Api) -> None:
    """A service that a parse asks may be down: the client's body is not to blame."""

    def asks(body: bytes) -> Any:
        raise ConnectionError

    api.set_up(parse=asks)
    with pytest.raises(ConnectionError):
        api.post()


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "post"])
def test_only_a_post_starts_an_execution(api: Api, method: str) -> None:
    """A client that deletes a transfer does not order one."""
    answer = api.call(method, f"/v1/workflows/{LOCATION}", '{"amount": 1}', Idempotency_Key="key")

    assert (answer["statusCode"], answer["headers"].get("Allow")) == (405, "GET, HEAD, POST")
    assert answer["headers"]["Content-Type"] == "application/problem+json"
    assert answer["body"]["detail"] == "POST starts an execution, and a GET request to its location reports its state."
    assert (api.machines.executions, api.store.items) == ({}, {})


def test_head_of_a_location_is_answered_as_get_is(api: Api) -> None:
    """The way in leaves out the body."""
    assert api.call("HEAD", f"/v1/workflows/{LOCATION}")["statusCode"] == 404
    api.post()

    assert api.call("HEAD", f"/v1/workflows/{LOCATION}") == api.call("GET", f"/v1/workflows/{LOCATION}")
    assert len(api.machines.executions) == 1


def test_another_payload_or_query_string_under_the_key_is_refused(api: Api) -> None:
    """The query may say what is transferred. The order of its names does not matter, nor do blanks in the payload."""
    api.query = "to=bob&amount=5"
    api.post()
    assert api.post('{"amount": 2}')["statusCode"] == 422
    api.query = "amount=5&to=bob"
    assert api.post('{ "amount" : 1 }')["statusCode"] == 202
    api.query = "amount=9&to=bob"
    assert api.post()["statusCode"] == 422


def test_two_tenants_with_one_key_have_two_executions(api: Api) -> None:
    api.set_up(scope=tenant)
    assert api.post(Tenant="a")["body"]["execution"] != api.post(Tenant="b")["body"]["execution"]
    assert len(api.machines.executions) == 2


@pytest.mark.parametrize("several", [True, False])
def test_a_load_balancer_gets_responses_in_its_form(api: Api, several: bool) -> None:
    """For a start, a repeated request, a refusal and a status request."""
    headers = "multiValueHeaders" if several else "headers"

    def ask(method: str, path: str, body: str, **given: str) -> tuple[int, str, dict[str, Any]]:
        told = {name: [value] if several else value for name, value in given.items()}
        event = {"requestContext": {"elb": {}}, "httpMethod": method, "path": path, headers: told, "body": body}
        answer = api.handler(event, CONTEXT)
        return answer["statusCode"], answer["statusDescription"], answer[headers]

    keyed = {"idempotency-key": "key"}
    assert ask("POST", "/transfers", '{"amount": 1}', **keyed)[:2] == (202, "202 Accepted")
    api.complete('{"transfer_id":"t1"}')
    status, described, given = ask("POST", "/transfers", '{"amount": 1}', **keyed)
    assert (status, described, given["Idempotency-Replayed"]) == (200, "200 OK", ["true"] if several else "true")
    assert ask("POST", "/transfers", "{}")[:2] == (400, "400 Bad Request")
    assert ask("GET", "/transfers/none", "")[:2] == (404, "404 Not Found")


@pytest.mark.parametrize("several", [True, False])
def test_every_response_has_the_headers_that_the_user_adds(api: Api, several: bool) -> None:
    """Such as a browser wants them, in the form of the way in."""
    api.set_up(headers=lambda event: {"Access-Control-Allow-Origin": "https://shop.example", "location": "elsewhere"})
    headers = "multiValueHeaders" if several else "headers"

    def ask(method: str, path: str, **given: str) -> tuple[int, dict[str, Any]]:
        told = {name: [value] if several else value for name, value in given.items()}
        balanced = {"requestContext": {"elb": {}}, "httpMethod": method, "path": path, headers: told, "body": "1"}
        answer = api.handler(balanced, CONTEXT)
        return answer["statusCode"], answer[headers]

    keyed, location = {"idempotency-key": "key"}, LOCATION
    answers = [ask("POST", "/transfers", **keyed), ask("POST", "/transfers"), ask("GET", location), ask("GET", "none")]
    assert [status for status, _ in answers] == [202, 400, 200, 404]
    added = "https://shop.example"
    assert [given.get("Access-Control-Allow-Origin") for _, given in answers] == [[added] if several else added] * 4
    assert answers[0][1]["Location"] == ([location] if several else location)
    assert "location" not in answers[0][1]


def test_headers_that_cannot_be_made_change_no_response(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    api.set_up(headers=raises)
    assert api.post()["statusCode"] == 202
    (line,) = [vars(line) for line in caplog.records]
    assert line["reason"].startswith(f"KeyError at {__name__}.raises:")
    assert "secret" not in str(line)


@pytest.mark.parametrize(
    "refusal",
    [
        ClientError({"Error": {"Code": "ThrottlingException"}}, "StartExecution"),
        ReadTimeoutError(endpoint_url="https://states"),
    ],
)
def test_a_503_does_not_say_that_nothing_was_done(api: Api, refusal: Exception) -> None:
    """The answer to a start may be lost although it took effect, and a sweep starts what was claimed."""
    api.machines.refuses = refusal
    answer = api.post()
    assert (answer["statusCode"], answer["headers"]["Retry-After"]) == (503, "1")
    assert "unknown whether the request took effect" in answer["body"]["detail"]


def test_a_workflow_that_is_none_is_refused_at_set_up() -> None:
    """Usually its store or its client was passed instead."""
    with pytest.raises(TypeError, match=r"needs a Workflow\(store, .*\); it is"):
        workflow_endpoint(MemoryStore("w"), parse=parsed)  # type: ignore[arg-type]  # the slip


def test_without_a_context_the_test_learns_what_to_pass(api: Api) -> None:
    with pytest.raises(TypeError, match="needs Lambda's context"):
        api.handler({"httpMethod": "GET", "path": "/"}, None)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"key": header}, "key must be header"),
        ({"key": payload_key()}, "key must be header"),
        *(({"scope": wrong}, "scope must be a callable") for wrong in ("tenant", header, payload_key("tenant"))),
        ({"payload": None}, "payload must be a Payload"),
        ({"headers": {"Vary": "Origin"}}, "headers must be a callable"),
        ({"parse": None}, "parse must be a callable"),
        ({"running_status": 200}, "202 or 409"),
    ],
)
def test_what_would_refuse_every_request_is_refused_at_set_up(api: Api, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        api.set_up(**wrong)
