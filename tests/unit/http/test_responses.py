"""HTTP: the form of a response for each way in, and what is refused at set-up."""

from __future__ import annotations

from contextvars import Context
from typing import Any

import pytest

from idempotent_receiver import MemoryStore, body_field, header, http_endpoint, message_id, payload_key
from tests.unit.http.api import ANSWER, Api, problem, request


@pytest.mark.parametrize(
    ("status", "described"), [(400, "400 Bad Request"), (409, "409 Conflict"), (503, "503 Service")]
)
@pytest.mark.parametrize("form", ["alb", "alb-multi"])
def test_a_load_balancer_gets_problems_in_its_form(api: Api, form: str, status: int, described: str) -> None:
    """With a status description, and with headers in the mapping that it reads; it ignores the other one."""
    inside: list[dict[str, Any]] = []
    api.does = lambda event: inside.append(Context().run(api, request(form=form))) or ANSWER
    api(request(form=form))
    api.store.down = {"insert", "read"}
    answers = {400: api(request(None, form=form)), 409: inside[0], 503: api(request("k-2", form=form))}

    response = answers[status]
    problem(response, status)
    assert response["statusDescription"].startswith(described)
    assert ("headers" in response, "multiValueHeaders" in response) == (form == "alb", form == "alb-multi")


@pytest.mark.parametrize("form", ["rest", "http", "url"])
def test_others_get_only_the_fields_that_they_accept(api: Api, form: str) -> None:
    """A REST API answers 502 to a field that it does not know."""
    assert set(api(request(None, form=form))) == {"statusCode", "headers", "body", "isBase64Encoded"}


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
def unresolved(event: Any, context: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        (lambda: http_endpoint(handle), TypeError, "@http_endpoint.store"),
        (lambda: http_endpoint(MemoryStore()), ValueError, "namespace"),
        (lambda: http_endpoint(MemoryStore("a"), key=header), TypeError, "key must be"),
        (lambda: http_endpoint(MemoryStore("a"), key=message_id), TypeError, "key must be"),
        (lambda: http_endpoint(MemoryStore("a"), key=body_field), TypeError, "key must be"),
        (lambda: http_endpoint(MemoryStore("a"), scope="tenant"), TypeError, "scope must be a callable"),
        (
            lambda: http_endpoint(MemoryStore("a"), key=payload_key("order_id")),
            ValueError,
            r"a key made of the payload needs a scope.*scope=lambda event: .*scope=None",
        ),
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
        (lambda: http_endpoint(MemoryStore("a"))(unresolved), TypeError, "^unresolved: an annotation cannot be"),
        (lambda: http_endpoint(MemoryStore("a"))(handle)(request(), None), TypeError, "context"),
        (lambda: header(""), ValueError, "Idempotency-Key"),
    ],
)
def test_what_can_be_known_at_set_up_is_said_there(wrong: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        wrong()
