"""HTTP: which requests are the same, in every format in which an event may tell of them."""

from __future__ import annotations

import base64
from operator import itemgetter
from typing import Any
from urllib.parse import unquote_to_bytes

import pytest

from idempotent_receiver import Payload, payload_key
from idempotent_receiver.http.request import InvalidRequest, request_of
from idempotent_receiver.payload import EVERYTHING
from tests.unit.http.api import FORMATS, TELL_ALL, WITHOUT_A_QUERY, Api, problem, replayed, request

in_each_form = pytest.mark.parametrize("form", FORMATS)


@pytest.mark.parametrize("other", [{"body": {"amount": 6}}, {"method": "PUT"}, {"path": "/refunds"}])
@in_each_form
def test_another_request_under_the_same_key_is_refused(api: Api, other: dict[str, Any], form: str) -> None:
    """Method, path and payload are compared."""
    api(request(form=form))
    problem(api(request(form=form, **other)), 422)
    assert len(api.runs) == 1


QUERIES = [
    None,
    *("", "&", "a", "a=", "A=1", "a=&b=", "a=1&b=2", "a=1=2", "a=1%26b=2", "b=x&a=2&a=1", "a=1&a=1", "b=2&a=1"),
]
QUERIES += ["a%20b=c+d", "to=%62ob", "to=%c3%bc&to=%C3%BC", "x[]=1&x[]=%5B", "to=bob&t%6f=eve"]


def by_hand(query: str | None, form: str) -> list[tuple[bytes, bytes]]:
    """A second implementation: names in any order, the values of one in theirs. A load balancer that passes single
    values passes the last one of a name, which it does not decode.
    """
    parts = [part.replace("+", " ").partition("=") for part in (query or "").split("&") if part]
    pairs = [(name, value) for name, _, value in parts]
    pairs = pairs if form in TELL_ALL else list(dict(pairs).items())
    return sorted([(unquote_to_bytes(name), unquote_to_bytes(value)) for name, value in pairs], key=itemgetter(0))


@in_each_form
@pytest.mark.parametrize("query", [*QUERIES, "a=%ff", "a=%fe"])
def test_a_query_string_is_read_whole_from_every_event_format(form: str, query: str | None) -> None:
    """A function may be behind several services. A REST API decodes bytes that are no text itself."""
    found = request_of(request(form=form, query=query)).query
    told = [tuple(text.encode("utf-8", "surrogateescape") for text in pair) for pair in found]
    assert told == by_hand(query, form) or (form == "rest" and query in ("a=%ff", "a=%fe"))


@in_each_form
def test_requests_under_one_key_have_one_query_string_however_it_is_written(api: Api, form: str) -> None:
    api(request(form=form, query="a=1&b=x&a=2"))
    assert replayed(api(request(form=form, query="b=%78&a=1&a=2")))
    for other in ("a=2&b=x&a=1", "b=x", None):
        assert "query string" in problem(api(request(form=form, query=other)), 422)["detail"]
    assert len(api.runs) == 1


def test_where_an_event_has_two_paths_the_raw_one_counts() -> None:
    event = request(form="http", path="/accounts/a%2Fb")
    event["requestContext"]["http"]["path"] = "/accounts/a/b"
    assert request_of(event).path == "/accounts/a%2Fb"


def test_an_event_that_was_written_by_hand_may_have_the_short_form_of_a_query_alone() -> None:
    parameters = {"queryStringParameters": {"b": "2", "a": "1"}}
    rest, http = request() | parameters, request(form="http") | parameters
    del rest["multiValueQueryStringParameters"]
    assert request_of(rest).query == request_of(http).query == (("a", "1"), ("b", "2"))


def test_a_request_without_a_query_matches_a_record_from_before_queries_counted(api: Api) -> None:
    """As test_payload.py pins it: an upgrade must neither refuse a client's retry nor run it again."""
    first = api(request())
    assert api.store.items["tests#k-1"]["validation"] == WITHOUT_A_QUERY
    for form in FORMATS:
        again = api(request(form=form))
        assert replayed(again)
        assert again["body"] == first["body"]


@in_each_form
def test_a_parameter_may_be_excluded(form: str) -> None:
    """Such as one against caching; a request with only this parameter is like one without a query."""
    api = Api(payload=Payload(without_query=["trace", "_"]))
    for query in ("amount=5&trace=1", "trace=2&amount=5", "amount=5&_=7&trace", "amount=5"):
        assert api(request(form=form, query=query))["statusCode"] == 201
    problem(api(request(form=form, query="amount=5&Trace=1")), 422)
    assert len(api.runs) == 1
    api(request("k-2", form=form, query="trace=1"))
    assert api.store.items["tests#k-2"]["validation"] == WITHOUT_A_QUERY


def test_what_counts_of_a_payload_is_for_the_user_to_say() -> None:
    api = Api(payload=Payload(without=["sent_at"]))
    api(request(body={"amount": 5, "sent_at": 1}))

    assert api(request(body={"amount": 5, "sent_at": 2}))["statusCode"] == 201
    problem(api(request(body={"amount": 6, "sent_at": 1})), 422)
    problem(api(request(body={"amount": 5, "sent_at": 1}, query="a=1")), 422)


def test_equal_requests_may_be_written_differently(api: Api) -> None:
    """White space, the order of names and other headers do not matter."""
    api(request(body={"amount": 5, "to": "a"}))
    event = request(headers={"User-Agent": "another"})
    assert replayed(api({**event, "body": '{ "to":"a",  "amount": 5 }'}))


@in_each_form
def test_a_payload_that_says_something_twice_is_no_other(api: Api, form: str) -> None:
    def sent(body: str) -> dict[str, Any]:
        text = base64.b64encode(body.encode()).decode() if form == "url" else body
        return {**request(form=form), "body": text}

    api(sent('{"amount": 9}'))
    problem(api(sent('{"amount": 1, "amount": 9}')), 422)
    assert len(api.runs) == 1


# Forms, whose boundary is another one each time that they are sent.

FORM = (
    b'--{b}\r\nContent-Disposition: form-data; name="amount"\r\n\r\n5\r\n'
    b'--{b}\r\nContent-Disposition: form-data; name="file"; filename="a.bin"\r\n\r\n\x00\xff--x\r\n\r\n--{b}--\r\n'
)


TWO = b"--{b}\r\n1\r\n--{b}\r\n2\r\n--{b}--"


def form_of(
    boundary: str, parts: bytes = FORM, content_type: str = "multipart/form-data; boundary={b}", **asked: Any
) -> dict[str, Any]:
    """A request with a form as its body; `{b}` is the boundary, in the body and in the header."""
    headers = {"Content-Type": content_type.replace("{b}", boundary)}
    event = request(asked.pop("key", "k-1"), headers=headers, **asked)
    body = base64.b64encode(parts.replace(b"{b}", boundary.encode())).decode()
    return {**event, "body": body, "isBase64Encoded": True}


def same(first: dict[str, Any], second: dict[str, Any], payload: Payload = EVERYTHING) -> bool:
    """Whether two events are the same request."""
    return request_of(first).fingerprint(payload) == request_of(second).fingerprint(payload)


@in_each_form
def test_a_form_counts_by_its_parts_whatever_its_boundary(api: Api, form: str) -> None:
    """A browser draws a new boundary for each request, a retry included."""
    assert api(form_of("----WebKitFormBoundaryAbC123", form=form))["statusCode"] == 201
    assert replayed(api(form_of("0f4ed1a0bd", form=form)))
    problem(api(form_of("0f4ed1a0bd", FORM.replace(b"5\r", b"6\r"), form=form)), 422)
    assert len(api.runs) == 1


def test_with_the_payload_as_the_key_a_form_counts_by_its_parts_too() -> None:
    api = Api(key=payload_key(), scope=None)
    forms = (form_of("a", key=None), form_of("b", key=None), form_of("b", FORM.replace(b"5\r", b"6\r"), key=None))
    assert [replayed(api(form)) for form in forms] == [False, True, False]


@pytest.mark.parametrize(
    "content_type",
    [
        'multipart/form-data; boundary="{b}"',
        "multipart/form-data;boundary={b}",
        "Multipart/Form-Data; charset=UTF-8; Boundary={b}",
        'multipart/form-data; boundary="{b}"; charset="UTF-8"',
    ],
)
def test_a_boundary_may_be_written_in_any_way(content_type: str) -> None:
    """Around an empty form, too."""
    for parts in (FORM, b"--{b}--", b"--{b}--\r\n"):
        assert same(form_of("a", parts), form_of("b", parts, content_type=content_type))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (FORM, FORM.replace(b'name="amount"', b'name="Amount"')),
        (FORM, FORM.replace(b'filename="a.bin"', b'filename="b.bin"')),
        (FORM, FORM.replace(b"\xff", b"\xfe")),
        (TWO, b"--{b}\r\n2\r\n--{b}\r\n1\r\n--{b}--"),
        (TWO, b"--{b}\r\n12\r\n--{b}--"),
        (TWO, b"--{b}\r\n1\r\n\r\n2\r\n--{b}--"),
        # In one of them, what separates the parts of the other is a part's own text.
        (TWO, b"--{b}\r\n1\r\n--a\r\n2\r\n--{b}--"),
        (TWO, b"--{b}\r\n1\r\n5:\r\n2\r\n--{b}--"),
        (b"--{b}\r\n1\r\n--{b}--", b"--{b}\r\n1\r\n--{b}--\r\n"),
    ],
)
def test_two_forms_that_differ_in_a_part_are_two(one: bytes, other: bytes) -> None:
    """In what a part holds or is called, in their order, or in where one ends."""
    assert not same(form_of("a", one), form_of("bcd", other))
    assert not same(form_of("e", one), form_of("e", other))


@pytest.mark.parametrize(
    "parts",
    [
        *(b"", b"{b}", b"--{b}", b"--{b}\r\n1\r\n"),
        *(b"--{b}\r\n--{b}--", b"--{b}\n1\n--{b}--\n", b"x--{b}\r\n1\r\n--{b}--", b"--{b}x\r\n1\r\n--{b}--"),
        *(b"--{b}\r\n1--{b}--", b"--{b}\r\n1\r\n--{b}--more", b"--{b}\r\n1\r\n--{b}--\r\nmore"),
        *(b"--{b}\r\n1\n--{b}\n2\r\n--{b}--", b"--{b}\r\n1\r\n--{b}--\r\n--{b}\r\n2\r\n--{b}--"),
    ],
)
def test_a_body_that_its_boundary_does_not_frame_counts_by_its_bytes(parts: bytes) -> None:
    """Parsers differ in what they make of it, so nothing of it is left out. It counts as it always did."""
    assert same(form_of("a", parts), form_of("a", parts, content_type="application/octet-stream"))
    assert same(form_of("a", parts), form_of("b", parts)) is (b"{b}" not in parts)


@pytest.mark.parametrize(
    "content_type",
    [
        *("multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary={b}; boundary=c"),
        "multipart/form-data; boundary={b}, multipart/form-data; boundary=c",
        *('multipart/form-data; boundary="{b}', "multipart/form-data; boundary={b} c"),
        *("multipart/form-data; charset={b}", "multipart/signed; boundary={b}", "text/plain; boundary={b}"),
    ],
)
def test_a_body_whose_boundary_is_not_told_counts_by_its_bytes(content_type: str) -> None:
    """Once, and in a form."""
    assert not same(form_of("a", content_type=content_type), form_of("b", content_type=content_type))
    assert same(form_of("a", content_type=content_type), form_of("a", content_type="text/plain"))


KINDS = ("multipart/form-data", "multipart/related", "multipart/mixed")


@pytest.mark.parametrize("kind", KINDS)
def test_any_kind_of_several_parts_counts_by_them_whatever_its_boundary(kind: str) -> None:
    """Clients draw a new boundary for each request of these, too."""

    def sent(boundary: str, parts: bytes = FORM, kind: str = kind, **named: str) -> dict[str, Any]:
        told = "".join(f'; {name}="{value}"' for name, value in named.items())
        return form_of(boundary, parts, content_type=f"{kind}{told}; boundary={{b}}")

    assert same(sent("a"), sent("bcd"))
    assert same(sent("a"), sent("a", kind=kind.title()))
    assert not same(sent("a"), sent("a", FORM.replace(b"5\r", b"6\r")))


@pytest.mark.parametrize(("kind", "counts"), [(KINDS[0], False), (KINDS[1], True), (KINDS[2], False)])
def test_which_of_related_parts_is_the_root_counts(kind: str, counts: bool) -> None:
    """A reader takes another part for the document."""
    rooted = [form_of("a", content_type=f'{kind}; start="<{root}@example.com>"; boundary={{b}}') for root in "ab"]
    assert same(*rooted) is not counts


def test_equal_parts_of_another_kind_are_another_request() -> None:
    kinds = [form_of("a", content_type=f"{kind}; boundary={{b}}") for kind in (*KINDS, "multipart/alternative")]
    assert len({request_of(event).fingerprint(EVERYTHING) for event in kinds}) == len(kinds)


def test_a_forms_fingerprint_is_for_ever() -> None:
    """Stored records have it."""
    known = "6681739169a211c370931499af676136f7d0edd37af536ba0cbb7684f8bec97b"
    assert request_of(form_of("a")).fingerprint(EVERYTHING) == request_of(form_of("b")).fingerprint(EVERYTHING) == known


def test_two_headers_tell_no_boundary() -> None:
    twice = form_of("a")
    twice["multiValueHeaders"]["content-type"] = ["multipart/form-data; boundary=c"]
    assert same(twice, form_of("a", content_type="text/plain"))


def test_no_other_body_reads_like_a_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even one that a client wrote to be what is hashed of a form."""
    hashed: list[bytes] = []
    monkeypatch.setattr(Payload, "_counting", lambda self, document: hashed.append(document.raw) or document.raw)
    form = request_of(form_of("a")).fingerprint(EVERYTHING)
    forged = form_of("a", hashed[0], content_type="text/plain")
    assert request_of(forged).fingerprint(EVERYTHING) != form
    assert hashed[0] == hashed[1]


def test_json_counts_as_json_whatever_its_type() -> None:
    event = request(headers={"Content-Type": "multipart/form-data; boundary=a"})
    assert request_of(event).fingerprint(EVERYTHING) == WITHOUT_A_QUERY


def test_a_body_that_is_no_valid_text_has_a_fingerprint(api: Api) -> None:
    """A client may send a lone surrogate."""
    assert api({**request(), "body": "\ud800"})["statusCode"] == 201
    problem(api({**request(), "body": "\ud801"}), 422)


@pytest.mark.parametrize("event", [{}, None, [], {"Records": []}, {"httpMethod": "GET"}, {"requestContext": {}}])
def test_what_is_no_http_request_runs_nothing(api: Api, event: Any) -> None:
    with pytest.raises(InvalidRequest, match="API Gateway"):
        api(event)
    assert api.runs == []


@pytest.mark.parametrize("event", [{"httpMethod": "GET"}, {"requestContext": {"http": {"method": "GET"}}}])
def test_a_request_without_a_path_is_told_so(api: Api, event: Any) -> None:
    """As in a hand-written test event."""
    with pytest.raises(InvalidRequest, match="no method with a path"):
        api(event)


@pytest.mark.parametrize("body", [{"amount": 5}, [5], b'{"amount": 5}', 5])
@in_each_form
def test_a_body_that_somebody_has_parsed_already_is_refused(form: str, body: Any) -> None:
    """A middleware may put a dict in its place. If it counted as no body, all requests would be the same one."""
    api = Api(key=payload_key(), scope=None)
    told = rf"the body is of type {type(body).__name__}, not text.*after http_endpoint"
    with pytest.raises(InvalidRequest, match=told):
        api({**request(None, form=form), "body": body})
    assert api.untouched
