"""HTTP: the response to a new request, to a repeated or concurrent one, and to one whose end is not known."""

from __future__ import annotations

import base64
import io
import json
from contextlib import suppress
from contextvars import Context
from typing import Any

import pytest
from aws_lambda_powertools import Logger

from idempotent_receiver import (
    MemoryStore,
    Transaction,
    current_claim,
    http_endpoint,
)
from tests.contexts import Context as Invocation
from tests.counting_store import CountingStore
from tests.manual_clock import ManualClock
from tests.unit.http.api import ANSWER, FORMATS, Api, problem, raising, replayed, request

HELD_SECONDS = 33
"""How long a lease of an invocation of 30 seconds lasts."""


@pytest.mark.parametrize("form", FORMATS)
def test_a_request_sent_again_gets_the_first_answer_byte_for_byte(api: Api, form: str) -> None:
    """Status, headers, cookies and body, marked as a replay. Two requests to the table, then one."""
    first = api(request(form=form))
    assert api.store.asked == ["insert", "replace"]
    again = api(request(form=form))

    assert api.store.asked == ["insert", "replace", "insert"]
    assert not replayed(first)
    place, mark = ("multiValueHeaders", ["true"]) if form == "alb-multi" else ("headers", "true")
    assert again == {**first, place: {**first[place], "Idempotency-Replayed": mark}}
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

    assert api(request(form="http")) == {
        "statusCode": 200,
        "headers": {"Content-Type": "application/json", "Idempotency-Replayed": "true"},
        "body": answer if isinstance(answer, str) else json.dumps(answer, separators=(",", ":")),
        "isBase64Encoded": False,
    }


@pytest.mark.parametrize("status", [200, 400, 404, 409, 422, 500, 502, 504])
def test_an_answer_that_is_returned_is_kept(api: Api, status: int) -> None:
    """Error responses too: a client that asks again must get the same response. A 502 or 504 may follow an effect."""
    api.does = lambda event: {"statusCode": status, "body": str(len(api.runs))}

    assert api(request())["body"] == api(request())["body"] == "1"


NOT_KEPT = [401, 403, 408, 429, 503]


@pytest.mark.parametrize("status", NOT_KEPT)
def test_an_answer_that_asks_for_a_better_or_later_request_is_not_kept(api: Api, status: int) -> None:
    """A fresh token, or another time: nothing was done, and the same key must be able to do it."""
    answers = iter([status, 201])
    api.does = lambda event: {"statusCode": next(answers)}

    told = [api(request()) for _ in range(3)]
    assert [answer["statusCode"] for answer in told] == [status, 201, 201]
    assert [replayed({"headers": {}, **answer}) for answer in told] == [False, False, True]


@pytest.mark.parametrize("status", NOT_KEPT)
def test_every_answer_is_kept_where_that_is_said(status: int) -> None:
    api = Api(is_final=lambda status: True)
    api.does = lambda event: {"statusCode": status, "body": str(len(api.runs))}

    assert api(request())["body"] == api(request())["body"] == "1"


def test_a_policy_says_which_statuses_are_final() -> None:
    api = Api(is_final=lambda status: status < 500)
    answers = iter([{"statusCode": "503", "body": "later"}, {"statusCode": 200, "body": "done"}])
    api.does = lambda event: next(answers)

    assert [api(request())["body"] for _ in range(3)] == ["later", "done", "done"]
    assert len(api.runs) == 2


@pytest.mark.parametrize("status", [200, 500])
def test_whether_an_answer_is_final_is_asked_once(status: int) -> None:
    """Otherwise the record could say one thing and the response another."""
    asked: list[int] = []
    api = Api(is_final=lambda status: asked.append(status) or status < 500)  # type: ignore[func-returns-value]
    api.does = lambda event: {"statusCode": status}

    assert api(request()) == {"statusCode": status}
    assert asked == [status]


def undecided(status: int) -> Any:
    raise KeyError("secret")


class Undecided:
    def __bool__(self) -> bool:
        raise KeyError("secret")


@pytest.mark.parametrize("is_final", [undecided, lambda status: Undecided()])
@pytest.mark.parametrize("status", [201, 503])
def test_an_answer_is_final_where_the_policy_raises(is_final: Any, status: int) -> None:
    """The effect may be done. Had it not been kept, the next request would do it again."""
    stream = io.StringIO()
    api = Api(is_final=is_final, logger=Logger(service=f"undecided-{id(is_final)}-{status}", stream=stream))
    api.does = lambda event: {"statusCode": status, "body": str(len(api.runs))}

    assert api(request()) == {"statusCode": status, "body": "1"}
    assert api.store.items["tests#k-1"]["status"] == "COMPLETED"
    assert api(request())["body"] == "1"
    (line,) = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert (line["level"], line["error_type"]) == ("ERROR", "KeyError")
    assert line["message"] == "is_final raised: the response is stored"
    assert line["at"].startswith(f"{__name__}.")
    assert "secret" not in stream.getvalue()


@pytest.mark.parametrize("status", [float("inf"), "soon", {}])
def test_a_status_that_is_no_number_is_a_500(status: object) -> None:
    """As API Gateway answers it."""
    asked: list[int] = []
    api = Api(is_final=asked.append)
    api.does = lambda event: {"statusCode": status}
    api(request())

    assert asked == [500]


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
    options: dict[str, int], passed_seconds: float, retry_after: str
) -> None:
    """After a second, or as configured; never after the lease's end, 33 seconds after its start."""
    api = Api(**options)
    inside = []

    def does(event: dict[str, Any]) -> Any:
        api.clock.seconds += passed_seconds
        inside.append(Context().run(api, request()))
        return ANSWER

    api.does = does
    api(request(), seconds=30)

    problem(inside[0], 409)
    assert inside[0]["headers"]["Retry-After"] == retry_after
    assert len(api.runs) == 1


def started(api: Api, lease_seconds: float) -> dict[str, Any]:
    """Make an API's record one that another request holds; what it was."""
    api(request())
    done = dict(api.store.items["tests#k-1"])
    ends = api.clock.epoch_ms() + int(lease_seconds * 1000)
    api.store.items["tests#k-1"] |= {"status": "INPROGRESS", "in_progress_expiration": ends}
    return done


def test_a_request_may_wait_for_the_one_that_runs_and_get_its_answer() -> None:
    api = Api(wait_seconds=5)
    done = started(api, lease_seconds=20)
    api.store.before = lambda name: api.store.items.update({"tests#k-1": done}) if api.clock.seconds >= 2 else None

    again = api(request())

    assert replayed(again)
    assert again["headers"]["X-Run"] == "1"
    assert 2 <= api.clock.seconds < 3, "soon after it was there"
    assert len(api.clock.sleeps) < 12


@pytest.mark.parametrize(("seconds", "asking", "waited"), [(30, 0, 5), (4, 0, 3), (30, 2, 7)])
def test_a_wait_is_bounded_by_the_option_and_by_the_deadline(seconds: float, asking: float, waited: float) -> None:
    """It begins once the store has told that the other still runs."""
    api = Api(wait_seconds=5)
    started(api, lease_seconds=60)
    api.store.before = lambda name: api.clock.sleep(asking * (name == "insert"))

    problem(api(request(), seconds=seconds), 409)
    assert api.clock.seconds == pytest.approx(waited)


def test_who_waits_takes_over_what_becomes_claimable() -> None:
    api = Api(wait_seconds=5)
    started(api, lease_seconds=2)

    assert not replayed(api(request()))
    assert len(api.runs) == 2


def test_an_exception_is_lambdas_and_the_next_request_runs_again(api: Api) -> None:
    keys = []

    def does(event: dict[str, Any]) -> Any:
        keys.append(current_claim().idempotency_key)
        if len(keys) == 1:
            raise ConnectionError("secret")
        return ANSWER

    api.does = does
    with pytest.raises(ConnectionError):
        api(request())
    assert "secret" not in json.dumps(api.store.items)

    assert api(request()) == ANSWER
    assert len(set(keys)) == 1


@pytest.mark.parametrize("form", FORMATS)
def test_an_exception_may_be_the_last_word_and_tells_nothing(form: str) -> None:
    api = Api(on_exception="replay")
    api.does = raising(ConnectionError("secret"))
    first, again = api(request(form=form)), api(request(form=form))

    problem(first, 500)
    assert "secret" not in json.dumps([first, api.store.items])
    place, mark = ("multiValueHeaders", ["true"]) if form == "alb-multi" else ("headers", "true")
    assert again == {**first, place: {**first[place], "Idempotency-Replayed": mark}}
    assert len(api.runs) == 1


def test_an_exception_that_could_not_be_recorded_is_not_final() -> None:
    """The next request may succeed."""
    api = Api(on_exception="replay")

    def does(event: dict[str, Any]) -> Any:
        api.store.down = {"replace", "read"}
        raise ConnectionError

    api.does = does
    problem(api(request()), 503)


def test_a_process_that_is_told_to_end_ends_whatever_the_policy() -> None:
    api = Api(on_exception="replay")
    api.does = raising(SystemExit(1))
    with pytest.raises(SystemExit):
        api(request())


def test_a_lost_claim_is_answered_with_the_winners_answer(api: Api) -> None:
    def does(event: dict[str, Any]) -> Any:
        if current_claim().attempt == 1:
            api.clock.seconds += HELD_SECONDS + 1
            assert Context().run(api, request())["body"] == "the winner's"
            return {"statusCode": 200, "body": "the loser's"}
        return {"statusCode": 200, "body": "the winner's"}

    api.does = does
    response = api(request())
    assert response == {"statusCode": 200, "body": "the winner's", "headers": {"Idempotency-Replayed": "true"}}


@pytest.mark.parametrize(("left_ms", "retry_after"), [(60_000, "5"), (2_001, "3"), (1_500, "2"), (0, "1")])
def test_a_lost_claim_whose_winner_still_runs_is_a_conflict(left_ms: int, retry_after: str) -> None:
    api = Api(retry_after_seconds=5)

    def does(event: dict[str, Any]) -> Any:
        lease = {"in_progress_expiration": api.clock.epoch_ms() + left_ms}
        api.store.items["tests#k-1"] |= {"version": "another's", **lease}
        return ANSWER

    api.does = does
    response = api(request())
    problem(response, 409)
    assert response["headers"]["Retry-After"] == retry_after


@pytest.mark.parametrize(("on_exception", "status"), [("retry", 503), ("replay", 500)])
def test_a_lost_claim_whose_winner_failed_is_no_conflict(on_exception: str, status: int) -> None:
    """Nothing is in progress: the response allows a retry, or is the winner's failure."""
    api = Api(on_exception=on_exception)

    def does(event: dict[str, Any]) -> Any:
        if current_claim().attempt > 1:
            raise ConnectionError
        api.clock.seconds += HELD_SECONDS + 1
        with suppress(ConnectionError):
            Context().run(api, request())
        return ANSWER

    api.does = does
    response = api(request())
    problem(response, status)
    assert replayed(response) is (on_exception == "replay")
    assert api.store.items["tests#k-1"]["status"] == "FAILED"


def test_a_response_that_is_not_final_is_not_replayed_as_an_exception() -> None:
    """An exception may be final where a response is not."""
    api = Api(on_exception="replay", is_final=lambda status: status < 500)
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


def test_a_transaction_that_the_store_did_not_apply_is_not_replayed_as_an_exception() -> None:
    """The response says that the client may retry, and a retry succeeds."""
    clock, store = ManualClock(), CountingStore()

    @http_endpoint(store, clock=clock, on_exception="replay")
    def handler(event: dict[str, Any], context: object, tx: Transaction) -> Any:
        tx.put(TableName="entries", Item={"id": "e"})
        return ANSWER

    store.down = {"commit"}
    problem(handler(request(), Invocation(clock)), 503)
    store.down = set()

    assert handler(request(), Invocation(clock)) == ANSWER
    assert store.tables["entries"].items


@pytest.mark.parametrize(
    ("options", "status"), [({"is_final": lambda status: status < 500}, 500), *(({}, each) for each in NOT_KEPT)]
)
def test_a_transaction_commits_with_the_answer(options: dict[str, Any], status: int) -> None:
    """But not with one that is not final."""
    clock, store, answers = ManualClock(), CountingStore(), iter([status, 201])

    @http_endpoint(store, clock=clock, **options)
    def handler(event: dict[str, Any], context: object, tx: Transaction) -> Any:
        tx.put(TableName="entries", Item={"id": "e"})
        return {"statusCode": next(answers)}

    handler(request(), Invocation(clock))
    assert store.tables == {}
    handler(request(), Invocation(clock))
    assert store.tables["entries"].items


def test_a_store_that_is_down_is_said_and_nothing_ran(api: Api) -> None:
    api.store.down = {"insert", "read"}
    response = api(request())

    problem(response, 503)
    assert response["headers"]["Retry-After"] == "1"
    assert api.runs == []


@pytest.mark.parametrize(("seconds", "down"), [(30, {"insert", "read"}), (1, set())])
def test_a_503_does_not_say_that_nothing_was_done(api: Api, seconds: float, down: set[str]) -> None:
    """An earlier request with the key may have done it without being recorded: a client that believed that nothing was
    done, and took a new key, would do it twice.
    """
    api.does = lambda event: api.store.down.update({"replace", "read"}) or ANSWER
    unrecorded = problem(api(request()), 503)
    api.store.down = down
    again = problem(api(request(), seconds=seconds), 503)

    assert len(api.runs) == 1
    assert again == unrecorded


def test_with_too_little_time_nothing_is_begun(api: Api) -> None:
    problem(api(request(), seconds=1), 503)
    assert api.untouched


def test_a_response_that_was_not_kept_is_gone(api: Api) -> None:
    """The effect is still done."""
    api.does = lambda event: {"statusCode": 200, "body": "x" * 400_000}
    assert len(api(request())["body"]) == 400_000

    problem(api(request()), 410)
    assert len(api.runs) == 1


def test_an_endpoint_looks_like_its_function() -> None:
    def pay(event: object, context: object) -> None:
        """Takes a payment."""

    endpoint: Any = http_endpoint(MemoryStore("pay"))(pay)
    assert (endpoint.__name__, endpoint.__doc__, endpoint.__wrapped__) == ("pay", "Takes a payment.", pay)


def test_a_record_of_another_kind_is_left_alone(api: Api) -> None:
    api.store.items["tests#k-1"] = {"id": "tests#k-1", "status": "PAUSED"}

    problem(api(request()), 500)
    assert api.store.items["tests#k-1"] == {"id": "tests#k-1", "status": "PAUSED"}


# Requests that are not protected.


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
@pytest.mark.parametrize("key", ["k-1", None])
def test_a_request_that_only_reads_passes_unprotected(api: Api, form: str, method: str, key: str | None) -> None:
    """With a key or without: a browser's preflight and a load balancer's health check have none, and a kept response
    would be an old one.
    """
    answers = [api(request(key, form=form, method=method)) for _ in range(2)]

    assert [answer["headers"]["X-Run"] for answer in answers] == ["1", "2"]
    assert not any(replayed(answer) for answer in answers)
    assert api.store.asked == []


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "TRACE", "get"])
def test_every_other_request_needs_a_key(api: Api, method: str) -> None:
    problem(api(request(None, method=method)), 400)
    assert api.untouched

    assert [replayed(api(request(method=method))) for _ in range(2)] == [False, True]


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (request(method="GET"), "OPTIONS requests have no record .* use POST, PUT, PATCH or DELETE"),
        (request(None, method="OPTIONS"), "OPTIONS requests have no record .* use POST, PUT, PATCH or DELETE"),
        (request(None), "requests without a key have no record .* required=True"),
    ],
)
@pytest.mark.parametrize(
    "write",
    [
        lambda tx: tx.put(TableName="entries", Item={"id": "e"}),
        lambda tx: tx.update(TableName="entries", Key={"id": "e"}, UpdateExpression="SET a = b"),
        lambda tx: tx.delete(TableName="entries", Key={"id": "e"}),
        lambda tx: tx.check(TableName="entries", Key={"id": "e"}, ConditionExpression="attribute_exists(id)"),
    ],
    ids=["put", "update", "delete", "check"],
)
def test_the_transaction_of_an_unprotected_request_takes_nothing(event: Any, said: str, write: Any) -> None:
    """There is no record for it to commit with, so each call says so, where it would be lost in silence."""
    clock, store, writes = ManualClock(), CountingStore(), [write]

    @http_endpoint(store, clock=clock, required=False)
    def handler(event: dict[str, Any], context: object, tx: Transaction) -> Any:
        for each in writes:
            each(tx)
        return ANSWER

    with pytest.raises(RuntimeError, match=said):
        handler(event, Invocation(clock))
    writes.clear()
    assert handler(event, Invocation(clock)) == ANSWER
    assert (store.asked, store.tables) == ([], {})


def test_an_unprotected_request_has_no_claim_and_is_told_why() -> None:
    """Code that all methods share may ask for the idempotency key."""
    api = Api(required=False)
    api.does = lambda event: {"statusCode": 200, "body": current_claim().key}

    assert api(request())["body"] == "k-1"
    for unprotected in (request(method="GET"), request(None)):
        with pytest.raises(LookupError, match="a GET or an HTTP request without a key has no claim"):
            api(unprotected)
