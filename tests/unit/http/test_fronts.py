"""HTTP: a response that was first given through one front, and is asked for again through another."""

from __future__ import annotations

import copy
import json
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.http.api import Api
from tests.unit.http.front_model import BAD_GATEWAY, FRONTS, Answer, Seen, event_of, seen_through, written_for

ANSWERS = {
    "plain": Answer(headers=(("Content-Type", "text/plain"), ("X-Run", "1")), body=b"accepted"),
    "several cookies": Answer(
        headers=(("Content-Type", "application/json"),),
        cookies=("a=1; Path=/; Expires=Wed, 21 Oct 2026 07:28:00 GMT", "b=2; Secure", "a=1; Path=/old"),
        body=b'{"a": "\xc3\xbc"}',
    ),
    "one cookie": Answer(status=200, cookies=("a=1",), body=b"{}"),
    "a header repeated": Answer(headers=(("Link", "</a>"), ("Vary", "Origin"), ("Link", "</b>")), body=b""),
    "a binary body": Answer(
        headers=(("Content-Type", "image/png"),), cookies=("a=1", "b=2"), body=b"\x89\xff", binary=True
    ),
    "neither body nor headers": Answer(status=204),
    "an error": Answer(status=422, headers=(("Content-Type", "application/problem+json"),), cookies=("a=;", "b=;")),
    "a status of nobody's": Answer(status=200, headers=(("X-A", ""),), body=b"a"),
}


def asked(response: Any, first: str, second: str) -> tuple[Any, Any, Any]:
    """What a function returned to a request through the first front, that front's answer, and the second's."""
    api = Api()
    api.does = lambda event: response
    returned = copy.deepcopy(response)
    once, again = api(event_of(first)), api(event_of(second))
    assert len(api.runs) == 1
    return returned, once, again


@pytest.mark.parametrize("what", ANSWERS)
@pytest.mark.parametrize(("first", "second"), list(product(FRONTS, FRONTS)))
def test_a_replay_through_any_front_says_all_that_the_first_answer_said(first: str, second: str, what: str) -> None:
    """Status, body, whether it is binary, every value of every header and every cookie. None is a 502."""
    returned, once, again = asked(written_for(first, ANSWERS[what]), first, second)

    assert once == returned
    seen = seen_through(second, again)
    assert isinstance(seen, Seen), again
    assert seen.replayed
    seen.replayed = False
    assert seen == seen_through(first, once)


@pytest.mark.parametrize("what", ANSWERS)
@pytest.mark.parametrize("front", FRONTS)
def test_a_replay_through_the_same_front_is_the_same_to_the_byte(front: str, what: str) -> None:
    """But for its mark, in the mapping that this front reads."""
    _, once, again = asked(written_for(front, ANSWERS[what]), front, front)

    place, mark = ("multiValueHeaders", ["true"]) if front == "alb-multi" else ("headers", "true")
    assert again[place].pop("Idempotency-Replayed") == mark
    assert json.dumps(again) == json.dumps(once)


def names() -> st.SearchStrategy[str]:
    return st.from_regex(r"X-[A-Za-z]{1,4}", fullmatch=True)


def values() -> st.SearchStrategy[str]:
    return st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=8)


@given(
    st.builds(
        Answer,
        st.sampled_from([200, 201, 204, 302, 404, 418, 500]),
        st.lists(st.tuples(names(), values()), max_size=5).map(
            lambda pairs: tuple({(name.lower(), value): (name.lower(), value) for name, value in pairs})
        ),
        st.lists(values().filter(bool), max_size=4).map(tuple),
        st.one_of(st.none(), st.binary(max_size=20)),
        st.just(value=True),
    ),
    st.sampled_from(FRONTS),
    st.sampled_from(FRONTS),
)
def test_any_answer_is_said_through_any_front(answer: Answer, first: str, second: str) -> None:
    _, once, again = asked(written_for(first, answer), first, second)

    seen = seen_through(second, again)
    assert isinstance(seen, Seen)
    seen.replayed = False
    assert seen == seen_through(first, once)


# Responses that only some fronts take.


def replayed(response: Any, front: str) -> Any:
    """A stored response, asked for through a front."""
    return asked(response, "http", front)[2]


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize(
    "response",
    [
        {"statusCode": "201", "headers": {"X-Count": 5, "X-On": True, "X-Off": None}, "body": "a"},
        {"statusCode": 201, "multiValueHeaders": {"x-count": [5], "X-On": [True]}, "body": "a"},
        {"statusCode": 201, "headers": {"X-Count": 5, "X-On": True}, "body": "a", "statusDescription": None, "own": 1},
    ],
)
def test_a_value_that_is_not_text_is_its_json(response: Any, front: str) -> None:
    """API Gateway makes text of it, and takes a status that is text; a load balancer takes neither.
    Source: https://github.com/adamchainz/apig-wsgi/issues/52
    Source: https://github.com/CodeGenieApp/serverless-express/pull/474
    """
    seen = seen_through(front, replayed(response, front))
    assert isinstance(seen, Seen)
    assert seen.status == 201
    assert {name: values for name, values in seen.headers.items() if values != ["null"]} == {
        "x-count": ["5"],
        "x-on": ["true"],
    }


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("body", [{"ok": True}, [1], 5])
def test_a_body_that_is_not_text_is_its_json(body: Any, front: str) -> None:
    """Format 2.0 alone takes one, so that is how it is replayed there."""
    response = {"statusCode": 200, "headers": {"X-A": "1"}, "body": body}
    again = replayed(response, front)

    if front in {"http", "url"}:
        assert again == {**response, "headers": {"X-A": "1", "Idempotency-Replayed": "true"}}
    else:
        assert json.loads(seen_through(front, again).body) == body  # type: ignore[union-attr]


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("answer", [{"ok": True}, "text", [1]])
def test_a_body_alone_is_the_response_that_format_2_makes_of_it(answer: Any, front: str) -> None:
    seen = seen_through(front, replayed(answer, front))
    assert isinstance(seen, Seen)
    assert (seen.status, seen.headers, seen.replayed) == (200, {"content-type": ["application/json"]}, True)
    assert (seen.body.decode() if isinstance(answer, str) else json.loads(seen.body)) == answer


def test_a_pair_in_both_mappings_is_there_once() -> None:
    """As API Gateway merges them, and whatever the case of a name: a function may fill both, one for each front."""
    response = {
        "statusCode": 200,
        "headers": {"Content-Type": "text/plain", "set-cookie": "b=2", "X-A": "1"},
        "multiValueHeaders": {"content-type": ["text/plain"], "Set-Cookie": ["a=1", "b=2"], "x-a": ["2"]},
        "body": "",
    }
    for front in FRONTS:
        if front in {"rest", "http-1.0"}:
            continue
        seen = seen_through(front, replayed(response, front))
        assert isinstance(seen, Seen)
        assert (seen.headers["content-type"], seen.headers["x-a"]) == (["text/plain"], ["1", "2"])
        assert seen.cookies == ["a=1", "b=2"]


@pytest.mark.parametrize("front", ["rest", "http-1.0", "http", "url", "alb-multi"])
def test_names_that_differ_in_case_are_one_header_except_to_a_load_balancer(front: str) -> None:
    """With one value a name, it is the way to send two cookies through it, and only through it."""
    response = {"statusCode": 200, "headers": {"set-cookie": "a=1", "Set-cookie": "b=2"}, "body": ""}
    assert seen_through(front, replayed(response, front)).cookies == ["a=1", "b=2"]  # type: ignore[union-attr]


@pytest.mark.parametrize("front", ["alb", "alb-multi"])
def test_a_load_balancer_is_told_the_reason_of_a_status_that_has_none(front: str) -> None:
    response = {"statusCode": 299, "headers": {"X-A": "1"}, "cookies": ["a=1"]}
    again = replayed(response, front)
    assert again["statusDescription"] == "299 Unknown"
    assert seen_through(front, again) != BAD_GATEWAY


@pytest.mark.parametrize("front", ["alb", "alb-multi"])
def test_a_status_keeps_its_description(front: str) -> None:
    response = {"statusCode": 200, "statusDescription": "200 Fine", "headers": {"X-A": 1}, "cookies": ["a=1"]}
    assert replayed(response, front)["statusDescription"] == "200 Fine"


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize(
    "response",
    [
        {"statusCode": "soon", "headers": {"X-A": "1"}, "cookies": ["a=1"]},
        {"statusCode": None, "cookies": ["a=1"]},
        {"statusCode": 200, "headers": ["X-A"], "cookies": ["a=1"]},
        {"statusCode": 200, "headers": {"X-A": ["1"]}, "cookies": ["a=1"]},
        {"statusCode": 200, "multiValueHeaders": {"X-A": "1"}},
        {"statusCode": 200, "multiValueHeaders": ["X-A"]},
        {"statusCode": 200, "cookies": "a=1"},
        {"statusCode": 200, "cookies": {"a": 1}},
    ],
)
def test_a_response_that_no_front_takes_is_replayed_as_it_was(response: Any, front: str) -> None:
    """It was a 502 and stays one: nothing is guessed."""
    again = replayed(response, front)
    for place in ("headers", "multiValueHeaders"):
        if isinstance(again.get(place), dict):
            again[place].pop("Idempotency-Replayed", None)
    assert {name: value for name, value in again.items() if value != {}} == response


@pytest.mark.parametrize("front", FRONTS)
def test_a_response_in_several_forms_is_left_to_the_function_that_wrote_it(front: str) -> None:
    """With `cookies` and `multiValueHeaders`, it was written for more than one front: each reads its own part."""
    cookies = ["a=1", "b=2"]
    response = {
        "statusCode": 200,
        "headers": {"X-A": "1"},
        "multiValueHeaders": {"X-A": ["1"], "Set-Cookie": cookies},
        "cookies": cookies,
    }
    again = replayed(response, front)
    mark = again["multiValueHeaders" if front == "alb-multi" else "headers"].pop("Idempotency-Replayed")
    assert mark in ("true", ["true"])
    assert again == response


def test_a_record_of_an_earlier_version_is_read_likewise() -> None:
    """What is stored is the function's response alone: its form is told by its fields."""
    api = Api()
    api(event_of("rest"))
    (item,) = api.store.items.values()
    item["data"] = (
        '{"statusCode":201,"headers":{"X-A":"1"},"cookies":["a=1","b=2"],"body":"done","isBase64Encoded":false}'
    )

    for front in FRONTS:
        seen = seen_through(front, api(event_of(front)))
        assert seen == Seen(201, {"x-a": ["1"]}, ["a=1", "b=2"], b"done", replayed=True)


@pytest.mark.parametrize("front", FRONTS)
def test_a_header_that_the_user_adds_to_the_librarys_own_response_reaches_the_client(front: str) -> None:
    """By the same way as a stored one: a cookie among the headers is one of the `cookies`."""
    api = Api(headers=lambda event: {"set-cookie": "a=1", "Set-Cookie": "b=2", "X-A": "1"})
    seen = seen_through(front, api(event_of(front, key=None)))
    assert isinstance(seen, Seen)
    assert (seen.status, seen.cookies, seen.headers["x-a"]) == (400, ["a=1", "b=2"], ["1"])
