"""The API's responses, and what it sends to the queue, with a store in memory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from app.routes import callers, tenant
from app.transfer_service import TransferService
from tests.bank import ALICE, ASKED, QUEUE, Bank

if TYPE_CHECKING:
    from collections.abc import Callable


class Died(BaseException):
    """The worker is dead."""


@pytest.fixture
def bank() -> Bank:
    return Bank()


def dying(call: Callable[..., Any], *, after: bool) -> Callable[..., Any]:
    """A call in which the worker dies, before it or after it takes effect."""

    def die(*given: Any, **named: Any) -> Any:
        if after:
            call(*given, **named)
        raise Died

    return die


def test_a_transfer_is_accepted_posted_and_told_of(bank: Bank) -> None:
    status, headers, told = bank.post()
    assert (status, told) == (202, {**ASKED, "transfer_id": told["transfer_id"], "state": "accepted"})
    plain = {"Content-Type": "application/json", "Cache-Control": "no-store"}
    assert headers == {**plain, "Location": f"transfers/{told['transfer_id']}"}
    assert bank.get(told["transfer_id"])[::2] == (200, told)

    assert bank.deliver() == []

    assert bank.get(told["transfer_id"])[::2] == (200, {**told, "state": "posted"})
    assert bank.records.tables["accounts"].items["bob",]["balance"] == 1250


LOCALLY = {"AWS_SAM_LOCAL": "true", "LOCAL_CALLER": "arn:aws:iam::000000000000:root"}


def test_under_sam_local_an_unsigned_request_has_the_caller_that_the_environment_names() -> None:
    bank = Bank(caller=callers(LOCALLY))
    status, _, told = bank.post(caller=None)
    assert status == 202
    assert bank.get(told["transfer_id"], caller=LOCALLY["LOCAL_CALLER"])[0] == 200
    assert bank.get(told["transfer_id"], caller=None)[0] == 200


def test_a_signature_counts_for_more_than_the_environment() -> None:
    bank = Bank(caller=callers(LOCALLY))
    _, _, told = bank.post(caller=ALICE)
    assert bank.get(told["transfer_id"], caller=None)[0] == 404


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"LOCAL_CALLER": ALICE},
        {"LOCAL_CALLER": ALICE, "AWS_SAM_LOCAL": "false"},
        {"LOCAL_CALLER": "", "AWS_SAM_LOCAL": "true"},
        {"AWS_SAM_LOCAL": "true"},
    ],
)
def test_a_deployed_api_refuses_unsigned_requests(environment: dict[str, str]) -> None:
    """Neither a variable set by mistake nor anything in the request itself changes that."""
    bank = Bank(caller=callers(environment))
    status, _, _ = bank.post(caller=None, LOCAL_CALLER=ALICE, AWS_SAM_LOCAL="true")
    assert status == 400
    assert bank.queue == []


def test_the_same_request_is_answered_as_before_and_sends_nothing(bank: Bank) -> None:
    _, first, told = bank.post()
    status, again, body = bank.post()
    assert (status, body) == (202, told)
    assert again == {**first, "Idempotency-Replayed": "true"}
    assert len(bank.queue) == 1


def test_a_posted_transfer_is_still_posted_when_its_record_has_expired(bank: Bank) -> None:
    _, _, told = bank.post()
    bank.deliver()
    bank.records.items.clear()
    assert bank.get(told["transfer_id"])[2]["state"] == "posted"


def test_what_cannot_be_posted_has_failed_for_a_reason(bank: Bank) -> None:
    _, _, told = bank.post(asked={**ASKED, "amount": 10_001})
    bank.deliver()
    _, _, told = bank.get(told["transfer_id"])
    assert (told["state"], told["reason"]) == ("failed", "account alice is unknown or cannot pay 10001 USD")


@pytest.mark.parametrize("after", [False, True])
def test_a_worker_that_dies_after_it_has_sent_makes_no_second_transfer(
    bank: Bank, monkeypatch: pytest.MonkeyPatch, *, after: bool
) -> None:
    """Before or after its transaction was committed. The second message has another messageId and the same key."""
    with monkeypatch.context() as patched:
        patched.setattr(bank.claims, "commit", dying(bank.claims.commit, after=after))
        with pytest.raises(Died):
            bank.post()
    if not after:
        assert bank.post()[0] == 409
        bank.clock.seconds += 14

    # The same request, written differently.
    status, headers, told = bank.post(asked=json.dumps(dict(reversed(ASKED.items())), indent=2))

    assert (status, headers.get("Idempotency-Replayed")) == (202, "true" if after else None)
    assert len(bank.queue) == (1 if after else 2)
    assert all(message == bank.queue[0] for message in bank.queue), "to the byte"
    assert bank.deliver() == []
    assert bank.runs == [told["transfer_id"]]
    assert bank.get(told["transfer_id"])[2]["state"] == "posted"


def test_a_send_that_fails_may_be_asked_for_again_at_once(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(bank, "send_message", dying(bank.send_message, after=False))
        with pytest.raises(Died):
            bank.post()
    assert bank.post()[0] == 202
    assert len(bank.queue) == 1


def test_a_tenants_keys_and_transfers_are_its_own(bank: Bank) -> None:
    _, _, alices = bank.post()
    status, _, others = bank.post(caller="arn:aws:iam::123456789012:user/mallory")
    assert status == 202
    assert alices["transfer_id"] != others["transfer_id"]
    assert bank.get(alices["transfer_id"], "arn:aws:iam::123456789012:user/mallory")[0] == 404


def test_who_is_nobody_is_refused(bank: Bank) -> None:
    assert bank.post(caller=None)[0] == 400
    assert bank.queue == []


NO_OBJECT = "the body is not a JSON object, or repeats a name"
OTHER_FIELDS = "the body has fields other than amount, currency, from_account, to_account"


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ("", NO_OBJECT),
        ("[]", NO_OBJECT),
        ("{", NO_OBJECT),
        (json.dumps(ASKED).replace("{", '{"amount": 1, ', 1), NO_OBJECT),
        ({**ASKED, "amount": 0}, "the body is not a Transfer: amount: greater_than"),
        ({**ASKED, "amount": "5"}, "the body is not a Transfer: amount: int_type"),
        (json.dumps(ASKED).replace("1250", "1250.000000000000000001"), "the body is not a Transfer: amount: int_type"),
        ({"amount": 5}, "the body is not a Transfer: from_account: missing; to_account: missing; currency: missing"),
        ({**ASKED, "transfer_id": "mine"}, OTHER_FIELDS),
        ({**ASKED, "receipt": True}, OTHER_FIELDS),
    ],
)
def test_a_body_that_asks_for_no_transfer_does_not_use_up_its_key(bank: Bank, asked: Any, why: str) -> None:
    status, headers, told = bank.post(asked=asked)
    assert (status, headers["Content-Type"]) == (400, "application/problem+json")
    assert told["detail"] == why
    assert bank.queue == []
    assert bank.post()[0] == 202


def test_json_may_write_an_integer_with_a_point(bank: Bank) -> None:
    _, _, told = bank.post(asked=json.dumps(ASKED).replace("1250", "1250.0"))
    assert bank.post()[2] == told
    assert told["amount"] == 1250


def test_a_transfer_to_oneself_does_not_use_up_its_key_either(bank: Bank) -> None:
    assert bank.post(asked={**ASKED, "to_account": "alice"})[0] == 422
    assert bank.post()[0] == 202


def test_another_body_under_a_used_key_is_refused(bank: Bank) -> None:
    bank.post()
    assert bank.post(asked={**ASKED, "amount": 1})[0] == 422
    assert bank.post(key=None)[0] == 400
    assert len(bank.queue) == 1


@pytest.mark.parametrize("id", ["nothing", "0" * 64, "A" * 64, "x" * 3000])
def test_a_transfer_that_is_not_there_is_404(bank: Bank, id: str) -> None:
    status, _, told = bank.get(id)
    assert (status, told["detail"]) == (404, "There is no such transfer.")


def test_on_a_fifo_queue_a_payers_transfers_stay_in_order() -> None:
    bank = Bank(f"{QUEUE}.fifo")
    _, _, told = bank.post()
    (message,) = bank.queue
    assert (message["MessageGroupId"], message["MessageDeduplicationId"]) == ("alice", told["transfer_id"])


def test_while_the_store_is_down_a_client_is_asked_to_come_again(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    def down(*_: object) -> None:
        raise ConnectionError

    monkeypatch.setattr(TransferService, "find", down)
    status, headers, told = bank.get("0" * 64)
    assert (status, told["status"], told["title"], told["type"]) == (503, 503, "Service Unavailable", "about:blank")
    problem = {"Content-Type": "application/problem+json", "Cache-Control": "no-store"}
    assert headers == {**problem, "Retry-After": "1"}


def test_a_route_that_the_template_does_not_have_is_named(bank: Bank) -> None:
    with pytest.raises(LookupError, match="PUT /nowhere"):
        bank._ask("PUT", "/nowhere", ALICE)


@pytest.mark.parametrize(
    ("arn", "owner"),
    [
        ("arn:aws:iam::1:user/team/alice", "arn:aws:iam::1:user/team/alice"),
        ("arn:aws:sts::1:assumed-role/shop/session-1", "arn:aws:sts::1:assumed-role/shop"),
        (None, ""),
    ],
)
def test_all_sessions_of_a_role_are_one_caller(arn: str | None, owner: str) -> None:
    assert tenant({"requestContext": {"identity": {"userArn": arn}}}) == owner


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (None, {"state": "accepted"}),
        ({"type": "ConnectionError"}, {"state": "accepted"}),
        ({"type": "PermanentError", "text": "closed", "permanent": True}, {"state": "failed", "reason": "closed"}),
    ],
)
def test_a_failure_that_is_tried_again_leaves_a_transfer_accepted(bank: Bank, error: Any, state: Any) -> None:
    _, _, told = bank.post()
    assert bank.queue[0]["QueueUrl"] == QUEUE
    item = {"id": told["transfer_id"], "status": "FAILED", "version": "v", "expiration": 4_000_000_000}
    bank.records.items[told["transfer_id"]] = item if error is None else item | {"error": json.dumps(error)}
    assert bank.get(told["transfer_id"])[::2] == (200, {**told, **state})
