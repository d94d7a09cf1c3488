"""An HTTP handler reads through its transaction: the response that is kept rests on what stood when it was."""

from __future__ import annotations

from threading import Lock
from typing import Any

import pytest

from idempotent_receiver import StoreUnavailable, Transaction, http_endpoint
from idempotent_receiver.protocol.store import Unknown
from idempotent_receiver.testing import Table
from tests.counting_store import CountingStore
from tests.manual_clock import ManualClock
from tests.unit.http.api import Invocation, problem, request

ACCOUNT: dict[str, Any] = {"TableName": "accounts", "Key": {"account": "a"}, "attributes": ["balance"]}


class Bank(CountingStore):
    """One account, which somebody else changes before the first commit."""

    def __init__(self) -> None:
        super().__init__()
        self.account: dict[str, Any] = {"account": "a", "balance": 5}
        self.tables["accounts"] = Table("account")
        self.tables["accounts"].items["a",] = self.account
        self.before = self._before

    def _before(self, name: str) -> None:
        if name == "commit" and self.asked.count("commit") == 1:
            self.account["balance"] = 6


def refusing(event: dict[str, Any], context: object, tx: Transaction) -> Any:
    return {"statusCode": 402, "body": str(tx.get(**ACCOUNT)["balance"])}


def raising(event: dict[str, Any], context: object, tx: Transaction) -> Any:
    if tx.get(**ACCOUNT)["balance"] == 5:
        raise ValueError
    return {"statusCode": 200, "body": "6"}


@pytest.mark.parametrize(("handler", "options"), [(refusing, {}), (raising, {"on_exception": "replay"})])
def test_what_is_kept_rests_on_what_stood(handler: Any, options: dict[str, Any]) -> None:
    """A refusal, and an exception that counts as the answer."""
    clock, store = ManualClock(), Bank()
    api = http_endpoint(store, clock=clock, **options)(handler)
    assert [api(request(), Invocation(clock))["body"] for _ in range(2)] == ["6", "6"]
    assert store.asked.count("commit") == 2


def test_a_handler_that_runs_again_gets_the_event_as_it_was_sent() -> None:
    """Whatever its first run has changed in it. What a decorator has added, such as a lock, is not copied."""
    clock, store, lock = ManualClock(), Bank(), Lock()
    taken: list[Any] = []

    @http_endpoint(store, clock=clock)
    def handler(event: dict[str, Any], context: object, tx: Transaction) -> Any:
        context_of, keys = event["requestContext"], event["multiValueHeaders"]["Idempotency-Key"]
        taken.append((event.pop("body", None), context_of.pop("identity", None), [*keys], event["lock"]))
        keys.clear()
        return {"statusCode": 200, "body": str(tx.get(**ACCOUNT)["balance"])}

    assert handler({**request(), "lock": lock}, Invocation(clock))["body"] == "6"
    assert taken == [('{"amount": 5}', {}, ["k-1"], lock)] * 2


def test_a_response_that_is_not_kept_checks_nothing() -> None:
    clock, store = ManualClock(), Bank()

    @http_endpoint(store, clock=clock)
    def handler(event: dict[str, Any], context: object, tx: Transaction) -> Any:
        return {"statusCode": 503, "body": str(tx.get(**ACCOUNT)["balance"])}

    assert handler(request(), Invocation(clock))["body"] == "5"
    assert "commit" not in store.asked


def test_a_read_that_failed_is_never_the_kept_answer() -> None:
    clock, store = ManualClock(), Bank()
    get = store.get
    api = http_endpoint(store, clock=clock, on_exception="replay")(raising)
    store.get = lambda table, key: Unknown("nobody answered")  # type: ignore[method-assign]
    problem(api(request(), Invocation(clock)), 503)
    store.get = get  # type: ignore[method-assign]
    assert api(request(), Invocation(clock))["body"] == "6"


def test_a_request_without_a_record_reads_nothing_either() -> None:
    clock, store = ManualClock(), Bank()
    api = http_endpoint(store, clock=clock)(raising)
    with pytest.raises(RuntimeError, match="GET, HEAD and OPTIONS requests have no record"):
        api(request(method="GET"), Invocation(clock))


def test_a_failed_read_is_raised_where_exceptions_may_be_retried() -> None:
    clock, store = ManualClock(), Bank()
    api = http_endpoint(store, clock=clock)(raising)
    store.get = lambda table, key: Unknown("nobody answered")  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable, match="nobody answered"):
        api(request(), Invocation(clock))
