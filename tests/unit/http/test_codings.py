"""HTTP: a body with a coding counts by its content, however each try was compressed."""

from __future__ import annotations

import base64
import gzip
import json
import tracemalloc
import zlib
from typing import Any

import pytest

from idempotent_receiver import Payload, payload_key
from idempotent_receiver.http.content import LARGEST_CONTENT_BYTES
from idempotent_receiver.http.request import request_of
from idempotent_receiver.payload import EVERYTHING
from tests.unit.http.api import FORMATS, WITHOUT_A_QUERY, Api, problem, replayed, request
from tests.unit.http.test_requests import FORM

in_each_form = pytest.mark.parametrize("form", FORMATS)

ORDER = b'{"amount": 5}'
"""The body of `request()`."""


def gzipped(content: bytes, level: int = 9, mtime: int = 0) -> bytes:
    return gzip.compress(content, level, mtime=mtime)


def deflated(content: bytes, level: int = 9) -> bytes:
    return zlib.compress(content, level)


def raw_deflated(content: bytes) -> bytes:
    return zlib.compress(content)[2:-4]


def coded(body: bytes, coding: str | None = "gzip", key: str | None = "k-1", **asked: Any) -> dict[str, Any]:
    """A request with this body; `coding` is its Content-Encoding."""
    headers = asked.pop("headers", {}) | ({} if coding is None else {"Content-Encoding": coding})
    event = request(key, headers=headers, **asked)
    return {**event, "body": base64.b64encode(body).decode(), "isBase64Encoded": True}


def fingerprint(event: dict[str, Any], payload: Payload = EVERYTHING) -> str:
    return request_of(event).fingerprint(payload)


@in_each_form
def test_a_body_that_is_compressed_anew_is_the_same_request(api: Api, form: str) -> None:
    """With another time of day, name and level, as clients do for each try."""
    assert api(coded(gzipped(ORDER), form=form))["statusCode"] == 201
    assert replayed(api(coded(gzipped(ORDER, level=1, mtime=1_700_000_000), form=form)))
    assert replayed(api(coded(gzipped(b'{"amount":5}'), form=form)))
    problem(api(coded(gzipped(b'{"amount": 6}'), form=form)), 422)
    assert len(api.runs) == 1


def test_under_a_payload_key_it_is_one_request_too() -> None:
    """Otherwise a retry would pay twice."""
    api = Api(key=payload_key(), scope=None)
    events = (coded(gzipped(ORDER, mtime=n), key=None) for n in (1, 2))
    assert [replayed(api(event)) for event in events] == [False, True]
    assert len(api.runs) == 1


@pytest.mark.parametrize(
    ("body", "coding"),
    [
        *((gzipped(ORDER), coding) for coding in ("gzip", "x-gzip", "GZip", " gzip ")),
        *((deflated(ORDER, level), "deflate") for level in (0, 1, 9)),
        (ORDER, None),
    ],
)
def test_the_same_content_is_the_same_request_with_any_coding_or_none(body: bytes, coding: str | None) -> None:
    """A client may give up compression for its retry, and a proxy may undo it."""
    assert fingerprint(coded(body, coding)) == WITHOUT_A_QUERY


@pytest.mark.parametrize(
    "payload", [Payload("amount"), Payload(without=["sent_at"]), Payload("[amount, to_string(amount)]")]
)
def test_an_expression_sees_the_content(payload: Payload) -> None:
    content = json.dumps({"amount": 5, "sent_at": 1}).encode()
    for body, coding in ((gzipped(content), "gzip"), (deflated(content), "deflate")):
        assert fingerprint(coded(body, coding), payload) == fingerprint(coded(ORDER, None), payload)


def test_a_content_that_is_not_json_counts_by_its_bytes() -> None:
    assert fingerprint(coded(gzipped(b"\x00\xff"))) == fingerprint(coded(b"\x00\xff", None))
    assert fingerprint(coded(gzipped(b""))) == fingerprint(coded(b"", None))


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_form_with_a_coding_counts_by_its_parts(coding: str) -> None:
    compressed = gzipped if coding == "gzip" else deflated

    def sent(boundary: bytes, form: bytes = FORM) -> str:
        headers = {"Content-Type": f"multipart/form-data; boundary={boundary.decode()}"}
        return fingerprint(coded(compressed(form.replace(b"{b}", boundary)), coding, headers=headers))

    assert sent(b"abc") == sent(b"def") != sent(b"abc", FORM.replace(b"5\r", b"6\r"))


OTHER = gzipped(b'{"amount": 6}')
BY_THEIR_BYTES = {
    "truncated": (gzipped(ORDER)[:-1], "gzip"),
    "without its trailer": (gzipped(ORDER)[:-8], "gzip"),
    "with another checksum": (gzipped(ORDER)[:-8] + gzipped(b"{}")[-8:], "gzip"),
    "with something behind it": (gzipped(ORDER) + b"\x00", "gzip"),
    "several members": (gzipped(ORDER[:5]) + gzipped(ORDER[5:]), "gzip"),
    "several orders": (gzipped(ORDER) + OTHER, "gzip"),
    "truncated deflate": (deflated(ORDER)[:-1], "deflate"),
    "deflate with something behind it": (deflated(ORDER) + b"\n", "deflate"),
    "raw deflate": (raw_deflated(ORDER), "deflate"),
    "gzip that is called deflate": (gzipped(ORDER), "deflate"),
    "deflate that is called gzip": (deflated(ORDER), "gzip"),
    "no compression at all": (b"text", "gzip"),
    "nothing": (b"", "gzip"),
    "twice": (gzipped(gzipped(ORDER)), "gzip, gzip"),
    "several codings": (deflated(gzipped(ORDER)), "gzip, deflate"),
    "identity": (gzipped(ORDER), "identity"),
    "brotli": (gzipped(ORDER), "br"),
    "no coding": (gzipped(ORDER), ""),
    "a parameter": (gzipped(ORDER), "gzip; q=1"),
}


@pytest.mark.parametrize(("body", "coding"), BY_THEIR_BYTES.values(), ids=BY_THEIR_BYTES)
def test_anything_else_counts_by_its_bytes(body: bytes, coding: str) -> None:
    """Readers differ in what they make of it: some ignore what follows the first member, or what is missing."""
    assert fingerprint(coded(body, coding)) == fingerprint(coded(body, None))
    if body:
        assert fingerprint(coded(body, coding)) != fingerprint(coded(body + b" ", coding))


def test_two_headers_tell_no_coding() -> None:
    twice = coded(gzipped(ORDER))
    twice["multiValueHeaders"]["Content-Encoding"] = ["gzip", "gzip"]
    assert fingerprint(twice) == fingerprint(coded(gzipped(ORDER), None))


def test_a_content_of_ten_megabytes_counts_and_a_byte_more_does_not() -> None:
    """The body of a bomb is read no further."""
    largest = b" " * (LARGEST_CONTENT_BYTES - len(ORDER)) + ORDER

    assert LARGEST_CONTENT_BYTES == 10 * 1024 * 1024
    assert fingerprint(coded(gzipped(largest))) == WITHOUT_A_QUERY
    assert fingerprint(coded(gzipped(b" " + largest))) == fingerprint(coded(gzipped(b" " + largest), None))


def test_a_bomb_takes_no_more_memory_than_the_largest_content() -> None:
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = bytes(LARGEST_CONTENT_BYTES)
    bomb = b"".join([compressor.compress(zeros) for _ in range(20)]) + compressor.flush()
    event = coded(bomb)

    tracemalloc.start()
    try:
        assert fingerprint(event) == fingerprint(coded(bomb, None))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * LARGEST_CONTENT_BYTES


def test_a_body_that_api_gateway_has_decompressed_counts_as_it_comes(api: Api) -> None:
    """A REST API with compression enabled does so, and leaves the header."""
    assert api({**coded(ORDER), "body": ORDER.decode(), "isBase64Encoded": False})["statusCode"] == 201
    assert replayed(api(coded(gzipped(ORDER))))


def test_the_handler_gets_its_event_as_it_was_sent(api: Api) -> None:
    event = coded(gzipped(ORDER))
    api(event)
    assert api.runs == [event]
    assert gzip.decompress(base64.b64decode(event["body"])) == ORDER
