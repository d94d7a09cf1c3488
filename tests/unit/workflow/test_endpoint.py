"""The response to a request to a workflow."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, Literal
from urllib.parse import parse_qs

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from idempotent_receiver import MemoryStore, PermanentError, header, payload_key
from idempotent_receiver.protocol import transitions
from idempotent_receiver.workflow import Workflow, name_of, workflow_endpoint
from tests.fake_step_functions import MACHINE, FakeStepFunctions
from tests.manual_clock import ManualClock

CONTEXT = SimpleNamespace(get_remaining_time_in_millis=lambda: 10_000, aws_request_id="request")
NAME = name_of("k1")
ARN = f"arn:aws:states:us-east-1:123456789012:execution:transfers:{NAME}"


def parsed(body: bytes) -> Any:
    if not body:
        raise PermanentError("there is no body")
    return json.loads(body)


def tenant(event: Any) -> str:
    return str(event["headers"].get("Tenant", "someone"))


class Api:
    """The endpoint behind API Gateway."""

    def __init__(self, running_status: Literal[202, 409] = 202, *, scoped: bool = False) -> None:
        self.machines = FakeStepFunctions()
        self.query = ""
        self.clock = ManualClock()
        self.workflow = Workflow(
            MemoryStore(namespace="transfers"),
            client=self.machines,  # type: ignore[arg-type]  # it has the two methods that are called
            state_machine_arn=MACHINE,
            timeout_seconds=7200,
            clock=self.clock,
        )
        self.handler = workflow_endpoint(
            self.workflow, parse=parsed, scope=tenant if scoped else None, running_status=running_status
        )

    def ask(self, method: str, path: str, body: str | None = None, **headers: str) -> dict[str, Any]:
        event = {
            "httpMethod": method,
            "path": path,
            "multiValueQueryStringParameters": parse_qs(self.query) or None,
            "headers": {name.replace("_", "-"): value for name, value in headers.items()},
            "body": body,
            "requestContext": {},
        }
        answer = self.handler(event, CONTEXT)
        return {**answer, "body": json.loads(answer["body"])}

    def post(self, body: str | None = '{"amount": 1}', key: str | None = "k1", **headers: str) -> dict[str, Any]:
        keyed = {} if key is None else {"Idempotency_Key": key}
        return self.ask("POST", "/workflows/transfers", body, **keyed, **headers)

    def conclude(self, outcome: Any) -> None:
        self.workflow.conclude(ARN, outcome, self.workflow.deadline(10_000))


@pytest.fixture
def api() -> Api:
    return Api()


def test_a_first_request_is_accepted_with_its_location(api: Api) -> None:
    answer = api.post()
    assert answer["statusCode"] == 202
    assert answer["headers"]["Location"] == f"transfers/{NAME}"
    assert answer["body"] == {"status": "running", "execution": ARN, "location": f"transfers/{NAME}"}


def test_asked_again_while_it_runs_it_says_which_execution(api: Api) -> None:
    first, again = api.post(), api.post()
    assert again == first
    assert len(api.machines.executions) == 1


def test_asked_again_while_it_runs_it_may_be_a_conflict() -> None:
    api = Api(running_status=409)
    assert api.post()["statusCode"] == 202
    again = api.post()
    assert (again["statusCode"], again["body"]["detail"], again["headers"]["Retry-After"]) == (409, ARN, "5")


def test_asked_again_once_it_succeeded_the_stored_result_is_the_answer(api: Api) -> None:
    api.post()
    api.conclude(transitions.completed('{"transfer_id":"t1"}'))
    answer = api.post()
    assert (answer["statusCode"], answer["body"]) == (200, {"transfer_id": "t1"})
    assert answer["headers"]["Idempotency-Replayed"] == "true"


@pytest.mark.parametrize(
    ("error", "status", "title", "detail"),
    [
        ('{"type": "PermanentError", "text": "overdrawn", "status": 422}', 422, "PermanentError", "overdrawn"),
        ('{"type": "TIMED_OUT", "status": 500}', 500, "TIMED_OUT", "The execution failed."),
        ('{"type": "KeyError"}', 500, "KeyError", "The execution failed."),
        ("not JSON", 500, "Failed", "The execution failed."),
        ('{"type": "X", "status": 7}', 500, "Failed", "The execution failed."),
    ],
)
def test_asked_again_once_it_failed_the_stored_error_is_the_answer(
    api: Api, error: str, status: int, title: str, detail: str
) -> None:
    api.post()
    api.conclude(transitions.failed(error))
    answer = api.post()
    assert answer["statusCode"] == answer["body"]["status"] == status
    assert (answer["body"]["title"], answer["body"]["detail"]) == (title, detail)
    assert answer["headers"]["Content-Type"] == "application/problem+json"
    assert answer["headers"]["Idempotency-Replayed"] == "true"


@pytest.mark.parametrize("key", [None, "", "x" * 256, "é"])
def test_without_a_key_that_can_be_used_nothing_is_stored(api: Api, key: str | None) -> None:
    assert api.post(key=key)["statusCode"] == 400
    assert (api.machines.executions, api.workflow.store.items) == ({}, {})  # type: ignore[attr-defined]


def test_without_a_body_nothing_is_stored(api: Api) -> None:
    answer = api.post(body=None)
    assert (answer["statusCode"], answer["body"]["detail"]) == (400, "there is no body")
    assert (api.machines.executions, api.workflow.store.items) == ({}, {})  # type: ignore[attr-defined]


def test_another_payload_under_the_key_is_refused(api: Api) -> None:
    api.post()
    assert api.post('{"amount": 2}')["statusCode"] == 422
    assert api.post('{ "amount" : 1 }')["statusCode"] == 202


def test_another_query_string_under_the_key_is_refused(api: Api) -> None:
    """The query may say what is transferred."""
    api.query = "to=bob&amount=5"
    api.post()
    api.query = "amount=5&to=bob"
    assert api.post()["statusCode"] == 202
    api.query = "amount=9&to=bob"
    assert api.post()["statusCode"] == 422


def test_two_tenants_with_one_key_have_two_executions() -> None:
    api = Api(scoped=True)
    assert api.post(Tenant="a")["body"]["execution"] != api.post(Tenant="b")["body"]["execution"]
    assert len(api.machines.executions) == 2
    assert api.post(Tenant="")["statusCode"] == 400


@pytest.mark.parametrize("several", [True, False])
def test_a_load_balancer_gets_responses_in_its_form(api: Api, several: bool) -> None:
    """For a start, a repeated request, a refusal and a status request."""

    def ask(method: str, path: str, body: str, **headers: str) -> tuple[int, str, dict[str, Any]]:
        told = {name: [value] if several else value for name, value in headers.items()}
        event = {
            "requestContext": {"elb": {}},
            "httpMethod": method,
            "path": path,
            "multiValueHeaders" if several else "headers": told,
            "body": body,
        }
        answer = api.handler(event, CONTEXT)
        return answer["statusCode"], answer["statusDescription"], answer["multiValueHeaders" if several else "headers"]

    keyed = {"idempotency-key": "k1"}
    assert ask("POST", "/transfers", '{"amount": 1}', **keyed)[:2] == (202, "202 Accepted")
    api.conclude(transitions.completed('{"transfer_id":"t1"}'))
    status, described, headers = ask("POST", "/transfers", '{"amount": 1}', **keyed)
    assert (status, described, headers["Idempotency-Replayed"]) == (200, "200 OK", ["true"] if several else "true")
    assert ask("POST", "/transfers", "{}")[:2] == (400, "400 Bad Request")
    assert ask("GET", "/transfers/none", "")[:2] == (404, "404 Not Found")


@pytest.mark.parametrize("option", ["scope", "key"])
def test_a_scope_or_a_key_that_raises_is_a_bad_request_and_only_logged(
    api: Api, option: str, caplog: pytest.LogCaptureFixture
) -> None:
    def raises(event: Any) -> str:
        raise KeyError("secret")

    api.handler = workflow_endpoint(api.workflow, parse=parsed, **{option: raises})  # type: ignore[arg-type]
    answer = api.post()

    assert (answer["statusCode"], answer["body"]["detail"]) == (400, f"no {option} could be made of the request")
    assert (api.machines.executions, api.workflow.store.items) == ({}, {})  # type: ignore[attr-defined]
    (logged,) = [vars(line) for line in caplog.records]
    assert logged["reason"].startswith(f"KeyError at {__name__}.raises:")
    assert "secret" not in str(logged)


def test_a_refusal_whose_text_cannot_be_read_is_a_bad_request(api: Api) -> None:
    class Exits(PermanentError):
        def __str__(self) -> str:
            raise SystemExit

    def raises(body: bytes) -> Any:
        raise Exits

    api.handler = workflow_endpoint(api.workflow, parse=raises)
    assert api.post()["statusCode"] == 400


@pytest.mark.parametrize("made", [None, "", 7])
def test_what_a_key_strategy_makes_is_a_text_or_a_bad_request(api: Api, made: Any) -> None:
    api.handler = workflow_endpoint(api.workflow, parse=parsed, key=lambda event: made)
    assert api.post()["statusCode"] == 400


def test_what_cannot_be_started_is_to_be_asked_again(api: Api) -> None:
    api.machines.refuses = ClientError({"Error": {"Code": "ThrottlingException"}}, "StartExecution")
    answer = api.post()
    assert (answer["statusCode"], answer["headers"]["Retry-After"]) == (503, "1")


def test_a_503_does_not_say_that_nothing_was_done(api: Api) -> None:
    """The answer to a start may be lost although it took effect, and a sweep starts what was claimed."""
    api.machines.refuses = ReadTimeoutError(endpoint_url="https://states")
    assert "not known whether it is done" in api.post()["body"]["detail"]


@pytest.mark.parametrize(
    ("body", "said"),
    [('{"amount": NaN}', "JSON"), ('{"amount": "\\ud800"}', "UTF-8"), (f'"{"x" * 262_144}"', "262144")],
)
def test_what_step_functions_cannot_take_is_refused_and_nothing_is_stored(api: Api, body: str, said: str) -> None:
    answer = api.post(body)
    assert answer["statusCode"] == 400
    assert said in answer["body"]["detail"]
    assert api.workflow.store.items == {}  # type: ignore[attr-defined]


def test_a_location_tells_how_far_it_is(api: Api) -> None:
    path = f"/v1/workflows/transfers/{NAME}"
    assert api.ask("GET", path)["statusCode"] == 404
    api.post()
    seen = api.ask("GET", path)
    assert (seen["statusCode"], seen["body"]) == (200, {"status": "running", "execution": ARN})
    api.conclude(transitions.completed("7"))
    assert (api.ask("GET", path)["statusCode"], api.ask("GET", path)["body"]) == (200, 7)


def test_a_location_tells_of_a_failure_with_its_status(api: Api) -> None:
    api.post()
    api.conclude(transitions.failed('{"type": "PermanentError", "text": "overdrawn", "status": 422}'))
    seen = api.ask("GET", f"/workflows/transfers/{NAME}")
    assert (seen["statusCode"], seen["body"]["detail"]) == (422, "overdrawn")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"key": header}, "key must be header"),
        ({"key": payload_key()}, "key must be header"),
        ({"scope": "tenant"}, "scope must be a callable"),
        ({"payload": None}, "payload must be a Payload"),
        ({"parse": None}, "parse must be a callable"),
    ],
)
def test_what_would_refuse_every_request_is_refused_at_set_up(api: Api, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        workflow_endpoint(api.workflow, **{"parse": parsed, **wrong})


def test_another_status_for_what_runs_is_refused_at_set_up() -> None:
    with pytest.raises(ValueError, match="202 or 409"):
        Api(running_status=200)  # type: ignore[arg-type]
