"""HTTP: the response to a new request, to a repeated or concurrent one, and to another one under the same key."""

from __future__ import annotations

import base64
import io
import json
from contextlib import suppress
from contextvars import Context
from typing import Any
from urllib.parse import parse_qs

import pytest
from aws_lambda_powertools import Logger

from idempotent_receiver import (
    MemoryStore,
    Payload,
    Transaction,
    UnusableKey,
    body_field,
    current_claim,
    header,
    http_endpoint,
    message_id,
    payload_key,
)
from idempotent_receiver.http.request import InvalidRequest, request_of
from tests.contexts import Context as Invocation
from tests.counting_store import CountingStore
from tests.manual_clock import ManualClock

WITHOUT_A_QUERY = "c4b77a97d73c9c35f47ab971e3f82956ea62f9d6882ab0427cd6f8ca54324ec1"
"""The fingerprint of `request()`, pinned."""

TELL_ALL = ("rest", "http", "url", "alb-multi")
"""The forms in which all values of one parameter are told."""

FORMATS = (*TELL_ALL, "alb")


def request(
    key: str | None = "k-1",
    body: Any = None,
    *,
    form: str = "rest",
    method: str = "POST",
    path: str = "/transfers",
    query: str | None = None,
    headers: dict[str, str] | None = None,
) -> dict[str, Any]:
    """The event that API Gateway's REST and HTTP APIs, Function URLs or Application Load Balancers make of a request
    with this query string.
    """
    asked = parse_qs(query or "", keep_blank_values=True)
    text = json.dumps({"amount": 5} if body is None else body)
    sent = {**({} if key is None else {"Idempotency-Key": key}), **(headers or {})}
    if form == "rest":
        return {
            "httpMethod": method,
            "path": path,
            "queryStringParameters": {name: values[-1] for name, values in asked.items()} or None,
            "multiValueQueryStringParameters": asked or None,
            "headers": sent,
            "multiValueHeaders": {name: [value] for name, value in sent.items()},
            "body": text,
            "isBase64Encoded": False,
            "requestContext": {"identity": {}},
        }
    if form.startswith("alb"):
        return balanced(method, path, query or "", sent, text, several=form == "alb-multi")
    return {
        "version": "2.0",
        "rawPath": path,
        "rawQueryString": query or "",
        **({"queryStringParameters": {name: ",".join(values) for name, values in asked.items()}} if asked else {}),
        "headers": {name.lower(): value for name, value in sent.items()},
        "requestContext": {"http": {"method": method, "path": path}},
        "body": base64.b64encode(text.encode()).decode() if form == "url" else text,
        "isBase64Encoded": form == "url",
    }


def balanced(
    method: str, path: str, query: str, headers: dict[str, str], body: str, *, several: bool
) -> dict[str, Any]:
    """A load balancer's event: its parameters are encoded as sent, in one of two mappings, according to the target
    group's setting.
    """
    told: dict[str, list[str]] = {}
    for name, _, value in (part.partition("=") for part in query.split("&") if part):
        told.setdefault(name, []).append(value)
    lower = {name.lower(): value for name, value in headers.items()}
    last = {name: values[-1] for name, values in told.items()}
    return {
        "requestContext": {
            "elb": {"targetGroupArn": "arn:aws:elasticloadbalancing:us-east-1:123456789012:targetgroup/a/1"}
        },
        "httpMethod": method,
        "path": path,
        **({"multiValueQueryStringParameters": told} if several else {"queryStringParameters": last}),
        **({"multiValueHeaders": {name: [value] for name, value in lower.items()}} if several else {"headers": lower}),
        "body": body,
        "isBase64Encoded": False,
    }


ANSWER = {
    "statusCode": 201,
    "headers": {"Content-Type": "application/json", "X-Own": "a"},
    "multiValueHeaders": {"Set-Cookie": ["a=1", "b=2"]},
    "cookies": ["c=3"],
    "body": '{"a": 1,\n "b": "ü"}',
    "isBase64Encoded": False,
}


class Api:
    """A wrapped handler that counts its runs."""

    def __init__(self, clock: ManualClock, store: CountingStore, **options: Any) -> None:
        self.clock = clock
        self.runs: list[dict[str, Any]] = []
        self.does: Any = lambda event: {**ANSWER, "headers": {**ANSWER["headers"], "X-Run": str(len(self.runs))}}  # type: ignore[dict-item]

        @http_endpoint(store, clock=clock, **options)
        def handler(event: dict[str, Any], context: object) -> Any:
            self.runs.append(event)
            return self.does(event)

        self.handler = handler

    def __call__(self, event: dict[str, Any], seconds: float = 30) -> Any:
        return self.handler(event, Invocation(self.clock, seconds))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


@pytest.fixture
def api(clock: ManualClock, store: CountingStore) -> Api:
    return Api(clock, store)


def replayed(response: dict[str, Any]) -> bool:
    """Whether a response is marked as a replay, in the mapping where its form has headers."""
    several = response.get("multiValueHeaders", {}).get("Idempotency-Replayed")
    return several == ["true"] or response["headers"].get("Idempotency-Replayed") == "true"


def problem(response: dict[str, Any], status: int) -> dict[str, Any]:
    """The problem details of a response, checked for their form."""
    assert response["statusCode"] == status
    headers = response.get("headers") or {name: value for name, [value] in response["multiValueHeaders"].items()}
    assert (headers["Content-Type"], headers["Cache-Control"]) == ("application/problem+json", "no-store")
    told = json.loads(response["body"])
    assert told["status"] == status
    assert told["title"]
    return dict(told)


@pytest.mark.parametrize("form", FORMATS)
def test_a_request_sent_again_gets_the_first_answer_byte_for_byte(api: Api, store: CountingStore, form: str) -> None:
    """Status, headers, cookies and body, marked as a replay. Two requests to the table, then one."""
    first = api(request(form=form))
    assert store.asked == ["insert", "replace"]
    store.asked.clear()
    again = api(request(form=form))

    assert store.asked == ["insert"]
    assert not replayed(first)
    if form == "alb-multi":
        assert again == {**first, "multiValueHeaders": {**first["multiValueHeaders"], "Idempotency-Replayed": ["true"]}}
    else:
        assert again == {**first, "headers": {**first["headers"], "Idempotency-Replayed": "true"}}
    assert len(api.runs) == 1


def test_a_binary_body_comes_back_as_it_was(api: Api) -> None:
    body = base64.b64encode(bytes(range(256))).decode()
    api.does = lambda event: {"statusCode": 200, "body": body, "isBase64Encoded": True}
    api(request())

    again = api(request())
    assert (again["body"], again["isBase64Encoded"]) == (body, True)


@pytest.mark.parametrize("answer", [{"ok": True}, "text", None, [1]])
def test_an_answer_without_a_status_is_replayed_as_api_gateway_sent_it(api: Api, answer: Any) -> None:
    """Payload format 2.0 makes a 200 response of any JSON that a function returns."""
    api.does = lambda event: answer
    assert api(request(form="http")) == answer

    again = api(request(form="http"))
    assert again["statusCode"] == 200
    assert again["headers"] == {"Content-Type": "application/json", "Idempotency-Replayed": "true"}
    assert again["body"] == (answer if isinstance(answer, str) else json.dumps(answer, separators=(",", ":")))


@pytest.mark.parametrize("status", [200, 404, 500])
def test_every_answer_that_is_returned_is_kept(api: Api, status: int) -> None:
    """Error responses too: a client that asks again must get the same response."""
    api.does = lambda event: {"statusCode": status, "body": str(len(api.runs))}

    assert api(request())["body"] == api(request())["body"] == "1"


def test_a_policy_says_which_statuses_are_final(clock: ManualClock, store: CountingStore) -> None:
    api = Api(clock, store, is_final=lambda status: status < 500)
    answers = iter([{"statusCode": "503", "body": "later"}, {"statusCode": 200, "body": "done"}])
    api.does = lambda event: next(answers)

    assert [api(request())["body"] for _ in range(3)] == ["later", "done", "done"]
    assert len(api.runs) == 2


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", ["idempotency-key", "IDEMPOTENCY-KEY", "Idempotency-Key"])
def test_the_headers_name_may_be_in_any_case(api: Api, form: str, name: str) -> None:
    event = request(None, form=form, headers={name: "k-1"})
    alone = event if form == "alb-multi" else {part: event[part] for part in event if part != "multiValueHeaders"}

    assert [api(each)["statusCode"] for each in (event, event, alone)] == [201, 201, 201]
    assert len(api.runs) == 1


def test_a_key_may_be_quoted_as_the_draft_has_it(api: Api, store: CountingStore) -> None:
    api(request('"k-\\"1"'))
    api(request('k-"1'))

    assert len(api.runs) == 1
    assert list(store.items) == ['tests#k-"1']


@pytest.mark.parametrize("key", [None, "", "  ", '""'])
def test_no_key_is_a_bad_request(api: Api, key: str | None) -> None:
    told = problem(api(request(key)), 400)

    assert "Idempotency-Key" in told["detail"]
    assert told["title"] == "No idempotency key"
    assert api.runs == []


@pytest.mark.parametrize("key", ["x" * 256, "schlüssel", "a\x00b", "a\nb"])
def test_a_key_that_cannot_be_used_is_a_bad_request(api: Api, key: str) -> None:
    problem(api(request(key)), 400)
    assert api.runs == []


ALB = request(form="alb-multi")


@pytest.mark.parametrize(
    "event",
    [
        {**request(), "multiValueHeaders": {"Idempotency-Key": ["k-1"], "idempotency-key": ["k-2"]}},
        {**request(), "multiValueHeaders": None, "headers": {"Idempotency-Key": "k-1", "idempotency-key": "k-2"}},
        {**ALB, "multiValueHeaders": {"idempotency-key": ["k-1", "k-2"]}},
    ],
    ids=["two spellings", "two spellings of single values", "a load balancer"],
)
def test_two_keys_are_a_bad_request(api: Api, event: dict[str, Any]) -> None:
    assert "more than once" in problem(api(event), 400)["detail"]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", ["idempotency-key", "IDEMPOTENCY-KEY", "Idempotency-Key"])
def test_a_key_that_was_sent_twice_and_joined_is_a_bad_request(
    api: Api, store: CountingStore, form: str, name: str
) -> None:
    """Payload format 2.0, or a proxy, joins the two. That would be another key, and run again."""
    for joined in ("k-1,k-1", "k-1, k-2", '"k-1","k-1"', '"k-1,k-1"', "k-1,", ","):
        event = request(None, form=form, headers={name: joined})
        told = problem(api(event), 400)["detail"]
        assert "Idempotency-Key has a comma" in told
        assert "send it once" in told

    assert (api.runs, store.asked) == ([], [])


@pytest.mark.parametrize("name", ["idempotency-key", "IDEMPOTENCY-KEY", "Idempotency-Key"])
def test_the_same_key_sent_twice_is_that_key_if_the_event_has_all_values(
    api: Api, store: CountingStore, name: str
) -> None:
    """Payload format 1.0."""
    twice = request(None, headers={name: "k-1"})
    twice["multiValueHeaders"][name] = ["k-1", "k-1"]

    assert api(twice)["statusCode"] == 201
    assert list(store.items) == ["tests#k-1"]


def test_a_comma_in_another_header_says_nothing_of_the_key(api: Api) -> None:
    assert api(request(form="http", headers={"Accept": "text/html, */*"}))["statusCode"] == 201


def test_without_a_key_that_is_not_required_the_handler_runs_unprotected(
    clock: ManualClock, store: CountingStore
) -> None:
    api = Api(clock, store, required=False)
    for _ in range(2):
        assert api(request(None))["statusCode"] == 201
    assert (len(api.runs), store.asked) == (2, [])

    for unusable in (request("x" * 256), request("k-1,k-1", form="http")):
        problem(api(unusable), 400)


@pytest.mark.parametrize(
    "other",
    [
        {"body": {"amount": 6}},
        {"method": "PUT"},
        {"path": "/refunds"},
    ],
)
@pytest.mark.parametrize("form", FORMATS)
def test_another_request_under_the_same_key_is_refused(api: Api, other: dict[str, Any], form: str) -> None:
    """Method, path and payload are compared."""
    api(request(form=form))

    problem(api(request(form=form, **other)), 422)
    assert len(api.runs) == 1


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    ("query", "other"),
    [
        ("amount=5&to=bob", "amount=9000&to=eve"),
        ("amount=5&to=bob", "amount=5"),
        ("a=1&a=2", "a=2&a=1"),
        ("a=1", "A=1"),
        ("a=", "a=&b="),
        ("a=1&b=2", "a=1%26b=2"),
        ("a=1", None),
        (None, "a=1"),
        (None, "a"),
    ],
)
def test_another_query_string_under_the_same_key_is_refused(
    api: Api, form: str, query: str | None, other: str | None
) -> None:
    """Names and values are compared, and the order of one name's values."""
    api(request(form=form, query=query))

    assert "query string" in problem(api(request(form=form, query=other)), 422)["detail"]
    assert len(api.runs) == 1


@pytest.mark.parametrize(
    ("form", "query", "other"),
    [
        # A load balancer that passes single values passes only the last one.
        *[(form, "amount=5", "amount=5&amount=5") for form in TELL_ALL],
        # A load balancer does not decode names, so it passes `to` and `t%6f` as two names.
        *[(form, "to=bob&t%6f=eve", "to=bob&t%6f=alice") for form in ("alb", "alb-multi")],
        # A REST API decodes bytes that are no text itself.
        *[(form, "a=%ff", "a=%fe") for form in ("http", "url", "alb", "alb-multi")],
    ],
)
def test_a_query_string_hides_nothing_where_its_form_tells_it(api: Api, form: str, query: str, other: str) -> None:
    assert api(request(form=form, query=query))["statusCode"] == 201
    problem(api(request(form=form, query=other)), 422)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    ("query", "same"),
    [
        ("amount=5&to=bob", "to=bob&amount=5"),
        ("a=1&b=x&a=2", "b=x&a=1&a=2"),
        ("a", "a="),
        ("", "&"),
        (None, ""),
        ("a%20b=c+d", "a+b=c%20d"),
        ("to=%62ob", "to=bob"),
        ("to=%c3%bc", "to=%C3%BC"),
    ],
)
def test_equal_query_strings_may_be_written_differently(api: Api, form: str, query: str | None, same: str) -> None:
    """The order of names and the encoding do not matter; a name without a value has an empty one."""
    first, again = api(request(form=form, query=query)), api(request(form=form, query=same))

    assert first["statusCode"] == 201
    assert replayed(again)


@pytest.mark.parametrize("query", ["b=c+d&a=%C3%BC&a=&b", "a=1&a=2", "x[]=1&x[]=%5B"])
def test_a_query_string_is_the_same_in_every_event_format(query: str) -> None:
    """A function may be behind several services."""
    assert len({request_of(request(form=form, query=query)).query for form in TELL_ALL}) == 1


def test_an_event_that_was_written_by_hand_may_have_the_short_form_of_a_query_alone() -> None:
    rest, http = request(), request(form="http")
    parameters = {"queryStringParameters": {"b": "2", "a": "1"}}
    short = {name: value for name, value in rest.items() if name != "multiValueQueryStringParameters"}

    for event in ({**short, **parameters}, {**http, **parameters}):
        assert request_of(event).query == (("a", "1"), ("b", "2"))


def test_a_request_without_a_query_matches_a_record_from_before_queries_counted(api: Api, store: CountingStore) -> None:
    """As test_payload.py pins it: an upgrade must neither refuse a client's retry nor run it again."""
    first = api(request())
    assert store.items["tests#k-1"]["validation"] == WITHOUT_A_QUERY
    for form in FORMATS:
        again = api(request(form=form))
        assert replayed(again)
        assert again["body"] == first["body"]


@pytest.mark.parametrize(
    ("fields", "without_a_query"),
    [
        (None, WITHOUT_A_QUERY),
        ("amount", "dbd60ba7cb9ff9818797bb78ac5cd6668fb93b6c2688da2d9bb7890a642546f4"),
    ],
)
def test_with_the_payload_as_the_key_the_query_string_is_part_of_it(
    clock: ManualClock, store: CountingStore, fields: str | None, without_a_query: str
) -> None:
    """The key of a request without one is byte for byte what it was before queries counted."""
    api = Api(clock, store, key=payload_key(fields))
    queries = (None, "amount=5&to=bob", "amount=9000&to=eve", "to=bob&amount=5")
    answers = [api(request(None, query=query)) for query in queries]

    assert [answer["statusCode"] for answer in answers] == [201, 201, 201, 201]
    assert len(api.runs) == 3
    assert next(iter(store.items)) == f"tests#{without_a_query}"
    assert "Idempotency-Replayed" in answers[3]["headers"]


@pytest.mark.parametrize("form", FORMATS)
def test_a_parameter_may_be_excluded(clock: ManualClock, store: CountingStore, form: str) -> None:
    """Such as one against caching; a request with only this parameter is like one without a query."""
    api = Api(clock, store, payload=Payload(without_query=["trace", "_"]))
    for query in ("amount=5&trace=1", "trace=2&amount=5", "amount=5&_=7&trace", "amount=5"):
        assert api(request(form=form, query=query))["statusCode"] == 201
    problem(api(request(form=form, query="amount=5&Trace=1")), 422)
    assert len(api.runs) == 1

    api(request("k-2", form=form, query="trace=1"))
    assert store.items["tests#k-2"]["validation"] == WITHOUT_A_QUERY


def test_a_parameter_that_is_excluded_from_the_key_is_not_compared_either(
    clock: ManualClock, store: CountingStore
) -> None:
    """Otherwise a retry with another trace id would be a mismatch. A custom payload defines what is compared."""
    key = payload_key(without_query=["trace"])
    api = Api(clock, store, key=key)
    queries = ("amount=5&trace=1", "amount=5&trace=2", "amount=6")
    assert [api(request(None, query=query))["statusCode"] for query in queries] == [201, 201, 201]
    assert len(api.runs) == 2

    strict = Api(clock, CountingStore(), key=key, payload=Payload())
    strict(request(None, query="trace=1"))
    problem(strict(request(None, query="trace=2")), 422)


def test_fields_of_the_payload_do_not_leave_out_the_query_string(clock: ManualClock, store: CountingStore) -> None:
    api = Api(clock, store, payload=Payload("amount"))
    api(request(query="a=1"))
    problem(api(request(query="a=2")), 422)


def test_equal_requests_may_be_written_differently(api: Api) -> None:
    """White space, the order of names and other headers do not matter."""
    api(request(body={"amount": 5, "to": "a"}))
    event = request(headers={"User-Agent": "another"})
    event["body"] = '{ "to":"a",  "amount": 5 }'

    assert api(event)["headers"]["Idempotency-Replayed"] == "true"


@pytest.mark.parametrize("form", FORMATS)
def test_a_payload_that_says_something_twice_is_no_other(api: Api, form: str) -> None:
    def sent(body: str) -> dict[str, Any]:
        text = base64.b64encode(body.encode()).decode() if form == "url" else body
        return {**request(form=form), "body": text}

    api(sent('{"amount": 9}'))
    problem(api(sent('{"amount": 1, "amount": 9}')), 422)
    assert len(api.runs) == 1


def test_a_body_that_is_no_valid_text_has_a_fingerprint(api: Api) -> None:
    """A client may send a lone surrogate."""
    assert api({**request(), "body": "\ud800"})["statusCode"] == 201
    problem(api({**request(), "body": "\ud801"}), 422)


def test_what_counts_of_a_payload_is_for_the_user_to_say(clock: ManualClock, store: CountingStore) -> None:
    api = Api(clock, store, payload=Payload(without=["sent_at"]))
    api(request(body={"amount": 5, "sent_at": 1}))

    assert api(request(body={"amount": 5, "sent_at": 2}))["statusCode"] == 201
    problem(api(request(body={"amount": 6, "sent_at": 1})), 422)


@pytest.mark.parametrize(
    ("options", "passed_seconds", "retry_after"),
    [
        ({}, 10.5, "1"),
        ({"retry_after_seconds": 5}, 10.5, "5"),
        ({"retry_after_seconds": 60}, 10.5, "23"),
        ({"retry_after_seconds": 60}, 32.9, "1"),
    ],
)
def test_a_request_that_still_runs_is_a_conflict_that_says_when_to_retry(
    clock: ManualClock, store: CountingStore, options: dict[str, int], passed_seconds: float, retry_after: str
) -> None:
    """After a second, or as configured; never after the lease's end, 33 seconds after its start."""
    api = Api(clock, store, **options)
    inside = []

    def does(event: dict[str, Any]) -> Any:
        clock.seconds += passed_seconds
        inside.append(Context().run(api, request()))
        return ANSWER

    api.does = does
    api(request(), seconds=30)

    problem(inside[0], 409)
    assert inside[0]["headers"]["Retry-After"] == retry_after
    assert len(api.runs) == 1


def test_a_request_may_wait_for_the_one_that_runs_and_get_its_answer(clock: ManualClock, store: CountingStore) -> None:
    api = Api(clock, store, wait_seconds=5)
    first = api(request())
    done = dict(store.items["tests#k-1"])
    store.items["tests#k-1"] |= {"status": "INPROGRESS", "in_progress_expiration": clock.epoch_ms() + 20_000}
    store.before = lambda name: store.items.update({"tests#k-1": done}) if clock.seconds >= 2 else None

    again = api(request())

    assert again["body"] == first["body"]
    assert again["headers"]["Idempotency-Replayed"] == "true"
    assert 2 <= clock.seconds < 3, "soon after it was there"
    assert len(clock.sleeps) < 12


@pytest.mark.parametrize(("seconds", "waited"), [(30, 5), (4, 3)])
def test_a_wait_is_bounded_by_the_option_and_by_the_deadline(
    clock: ManualClock, store: CountingStore, seconds: float, waited: float
) -> None:
    api = Api(clock, store, wait_seconds=5)
    api(request())
    store.items["tests#k-1"] |= {"status": "INPROGRESS", "in_progress_expiration": clock.epoch_ms() + 60_000}

    problem(api(request(), seconds=seconds), 409)
    assert clock.seconds == pytest.approx(waited)


def test_who_waits_takes_over_what_becomes_claimable(clock: ManualClock, store: CountingStore) -> None:
    api = Api(clock, store, wait_seconds=5)
    api(request())
    store.items["tests#k-1"] |= {"status": "INPROGRESS", "in_progress_expiration": clock.epoch_ms() + 2_000}

    assert "Idempotency-Replayed" not in api(request())["headers"]
    assert len(api.runs) == 2


def test_an_exception_is_lambdas_and_the_next_request_runs_again(api: Api, store: CountingStore) -> None:
    keys = []

    def does(event: dict[str, Any]) -> Any:
        keys.append(current_claim().idempotency_key)
        if len(keys) == 1:
            raise ConnectionError("secret")
        return ANSWER

    api.does = does
    with pytest.raises(ConnectionError):
        api(request())
    assert "secret" not in json.dumps(store.items)

    assert api(request()) == ANSWER
    assert len(set(keys)) == 1


def test_an_exception_may_be_the_last_word_and_tells_nothing(clock: ManualClock, store: CountingStore) -> None:
    api = Api(clock, store, on_exception="replay")

    def does(event: dict[str, Any]) -> Any:
        raise ConnectionError("secret")

    api.does = does
    first, again = api(request()), api(request())

    problem(first, 500)
    assert "secret" not in json.dumps([first, store.items])
    assert again == {**first, "headers": {**first["headers"], "Idempotency-Replayed": "true"}}
    assert len(api.runs) == 1


def test_an_exception_that_could_not_be_recorded_is_not_final(clock: ManualClock, store: CountingStore) -> None:
    """The next request may succeed."""
    api = Api(clock, store, on_exception="replay")

    def does(event: dict[str, Any]) -> Any:
        store.down = {"replace", "read"}
        raise ConnectionError

    api.does = does
    problem(api(request()), 503)


def test_a_process_that_is_told_to_end_ends_whatever_the_policy(clock: ManualClock, store: CountingStore) -> None:
    api = Api(clock, store, on_exception="replay")

    def does(event: dict[str, Any]) -> Any:
        raise SystemExit(1)

    api.does = does
    with pytest.raises(SystemExit):
        api(request())


def test_a_lost_claim_is_answered_with_the_winners_answer(api: Api, clock: ManualClock) -> None:
    def does(event: dict[str, Any]) -> Any:
        if current_claim().attempt == 1:
            clock.seconds += 34
            assert Context().run(api, request())["body"] == "the winner's"
            return {"statusCode": 200, "body": "the loser's"}
        return {"statusCode": 200, "body": "the winner's"}

    api.does = does
    response = api(request())
    assert response == {"statusCode": 200, "body": "the winner's", "headers": {"Idempotency-Replayed": "true"}}


@pytest.mark.parametrize(("left_ms", "retry_after"), [(60_000, "5"), (2_001, "3"), (1_500, "2"), (0, "1")])
def test_a_lost_claim_whose_winner_still_runs_is_a_conflict(
    clock: ManualClock, store: CountingStore, left_ms: int, retry_after: str
) -> None:
    api = Api(clock, store, retry_after_seconds=5)

    def does(event: dict[str, Any]) -> Any:
        lease = {"in_progress_expiration": clock.epoch_ms() + left_ms}
        store.items["tests#k-1"] |= {"version": "another's", **lease}
        return ANSWER

    api.does = does
    response = api(request())
    problem(response, 409)
    assert response["headers"]["Retry-After"] == retry_after


@pytest.mark.parametrize(("on_exception", "status"), [("retry", 503), ("replay", 500)])
def test_a_lost_claim_whose_winner_failed_is_no_conflict(
    clock: ManualClock, store: CountingStore, on_exception: str, status: int
) -> None:
    """Nothing is in progress: the response allows a retry, or is the winner's failure."""
    api = Api(clock, store, on_exception=on_exception)

    def does(event: dict[str, Any]) -> Any:
        if current_claim().attempt > 1:
            raise ConnectionError
        clock.seconds += 34
        with suppress(ConnectionError):
            Context().run(api, request())
        return ANSWER

    api.does = does
    response = api(request())
    problem(response, status)
    assert ("Idempotency-Replayed" in response["headers"]) is (on_exception == "replay")
    assert store.items["tests#k-1"]["status"] == "FAILED"


def test_a_response_that_is_not_final_is_not_replayed_as_an_exception(clock: ManualClock, store: CountingStore) -> None:
    """An exception may be final where a response is not."""
    api = Api(clock, store, on_exception="replay", is_final=lambda status: status < 500)
    answers = iter([{"statusCode": 503, "body": "later"}, {"statusCode": 200, "body": "done"}])
    attempts = []

    def does(event: dict[str, Any]) -> Any:
        attempts.append(current_claim().attempt)
        return next(answers)

    api.does = does
    assert api(request())["body"] == "later"
    problem(api(request(body={"amount": 6})), 422)
    assert [api(request())["body"] for _ in range(2)] == ["done", "done"]
    assert attempts == [1, 2]


def test_a_transaction_that_the_store_did_not_apply_is_not_replayed_as_an_exception(
    clock: ManualClock, store: CountingStore
) -> None:
    """The response says that the client may retry, and a retry succeeds."""

    @http_endpoint(store, clock=clock, on_exception="replay")
    def handler(event: dict[str, Any], context: object, tx: Transaction) -> Any:
        tx.put(TableName="entries", Item={"id": "e"})
        return ANSWER

    store.down = {"commit"}
    problem(handler(request(), Invocation(clock)), 503)
    store.down = set()

    assert handler(request(), Invocation(clock)) == ANSWER
    assert store.tables["entries"].items


def test_a_store_that_is_down_is_said_and_nothing_ran(api: Api, store: CountingStore) -> None:
    store.down = {"insert", "read"}
    response = api(request())

    problem(response, 503)
    assert response["headers"]["Retry-After"] == "1"
    assert api.runs == []


@pytest.mark.parametrize(("seconds", "down"), [(30, {"insert", "read"}), (1, set())])
def test_a_503_does_not_say_that_nothing_was_done(
    api: Api, store: CountingStore, seconds: float, down: set[str]
) -> None:
    """An earlier request with the key may have done it without being recorded: a client that believed that nothing was
    done, and took a new key, would do it twice.
    """
    api.does = lambda event: store.down.update({"replace", "read"}) or ANSWER
    unrecorded = problem(api(request()), 503)
    store.down = down
    again = problem(api(request(), seconds=seconds), 503)

    assert len(api.runs) == 1
    assert again == unrecorded
    assert again["detail"] == "It is not known whether it is done. Ask again, with the same key."


def test_with_too_little_time_nothing_is_begun(api: Api, store: CountingStore) -> None:
    problem(api(request(), seconds=1), 503)
    assert (api.runs, store.asked) == ([], [])


def test_one_tenant_never_sees_anothers_answer(clock: ManualClock, store: CountingStore) -> None:
    """Whatever their names and keys."""
    api = Api(clock, store, scope=lambda event: event["headers"].get("X-Tenant"))
    for tenant, key in (("a", "k"), ("b", "k"), ("a#k", "k"), ("a", "k#k"), ("a%23k", "k")):
        assert "Idempotency-Replayed" not in api(request(key, headers={"X-Tenant": tenant}))["headers"]
    assert len(api.runs) == 5

    assert problem(api(request("k")), 400)["detail"] == "the request belongs to nobody: its scope is empty"


@pytest.mark.parametrize("required", [True, False])
def test_a_request_without_a_scope_is_refused_even_if_no_key_is_required(
    clock: ManualClock, store: CountingStore, required: bool
) -> None:
    """A scope may come from a header; only a request without a key runs unprotected."""
    api = Api(clock, store, scope=header("X-Tenant"), required=required)
    told = problem(api(request()), 400)

    assert (api.runs, store.asked) == ([], [])
    assert told["title"] == "The idempotency key cannot be used"
    assert told["detail"] == "the request belongs to nobody: the request has no header X-Tenant"


def test_a_tenant_whose_name_is_not_valid_text_is_a_tenant(clock: ManualClock, store: CountingStore) -> None:
    """A client may write a lone surrogate in JSON; it must neither break the response nor merge two tenants."""
    api = Api(clock, store, scope=lambda event: json.loads(event["body"])["tenant"], payload=None)
    for tenant in ("\ud800", "\ud801", "%ED%A0%80"):
        assert api(request(body={"tenant": tenant}))["statusCode"] == 201
    assert len(api.runs) == 3


def raising(error: BaseException) -> Any:
    def raises(event: Any) -> str:
        raise error

    return raises


@pytest.mark.parametrize("option", ["scope", "key"])
@pytest.mark.parametrize("required", [True, False])
def test_a_scope_or_a_key_that_raises_is_a_bad_request_and_only_logged(
    clock: ManualClock, store: CountingStore, option: str, required: bool
) -> None:
    """The client sent something unexpected; an exception would become Lambda's error, and be retried."""
    stream = io.StringIO()
    logger = Logger(service=f"raising-{option}-{required}", stream=stream)
    raises = raising(KeyError("secret"))
    api = Api(clock, store, required=required, logger=logger, **{option: raises})
    told = problem(api(request()), 400)

    assert (api.runs, store.asked) == ([], [])
    assert told["title"] == "The idempotency key cannot be used"
    assert told["detail"] == f"no {option} could be made of the request"
    (line,) = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert (line["level"], line["error_type"]) == ("WARNING", "KeyError")
    assert line["at"].startswith(f"{__name__}.raises:")
    assert "secret" not in stream.getvalue()


def test_the_log_has_the_text_of_what_a_scope_raised_where_texts_are_on(
    clock: ManualClock, store: CountingStore
) -> None:
    stream = io.StringIO()
    logger = Logger(service="raising-texts", stream=stream)
    api = Api(clock, store, scope=raising(KeyError("tenant")), error_texts=True, logger=logger)

    assert "tenant" not in json.dumps(api(request()))
    assert "tenant" in stream.getvalue()


def test_an_exit_in_a_key_is_the_processs(clock: ManualClock, store: CountingStore) -> None:
    with pytest.raises(SystemExit):
        Api(clock, store, key=raising(SystemExit()))(request())


def test_a_key_may_say_itself_why_it_cannot_be_used(clock: ManualClock, store: CountingStore) -> None:
    api = Api(clock, store, key=raising(UnusableKey("the order is not numbered")))

    assert problem(api(request()), 400)["detail"] == "the order is not numbered"


def test_clients_without_keys_are_known_by_their_payload(clock: ManualClock, store: CountingStore) -> None:
    api = Api(clock, store, key=payload_key("[order, amount]"))
    bodies = [
        {"order": 1, "amount": 5, "at": 1},
        {"order": 2, "amount": 5, "at": 1},
        {"order": 1, "amount": 5, "at": 1},
    ]
    for body in bodies:
        api(request(None, body))
    api(request(None, bodies[0], path="/refunds"))
    assert len(api.runs) == 3

    assert "'[order, amount]'" in problem(api(request(None, "text")), 400)["detail"]


def test_a_key_may_be_a_callable_of_ones_own(clock: ManualClock, store: CountingStore) -> None:
    api = Api(clock, store, key=lambda event: json.loads(event["body"])["id"])
    api(request(None, {"id": "7"}))

    assert list(store.items) == ["tests#7"]
    assert "of type int" in problem(api(request(None, {"id": 7})), 400)["detail"]
    assert "no key" in problem(api(request(None, {"id": None})), 400)["detail"]


def test_a_response_that_was_not_kept_is_gone(api: Api) -> None:
    """The effect is still done."""
    api.does = lambda event: {"statusCode": 200, "body": "x" * 400_000}
    assert len(api(request())["body"]) == 400_000

    problem(api(request()), 410)
    assert len(api.runs) == 1


def test_a_record_of_another_kind_is_left_alone(api: Api, store: CountingStore) -> None:
    store.items["tests#k-1"] = {"id": "tests#k-1", "status": "PAUSED"}

    problem(api(request()), 500)
    assert store.items["tests#k-1"] == {"id": "tests#k-1", "status": "PAUSED"}


def test_a_transaction_commits_with_the_answer(clock: ManualClock, store: CountingStore) -> None:
    """But not with one that is not final."""
    answers = iter([503, 201])

    @http_endpoint(store, clock=clock, is_final=lambda status: status < 500)
    def handler(event: dict[str, Any], context: object, tx: Transaction) -> Any:
        tx.put(TableName="entries", Item={"id": "e"})
        return {"statusCode": next(answers)}

    handler(request(), Invocation(clock))
    assert store.tables == {}
    handler(request(), Invocation(clock))
    assert store.tables["entries"].items


@pytest.mark.parametrize("event", [{}, None, [], {"Records": []}, {"httpMethod": "GET"}, {"requestContext": {}}])
def test_what_is_no_http_request_runs_nothing(api: Api, event: Any) -> None:
    with pytest.raises(InvalidRequest, match="API Gateway"):
        api(event)
    assert api.runs == []


@pytest.mark.parametrize(
    ("status", "described"), [(400, "400 Bad Request"), (409, "409 Conflict"), (503, "503 Service")]
)
@pytest.mark.parametrize("form", ["alb", "alb-multi"])
def test_a_load_balancer_gets_problems_in_its_form(
    clock: ManualClock, store: CountingStore, form: str, status: int, described: str
) -> None:
    """With a status description, and with headers in the mapping that it reads; it ignores the other one."""
    api = Api(clock, store)
    inside: list[dict[str, Any]] = []
    api.does = lambda event: inside.append(Context().run(api, request(form=form))) or ANSWER
    api(request(form=form))
    store.down = {"insert", "read"}
    answers = {400: api(request(None, form=form)), 409: inside[0], 503: api(request("k-2", form=form))}

    response = answers[status]
    problem(response, status)
    assert response["statusDescription"].startswith(described)
    assert ("headers" in response, "multiValueHeaders" in response) == (form == "alb", form == "alb-multi")


@pytest.mark.parametrize("form", ["rest", "http", "url"])
def test_others_get_only_the_fields_that_they_accept(api: Api, form: str) -> None:
    """A REST API answers 502 to a field that it does not know."""
    assert set(api(request(None, form=form))) == {"statusCode", "headers", "body", "isBase64Encoded"}


@pytest.mark.parametrize("form", ["alb", "alb-multi"])
def test_a_failure_that_is_the_last_word_is_replayed_in_the_load_balancers_form(
    clock: ManualClock, store: CountingStore, form: str
) -> None:
    api = Api(clock, store, on_exception="replay")
    api.does = raising(ConnectionError())
    first, again = api(request(form=form)), api(request(form=form))

    problem(first, 500)
    name, value = ("headers", "true") if form == "alb" else ("multiValueHeaders", ["true"])
    assert again == {**first, name: {**first[name], "Idempotency-Replayed": value}}


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

    assert api(request(form="alb-multi")) == {
        "statusCode": 200,
        "statusDescription": "200 OK",
        "multiValueHeaders": {"Content-Type": ["application/json"], "Idempotency-Replayed": ["true"]},
        "body": '{"ok":true}',
        "isBase64Encoded": False,
    }


def handle(event: Any, context: Any) -> None: ...
async def coroutine(event: Any, context: Any) -> None: ...


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        (lambda: http_endpoint(handle), TypeError, "@http_endpoint.store"),
        (lambda: http_endpoint(MemoryStore()), ValueError, "namespace"),
        (lambda: http_endpoint(MemoryStore("a"), key=header), TypeError, "key must be"),
        (lambda: http_endpoint(MemoryStore("a"), key=message_id), TypeError, "key must be"),
        (lambda: http_endpoint(MemoryStore("a"), key=body_field), TypeError, "key must be"),
        (lambda: http_endpoint(MemoryStore("a"), scope="tenant"), TypeError, "scope must be a callable"),
        (lambda: http_endpoint(MemoryStore("a"), is_final=None), TypeError, "is_final must be a callable"),
        (lambda: http_endpoint(MemoryStore("a"), required=None), TypeError, "required must be True or False"),
        (
            lambda: http_endpoint(MemoryStore("a"), logger=3),
            TypeError,
            "logger must be a Powertools Logger or a logging",
        ),
        (
            lambda: http_endpoint(MemoryStore("a"), metrics=3),
            TypeError,
            "metrics must be Powertools Metrics or the like",
        ),
        (lambda: http_endpoint(MemoryStore("a"), wait_seconds=-1), ValueError, "wait_seconds"),
        (lambda: http_endpoint(MemoryStore("a"), retry_after_seconds=0), ValueError, "retry_after_seconds must be"),
        (lambda: http_endpoint(MemoryStore("a"), retry_after_seconds=0.5), ValueError, "retry_after_seconds must be"),
        (lambda: http_endpoint(MemoryStore("a"), retry_after_seconds=None), ValueError, "retry_after_seconds must be"),
        (lambda: http_endpoint(MemoryStore("a"), retry_after_seconds=True), ValueError, "retry_after_seconds must be"),
        (lambda: http_endpoint(MemoryStore("a"), on_exception="keep"), ValueError, "'retry' or 'replay'"),
        (lambda: http_endpoint(MemoryStore("a"))(coroutine), TypeError, "coroutine"),
        (lambda: http_endpoint(MemoryStore("a"))(handle)(request(), None), TypeError, "context"),
        (lambda: header(""), ValueError, "Idempotency-Key"),
    ],
)
def test_what_can_be_known_at_set_up_is_said_there(wrong: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        wrong()
