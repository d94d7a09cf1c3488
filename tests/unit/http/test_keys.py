"""HTTP: which key a request has, whose it is, and which requests have none that can be used."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from aws_lambda_powertools import Logger

from idempotent_receiver import Payload, UnusableKey, header, payload_key, powertools_key
from tests.unit.http.api import FORMATS, WITHOUT_A_QUERY, Api, problem, raising, replayed, request

with_header_names = pytest.mark.parametrize("name", ["idempotency-key", "IDEMPOTENCY-KEY", "Idempotency-Key"])


@pytest.mark.parametrize("form", FORMATS)
@with_header_names
def test_the_headers_name_may_be_in_any_case(api: Api, form: str, name: str) -> None:
    event = request(None, form=form, headers={name: "k-1"})
    alone = event if form == "alb-multi" else {part: event[part] for part in event if part != "multiValueHeaders"}

    assert [api(each)["statusCode"] for each in (event, event, alone)] == [201, 201, 201]
    assert len(api.runs) == 1


@pytest.mark.parametrize(
    ("one", "other", "kept"),
    [
        ('"k-\\"1"', 'k-"1', 'k-"1'),
        *(('"k-1"', f'"k-1"{behind}', "k-1") for behind in ("", ";v=1", "; v=1;w", ' ; v="2"', ";" + "x" * 300)),
    ],
)
def test_a_key_may_be_quoted_as_in_the_draft_with_parameters_behind(api: Api, one: str, other: str, kept: str) -> None:
    """A structured field may have them, and a proxy may add some: they are no part of the key."""
    assert [replayed(api(request(key))) for key in (one, other)] == [False, True]
    assert list(api.store.items) == [f"tests#{kept}"]


@pytest.mark.parametrize("key", ["k-1;v=1", '"k-1;v=1"', '"k-1"v=1', '"k-1;v=1', 'k-1";v=1'])
def test_what_looks_like_a_parameter_elsewhere_is_part_of_the_key(api: Api, key: str) -> None:
    """Behind a plain key, within the quotes, or without a semicolon."""
    assert [replayed(api(request(each))) for each in ("k-1", key)] == [False, False]
    assert len(api.store.items) == 2


def test_a_key_may_have_255_characters(api: Api) -> None:
    assert api(request("x" * 255))["statusCode"] == 201
    assert list(api.store.items) == [f"tests#{'x' * 255}"]


NONE, UNUSABLE, TWO = "No idempotency key", "The idempotency key cannot be used", "more than once"
TWICE = {"Idempotency-Key": "k-1", "idempotency-key": "k-2"}


@pytest.mark.parametrize(
    ("event", "title", "detail"),
    [
        *((request(key), NONE, "Idempotency-Key") for key in (None, "", "  ", '""', '"";v=1')),
        *((request(key), UNUSABLE, "") for key in ("x" * 256, "schlüssel", "a\x00b", "a\nb")),
        ({**request(), "multiValueHeaders": {name: [key] for name, key in TWICE.items()}}, UNUSABLE, TWO),
        ({**request(), "multiValueHeaders": None, "headers": TWICE}, UNUSABLE, TWO),
        ({**request(form="alb-multi"), "multiValueHeaders": {"idempotency-key": ["k-1", "k-2"]}}, UNUSABLE, TWO),
    ],
)
def test_without_one_usable_key_it_is_a_bad_request(api: Api, event: dict[str, Any], title: str, detail: str) -> None:
    told = problem(api(event), 400)
    assert (told["title"], detail in told["detail"]) == (title, True)
    assert api.untouched


@pytest.mark.parametrize("form", FORMATS)
@with_header_names
def test_a_key_that_was_sent_twice_and_joined_is_a_bad_request(api: Api, form: str, name: str) -> None:
    """Payload format 2.0, or a proxy, joins the two. That would be another key, and run again."""
    for joined in ("k-1,k-1", "k-1, k-2", '"k-1","k-1"', '"k-1,k-1"', "k-1,", ","):
        told = problem(api(request(None, form=form, headers={name: joined})), 400)["detail"]
        assert "Idempotency-Key has a comma" in told
        assert "send it once" in told
    assert api.untouched


@with_header_names
def test_the_same_key_sent_twice_is_that_key_if_the_event_has_all_values(api: Api, name: str) -> None:
    """Payload format 1.0."""
    twice = request(None, headers={name: "k-1"})
    twice["multiValueHeaders"][name] = ["k-1", "k-1"]
    assert api(twice)["statusCode"] == 201
    assert list(api.store.items) == ["tests#k-1"]


def test_a_comma_in_another_header_says_nothing_of_the_key(api: Api) -> None:
    assert api(request(form="http", headers={"Accept": "text/html, */*"}))["statusCode"] == 201


def test_without_a_key_that_is_not_required_the_handler_runs_unprotected() -> None:
    api = Api(required=False)
    for _ in range(2):
        assert api(request(None))["statusCode"] == 201
    assert (api.runs, api.store.asked) == ([request(None)] * 2, [])

    for unusable in (request("x" * 256), request("k-1,k-1", form="http")):
        problem(api(unusable), 400)


MISSING = {
    "a payload's fields": (payload_key("amount"), {"headers": {}}, "the payload has no 'amount'"),
    "Powertools' header": (powertools_key('headers."Idempotency-Key"'), {}, "no data for Powertools' key"),
    "Powertools' field": (powertools_key("powertools_json(body).id"), {"id": None}, "no data for Powertools' key"),
}


@pytest.mark.parametrize(("key", "body", "detail"), MISSING.values(), ids=list(MISSING))
def test_a_key_that_is_missing_is_missing_wherever_it_is_looked_for(key: Any, body: Any, detail: str) -> None:
    """A key of a payload or of Powertools, as a header: unprotected, or a bad request."""
    api, strict = Api(key=key, required=False, scope=None), Api(key=key, scope=None)
    event = request(None, body)
    assert [api(event)["statusCode"] for _ in range(2)] == [201, 201]
    assert (len(api.runs), api.store.asked) == (2, [])
    told = problem(strict(event), 400)
    assert (told["title"], detail in told["detail"]) == (NONE, True)
    assert strict.untouched


@pytest.mark.parametrize("key", [payload_key("amount"), powertools_key("powertools_json(body).id")])
@pytest.mark.parametrize("body", ['{"amount"', "", None])
def test_a_body_that_is_no_json_is_a_bad_request_although_no_key_is_required(key: Any, body: Any) -> None:
    api = Api(key=key, required=False, scope=None)
    told = problem(api({**request(None), "body": body}), 400)
    assert told["title"] == UNUSABLE
    assert api.untouched


def test_a_payload_without_the_fields_to_compare_is_a_bad_request_although_no_key_is_required() -> None:
    """It has a key, so it is not for the handler alone."""
    api = Api(required=False, payload=Payload("total"))
    told = problem(api(request("k-1")), 400)
    assert (told["title"], told["detail"]) == (UNUSABLE, "the payload has no 'total'")
    assert api.untouched


AMOUNT = "dbd60ba7cb9ff9818797bb78ac5cd6668fb93b6c2688da2d9bb7890a642546f4"


@pytest.mark.parametrize(("fields", "without_a_query"), [(None, WITHOUT_A_QUERY), ("amount", AMOUNT)])
def test_with_the_payload_as_the_key_the_query_string_is_part_of_it(fields: str | None, without_a_query: str) -> None:
    """The key of a request without one is byte for byte what it was before queries counted."""
    api = Api(key=payload_key(fields), scope=None)
    queries = (None, "amount=5&to=bob", "amount=9000&to=eve", "to=bob&amount=5")
    answers = [api(request(None, query=query)) for query in queries]
    assert [(answer["statusCode"], replayed(answer)) for answer in answers] == [(201, False)] * 3 + [(201, True)]
    assert next(iter(api.store.items)) == f"tests#{without_a_query}"


def test_a_parameter_that_is_excluded_from_the_key_is_not_compared_either() -> None:
    """Otherwise a retry with another trace id would be a mismatch. A custom payload defines what is compared."""
    key = payload_key(without_query=["trace"])
    api = Api(key=key, scope=None)
    queries = ("amount=5&trace=1", "amount=5&trace=2", "amount=6")
    assert [api(request(None, query=query))["statusCode"] for query in queries] == [201, 201, 201]
    assert len(api.runs) == 2

    strict = Api(key=key, scope=None, payload=Payload())
    strict(request(None, query="trace=1"))
    problem(strict(request(None, query="trace=2")), 422)


def test_clients_without_keys_are_known_by_their_payload() -> None:
    api = Api(key=payload_key("[order, amount]"), scope=None)
    bodies: list[Any] = [{"order": order, "amount": 5, "at": 1} for order in (1, 2, 1)]
    events = [*(request(None, body) for body in bodies), request(None, bodies[0], path="/refunds")]
    assert [replayed(api(event)) for event in events] == [False, False, True, False]
    assert len(api.runs) == 3
    assert "'[order, amount]'" in problem(api(request(None, "text")), 400)["detail"]


def test_a_key_may_be_a_callable_of_ones_own_and_say_itself_why_it_cannot_be_used() -> None:
    api = Api(key=lambda event: json.loads(event["body"])["id"])
    api(request(None, {"id": "7"}))
    assert list(api.store.items) == ["tests#7"]
    assert "of type int" in problem(api(request(None, {"id": 7})), 400)["detail"]
    assert problem(api(request(None, {"id": None})), 400)["detail"] == "the request has no key"
    api = Api(key=raising(UnusableKey("the order is not numbered")))
    assert problem(api(request()), 400)["detail"] == "the order is not numbered"


def test_one_tenant_never_sees_anothers_answer() -> None:
    """Whatever their names and keys."""
    api = Api(scope=lambda event: event["headers"].get("X-Tenant"))
    for tenant, key in (("a", "k"), ("b", "k"), ("a#k", "k"), ("a", "k#k"), ("a%23k", "k")):
        assert not replayed(api(request(key, headers={"X-Tenant": tenant})))
    assert len(api.runs) == 5


@pytest.mark.parametrize("required", [True, False])
@pytest.mark.parametrize(
    ("scope", "detail"),
    [
        (header("X-Tenant"), "the request has no header X-Tenant"),
        (lambda event: None, "its scope is empty"),
        (lambda event: 7, "its scope is of type int, not a string"),
    ],
)
def test_a_request_without_owner_is_refused_even_if_no_key_is_required(scope: Any, detail: str, required: bool) -> None:
    """An authoriser may tell a tenant's number. Only a request without a key runs unprotected."""
    api = Api(scope=scope, required=required)
    told = problem(api(request()), 400)
    assert (told["title"], told["detail"]) == (UNUSABLE, f"the request has no owner: {detail}")
    assert api.untouched


@pytest.mark.parametrize(
    ("scope", "replays"), [(header("X-Tenant"), [False, False, True]), (None, [False, True, True])]
)
def test_with_a_payload_key_clients_share_requests_only_if_the_scope_is_none(scope: Any, replays: list[bool]) -> None:
    """Two customers may order the same."""
    api = Api(key=payload_key(), scope=scope)
    answers = [api(request(None, headers={"X-Tenant": tenant})) for tenant in ("alice", "bob", "alice")]
    assert [replayed(answer) for answer in answers] == replays
    assert len(api.runs) == replays.count(False)


def test_a_tenant_whose_name_is_not_valid_text_is_a_tenant() -> None:
    """A client may write a lone surrogate in JSON; it must neither break the response nor merge two tenants."""
    api = Api(scope=lambda event: json.loads(event["body"])["tenant"], payload=None)
    for tenant in ("\ud800", "\ud801", "%ED%A0%80"):
        assert api(request(body={"tenant": tenant}))["statusCode"] == 201
    assert len(api.runs) == 3


@pytest.mark.parametrize("option", ["scope", "key"])
@pytest.mark.parametrize("required", [True, False])
@pytest.mark.parametrize("texts", [True, False])
def test_a_scope_or_key_that_raises_is_a_bad_request_and_only_logged(option: str, required: bool, texts: bool) -> None:
    """The client sent something unexpected; an exception would become Lambda's error, and be retried."""
    stream = io.StringIO()
    logger = Logger(service=f"raising-{option}-{required}-{texts}", stream=stream)
    options = {option: raising(KeyError("secret"))}
    api = Api(required=required, logger=logger, error_texts=texts, **options)
    told = problem(api(request()), 400)
    assert api.untouched
    assert (told["title"], told["detail"]) == (UNUSABLE, f"no {option} could be made from the request")
    (line,) = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert (line["level"], line["error_type"]) == ("WARNING", "KeyError")
    assert line["at"].startswith(f"{raising.__module__}.raises:")
    assert ("secret" in stream.getvalue()) is texts


@pytest.mark.parametrize("option", ["scope", "key"])
@pytest.mark.parametrize("texts", [True, False])
def test_the_text_of_a_key_that_could_not_be_made_now_is_logged_only_if_asked(option: str, texts: bool) -> None:
    """The service that a key asks may name the customer in its refusal."""
    stream = io.StringIO()
    logger = Logger(service=f"unavailable-{option}-{texts}", stream=stream)
    options: dict[str, Any] = {option: raising(TimeoutError("secret"))}
    problem(Api(logger=logger, error_texts=texts, **options)(request()), 503)
    (line,) = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert (line["level"], line["error_type"]) == ("ERROR", "TimeoutError")
    assert ("secret" in stream.getvalue()) is texts


def test_an_exit_in_a_key_is_the_processs() -> None:
    with pytest.raises(SystemExit):
        Api(key=raising(SystemExit()))(request())
