"""Every example event has an expected answer, and the deployed application gives it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from app.ledger import Ledger
from app.transfers import Transfer
from harness.invoke import matches, meant
from idempotent_receiver import MemoryStore, Transaction, sqs_consumer
from tests import bank as with_api
from tests.contexts import Context
from tests.queues import Queues

EVENTS = Path(__file__).resolve().parents[3] / "events"
NO_EVENT = "env.json"
"""What `sam local` gives to functions."""
ALL_NAMES = sorted(path.stem for path in EVENTS.glob("*.json") if path.name != NO_EVENT)
OVER_HTTP = [name for name in ALL_NAMES if name.startswith("http-")]
with_and_without_claims = pytest.mark.parametrize("effects", ["any", "transaction"])
NAMES = [name for name in ALL_NAMES if name not in OVER_HTTP]


def read(*parts: str) -> Any:
    return json.loads(EVENTS.joinpath(*parts).read_text())


def messages(name: str) -> list[dict[str, Any]]:
    return read(f"{name}.json").get("Records", [])


class Bank:
    """The deployed application with a store in memory and the accounts that the events need.

    `at_once`: with the template's DeadLetterAtOnce. `effects`: its Effects.
    """

    def __init__(self, *, at_once: bool = False, effects: str = "any") -> None:
        self.store = MemoryStore(tables={"accounts": "account_id", "entries": "entry_id"})
        self.queues = Queues()
        self.dead_letters = self.queues.create("dead-letters")
        self.runs: list[str] = []
        for account in read("given", "accounts.json"):
            self.store.tables["accounts"].items[account["account_id"],] = account
        for entry in read("given", "entries.json"):
            self.store.tables["entries"].items[entry["entry_id"],] = entry
        ledger = Ledger(accounts="accounts", entries="entries")

        def post(transfer: Transfer, tx: Transaction) -> None:
            self.runs.append(transfer.transfer_id)
            ledger.post(transfer, tx)

        idempotent_handler = sqs_consumer(
            self.store,
            sqs=self.queues,  # type: ignore[arg-type]  # it has the two methods that are called
            dead_letter_queue=self.dead_letters.url if at_once else None,
            envelope="detail || Message",
            effects=effects,
        )
        self.handler = idempotent_handler(post)

    @property
    def reasons(self) -> dict[str, str]:
        """The reasons of permanent failures in the records, by id."""
        errors = {id: json.loads(item["error"]) for id, item in self.store.items.items() if item["status"] == "FAILED"}
        return {id: error["text"] for id, error in errors.items() if error.get("permanent")}

    def answer(self, name: str) -> dict[str, Any]:
        """The application's answer to an event."""
        context = Context()
        try:
            return dict(self.handler(read(f"{name}.json"), context))
        except ValueError as error:  # InvalidEvent is an answer; any other exception fails the test
            return {"errorType": type(error).__name__, "errorMessage": str(error)}


def agrees(answer: dict[str, Any], expected: dict[str, Any]) -> bool:
    return all(answer.get(field) == value for field, value in expected.items())


def test_every_event_has_its_answer_and_every_answer_its_event() -> None:
    assert sorted(path.stem for path in (EVENTS / "expected").glob("*.json")) == ALL_NAMES


def test_every_event_is_told_of() -> None:
    told = (EVENTS / "README.md").read_text()
    assert [name for name in ALL_NAMES if f"`{name}.json` | " not in told] == []


@pytest.mark.parametrize("name", NAMES)
def test_an_expected_answer_is_a_partial_batch_response_or_an_error(name: str) -> None:
    expected = read("expected", f"{name}.json")
    assert expected.keys() in ({"batchItemFailures"}, {"errorType"})
    sent = [message.get("messageId") for message in messages(name)]
    failures = [failure["itemIdentifier"] for failure in expected.get("batchItemFailures", [])]
    assert set(failures) <= set(sent)
    assert len(set(failures)) == len(failures)


@pytest.mark.parametrize("name", NAMES)
def test_messages_are_as_sqs_hands_them_over(name: str) -> None:
    for message in messages(name):
        assert message["md5OfBody"] == hashlib.md5(message["body"].encode()).hexdigest()
        assert message["eventSource"] == "aws:sqs"
        assert message["eventSourceARN"].startswith("arn:aws:sqs:us-east-1:123456789012:transfers")
        assert int(message["attributes"]["ApproximateReceiveCount"]) >= 1
        assert message["eventSourceARN"].endswith(".fifo") == ("SequenceNumber" in message["attributes"])


@with_and_without_claims
@pytest.mark.parametrize("name", NAMES)
def test_alone_it_is_answered_as_expected(name: str, effects: str) -> None:
    assert agrees(Bank(effects=effects).answer(name), read("expected", f"{name}.json"))


@with_and_without_claims
def test_after_all_others_and_again_it_is_answered_as_expected(effects: str) -> None:
    bank = Bank(effects=effects)
    for name in [*NAMES, *reversed(NAMES)]:
        assert agrees(bank.answer(name), read("expected", f"{name}.json")), name


@with_and_without_claims
def test_the_accounts_can_pay_for_all_of_them(effects: str) -> None:
    """Otherwise an answer would depend on earlier events; an overdraft takes more than all the money there is."""
    bank = Bank(effects=effects)
    before = sum(account["balance"] for account in read("given", "accounts.json"))
    for name in NAMES:
        bank.answer(name)
    accounts = bank.store.tables["accounts"].items.values()
    assert sum(account["balance"] for account in accounts) == before
    assert {reason.partition(" ")[0] for reason in bank.reasons.values()} == {"account", "transfer", "the"}
    assert len(bank.reasons) == 9


def test_a_redelivered_or_redriven_message_that_is_done_is_not_run_again() -> None:
    bank = Bank()
    for name in ("fresh", "redelivered", "redriven"):
        bank.answer(name)
    assert bank.runs == ["fresh-1", "fresh-2", "fresh-3"]


def test_alone_a_redelivered_message_is_run() -> None:
    bank = Bank()
    bank.answer("redelivered")
    assert bank.runs == ["fresh-1", "fresh-2", "fresh-3"]


def test_a_message_that_a_batch_has_twice_is_run_once() -> None:
    bank = Bank()
    bank.answer("duplicate")
    assert sorted(bank.runs) == ["twice-1", "twice-2"]


def test_a_failed_group_stops_and_the_other_goes_on() -> None:
    bank = Bank()
    bank.answer("fifo")
    assert sorted(bank.runs) == ["fifo-alice-1", "fifo-alice-2", "fifo-bob-1", "fifo-bob-2"]


@pytest.mark.parametrize("name", ["bad-body", "permanent-failure", "fifo"])
def test_what_fails_for_good_is_a_failure_and_its_record_tells_why(name: str) -> None:
    bank = Bank()
    failed = [each["itemIdentifier"] for each in bank.answer(name)["batchItemFailures"]]
    behind = {"5f2c1d64-0005-4000-8000-000000000004"}  # in fifo.json; it never runs
    assert set(bank.reasons) == set(failed) - behind != set()
    assert bank.dead_letters.sent == []


@with_and_without_claims
@pytest.mark.parametrize(("name", "sent"), [("bad-body", 4), ("permanent-failure", 4), ("fifo", 0)])
def test_with_dead_letters_at_once_what_fails_for_good_is_sent_and_acknowledged(
    name: str, sent: int, effects: str
) -> None:
    """Unless its dead letter has no room for the reason."""
    bank = Bank(at_once=True, effects=effects)
    failed = bank.answer(name)["batchItemFailures"]
    stamps = [each["MessageAttributes"]["idempotent-receiver"]["StringValue"] for each in bank.dead_letters.sent]
    told = {stamp["key"]: stamp["reason"] for stamp in map(json.loads, stamps)}
    assert len(told) == sent
    if name == "fifo":
        assert failed == read("expected", "fifo.json")["batchItemFailures"]
    else:
        assert (failed, told) == ([], bank.reasons)


def test_a_bad_body_dies_with_field_and_kind_of_its_problem() -> None:
    bank = Bank()
    bank.answer("bad-body")
    assert bank.runs == ["good-after-bad-5"]
    assert sorted(bank.reasons.values()) == [
        "the body is not a Transfer: amount: int_type",
        "the body is not a Transfer: body: json_invalid",
        "the body is not a Transfer: body: value_error",
        "the body is not a Transfer: to_account: missing",
    ]


# HTTP events.


@pytest.fixture
def api() -> with_api.Bank:
    """The API with stores in memory and the records that the events need."""
    bank = with_api.Bank()
    for record in read("given", "records.json"):
        bank.claims.items[record["id"]] = record
    return bank


@pytest.mark.parametrize("name", ALL_NAMES)
def test_an_event_is_for_the_function_that_can_answer_it(name: str) -> None:
    assert meant(read(f"{name}.json")) == ("Api" if name in OVER_HTTP else "Consumer")


@pytest.mark.parametrize("name", OVER_HTTP)
def test_a_request_is_answered_as_expected(api: with_api.Bank, name: str) -> None:
    answer = api.api(read(f"{name}.json"), with_api.context())
    assert matches(answer, read("expected", f"{name}.json")), answer


def test_after_all_others_and_again_a_request_is_answered_as_expected(api: with_api.Bank) -> None:
    for name in [*OVER_HTTP, *reversed(OVER_HTTP)]:
        answer = api.api(read(f"{name}.json"), with_api.context())
        assert matches(answer, read("expected", f"{name}.json")), name
    assert len(api.queue) == 1, "of the first call alone"


def test_requests_are_as_api_gateway_hands_them_over() -> None:
    for name in OVER_HTTP:
        event = read(f"{name}.json")
        assert event["multiValueHeaders"] == {each: [value] for each, value in event["headers"].items()}
        assert event["requestContext"]["path"] == f"/v1{event['path']}"
        assert event["requestContext"]["identity"]["userArn"] == "arn:aws:iam::123456789012:user/shop"


def test_of_a_response_only_what_is_expected_is_compared() -> None:
    answer = {"statusCode": 202, "headers": {"A": "1", "B": "2"}, "body": "{}"}
    assert matches(answer, {"statusCode": 202, "headers": {"A": "1"}})
    assert not matches(answer, {"statusCode": 202, "headers": {"C": "1"}})
    assert not matches(answer, {"statusCode": 202, "body": ""})
    assert not matches(None, {"statusCode": 202})
