"""One key, one effect: duplicates within and between batches, forged keys, and unusable keys."""

from __future__ import annotations

import json

import pytest

from idempotent_receiver import Message, PermanentError, body_field, message_attribute
from idempotent_receiver.transaction.outbox import STAMP
from tests.simulation.scenario import Scenario, instant, under
from tests.simulation.world import DEAD_LETTERS, sqs_record

# The same message twice in a batch.


@pytest.mark.scenario("S47", mutant="two messages with one body are taken for one")
@pytest.mark.parametrize(("error", "failed"), [(None, []), (RuntimeError(), ["0", "1"])])
def test_one_message_twice_in_a_batch_runs_once_and_is_named_once(
    either: Scenario, error: Exception | None, failed: list[str]
) -> None:
    assert either.answer(either.taking(0, error), *map(sqs_record, "010")) == failed
    assert sorted(either.keys_run) == ["0", "1"]


@pytest.mark.scenario("S47", mutant="the longest run is ignored")
def test_one_message_twice_of_which_the_first_was_cut_short_is_reported_once(scenario: Scenario) -> None:
    assert scenario.answer(scenario.taking(3), sqs_record("0"), sqs_record("1"), sqs_record("1"), seconds=6) == ["1"]
    assert scenario.keys_run == ["0"]


@pytest.mark.scenario("S53", why_none="either suffices: copies are dropped, and all of a key wait for its first")
def test_ten_thousand_copies_of_one_message_run_once_with_one_claim(scenario: Scenario) -> None:
    assert scenario.answer(instant, *[sqs_record("1")] * 10_000) == []
    assert scenario.keys_run == ["1"]
    assert scenario.requests() == [("insert", 1), ("replace", 1)]


@pytest.mark.scenario("S53", mutant="every message of a key claims for itself")
@pytest.mark.parametrize("count", [1_000, 10_000])
def test_thousands_of_messages_of_one_key_run_once_with_one_claim(by_key: Scenario, count: int) -> None:
    assert by_key.answer(instant, *[under("a", place) for place in range(count)]) == []
    assert by_key.keys_run == ["a"]
    assert by_key.requests() == [("insert", 1), ("replace", 1)]


# Two messages of one business key.


@pytest.mark.scenario("S20", mutant="every message of a key claims for itself")
@pytest.mark.scenario("S48", mutant="every message of a key claims for itself")
@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("effects", ["any", "transaction"])
def test_two_messages_of_one_key_and_body_run_once_and_both_are_acknowledged(effects: str, concurrency: int) -> None:
    """The second waits for the first, and succeeds only because the record becomes completed."""
    by_key = Scenario(namespace="n", key=body_field("k"), effects=effects)

    assert by_key.answer(by_key.taking(1), under("a", 1), under("a", 2), under("a", 3), concurrency=concurrency) == []
    assert by_key.keys_run == ["a"]
    assert by_key.requests() == ([("insert", 1), ("replace", 1)] if effects == "any" else [("commit", 1)])


def test_a_body_that_is_formatted_differently_is_the_same_body(by_key: Scenario) -> None:
    assert by_key.answer(instant, sqs_record("m1", '{"k":"a","x":1}'), sqs_record("m2", '{ "x": 1.0, "k": "a" }')) == []
    assert by_key.keys_run == ["a"]


def test_a_body_with_a_name_twice_is_not_the_body_that_a_parser_makes_of_it(by_key: Scenario) -> None:
    """It is a failure, not a duplicate: it may ask for something else than what ran."""
    named = {"k": {"stringValue": "a", "dataType": "String"}}
    bodies = {"m1": '{"k":"a","x":9}', "m2": '{"k":"a","x":1,"x":9}'}
    records = [sqs_record(id, body, attributes=named) for id, body in bodies.items()]

    assert by_key.answer(instant, *records, key=message_attribute("k")) == ["m2"]
    assert by_key.keys_run == ["a"]


@pytest.mark.parametrize("error", [RuntimeError("boom"), SystemExit(1)])
def test_the_second_of_a_key_shares_the_failure_of_the_first(by_key: Scenario, error: BaseException) -> None:
    assert by_key.answer(by_key.taking(0, error), under("a", 1), under("a", 2)) == ["m1", "m2"]
    assert by_key.keys_run == ["a"]


def test_the_second_of_a_key_is_not_acknowledged_by_the_dead_letter_of_the_first(by_key: Scenario) -> None:
    assert by_key.answer(
        by_key.taking(0, PermanentError("no")), under("a", 1), under("a", 2), dead_letter_queue=DEAD_LETTERS
    ) == ["m2"]
    assert list(by_key.dead_letters()) == ["m1"]


def test_the_second_of_a_key_that_is_held_elsewhere_waits_for_the_lease_too(by_key: Scenario) -> None:
    by_key.deliver(by_key.taking(5), under("a", 0))

    assert by_key.answer(by_key.taking(0), under("a", 1), under("a", 2), after=1, queue_client=True) == ["m1", "m2"]
    assert min(by_key.sqs.visibilities.values()) >= 31


@pytest.mark.scenario("S66", mutant="another body under the key is mirrored as a success")
def test_two_messages_of_one_key_and_two_bodies_are_not_copies_of_each_other(by_key: Scenario) -> None:
    assert by_key.answer(instant, under("a", 1, amount=1), under("a", 2, amount=2), under("a", 3, amount=1)) == ["m2"]
    assert by_key.keys_run == ["a"]


def test_a_chain_of_bodies_under_one_key_is_settled_one_by_one(by_key: Scenario) -> None:
    assert sorted(by_key.answer(instant, *[under("a", place, amount=place % 3) for place in range(12)])) == sorted(
        f"m{place}" for place in range(12) if place % 3
    )
    assert by_key.keys_run == ["a"]


@pytest.mark.scenario("S49", "S65", mutant="the fingerprint is not compared")
@pytest.mark.parametrize("ends", ["completed", "failed", "crashed", "running"])
def test_another_body_under_a_key_is_a_mismatch_in_any_state_and_is_never_run(by_key: Scenario, ends: str) -> None:
    seconds, error = 20 if ends in ("crashed", "running") else 0, RuntimeError() if ends == "failed" else None
    first = by_key.deliver(by_key.taking(seconds, error), under("a", 1, amount=1))
    if ends == "crashed":
        by_key.world.spawn(lambda: by_key.kill(first), after=1)
    after = {"running": 2, "crashed": 60}.get(ends, 30)
    second = by_key.deliver(by_key.taking(0), under("a", 2, amount=2), after=after)
    seen: list[object] = []
    for moment in (after - 0.1, after + 1):
        by_key.world.spawn(lambda: seen.append(dict(by_key.memory.items["n#a"])), after=moment)

    assert by_key.answers_of(second) == [["m2"]]
    assert [run.worker for run in by_key.runs] == ["w0"]
    assert seen[0] == seen[1]


def test_a_mismatch_is_dead_lettered_with_both_fingerprints(by_key: Scenario) -> None:
    worker = by_key.deliver(
        instant, under("a", 1, secret="one"), under("a", 2, secret="two"), dead_letter_queue=DEAD_LETTERS
    )

    by_key.run()

    stamp = by_key.dead_letters()["m2"]
    assert worker.answers == [[]]
    assert stamp["error_type"] == "FingerprintMismatch"
    assert by_key.memory.items["n#a"]["validation"] in stamp["reason"]
    assert "two" not in json.dumps(stamp)


@pytest.mark.parametrize("one_batch", [False, True])
def test_a_body_that_did_not_validate_may_be_corrected_under_the_same_key(by_key: Scenario, one_batch: bool) -> None:
    def handle(body: dict[str, int | str]) -> None: ...

    wrong, corrected = under("a", 1, amount=[]), under("a", 2, amount=5)
    if one_batch:
        assert by_key.answer(handle, wrong, corrected) == ["m1"]
    else:
        assert [by_key.answer(handle, one) for one in (wrong, corrected)] == [["m1"], []]
    assert [run.attempt for run in by_key.runs] == [1]


@pytest.mark.scenario("S71", mutant="a body is validated before its claim")
def test_a_duplicate_of_a_completed_message_is_acknowledged_although_its_body_no_longer_validates(
    scenario: Scenario,
) -> None:
    scenario.answer(instant, sqs_record("1", '{"amount":"old"}'))

    def newer(body: dict[str, int]) -> None: ...

    assert scenario.answer(newer, sqs_record("1", '{"amount":"old"}', receives=2), dead_letter_queue=DEAD_LETTERS) == []
    assert scenario.sqs.sent == []
    assert scenario.keys_run == ["1"]


# Namespaces, and keys of every kind.


@pytest.mark.scenario("S44", mutant="a namespace is left out of the id")
def test_two_consumers_of_one_table_do_not_silence_each_other() -> None:
    payments, mails = (Scenario(namespace=name, key=body_field("k")) for name in ("payments", "mails"))
    mails.memory.items = payments.memory.items
    for scenario in (payments, mails):
        assert scenario.answer(instant, under("a", 1)) == []
        assert scenario.keys_run == ["a"]

    assert sorted(payments.memory.items) == ["mails#a", "payments#a"]


BAD_KEYS = {
    "missing": "{}",
    "null": '{"k":null}',
    "fraction": '{"k":7.5}',
    "inexact number": '{"k":9007199254740993.0}',
    "true": '{"k":true}',
    "list": '{"k":["a"]}',
    "empty": '{"k":""}',
    "too long": json.dumps({"k": "x" * 3000}),
    "too long in bytes": json.dumps({"k": "é" * 1500}),
    "lone surrogate": r'{"k":"\ud800"}',
    "infinite": '{"k":1e400}',
    "not JSON": "k=a",
    "JSON null": "null",
    "JSON list": "[]",
    "no body": "",
    "deep": "[" * 100_000,
    "deep and closed": "[" * 5_000 + "]" * 5_000,
    "a long number": '{"k":' + "9" * 5000 + "}",
}


@pytest.mark.scenario("S50", mutant="an unusable key runs under its messageId")
@pytest.mark.parametrize("body", BAD_KEYS.values(), ids=BAD_KEYS)
def test_a_message_without_a_usable_key_is_never_run_and_fails_alone(by_key: Scenario, body: str) -> None:
    """With a dead-letter queue, it goes there for that reason; but SQS accepts no empty body, which stays."""
    assert by_key.answer(instant, under("a", 1), sqs_record("bad", body), under("b", 2)) == ["bad"]
    failed = by_key.answer(instant, sqs_record("bad", body), dead_letter_queue=DEAD_LETTERS)

    assert sorted(by_key.keys_run) == ["a", "b"]
    assert sorted(by_key.memory.items) == ["n#a", "n#b"]
    letters = [(letter["error_type"], letter["key"]) for letter in by_key.dead_letters().values()]
    assert (failed, letters) == ((["bad"], []) if body == "" else ([], [("UnusableKey", "bad")]))


@pytest.mark.parametrize("key", ["a", "x" * 2046, "\x00", "😀", " ", "a#b", "\n"])
def test_every_string_that_dynamodb_can_hold_is_a_key(by_key: Scenario, key: str) -> None:
    """Up to 2,048 bytes with the namespace."""
    assert by_key.answer(instant, under(key, 1)) == []


def test_a_key_strategy_that_raises_fails_its_message_alone_and_its_text_goes_nowhere() -> None:
    scenario = Scenario(namespace="n")
    scenario.keys_of = {"2": ("n#2",)}

    def key(message: Message) -> str:
        if message.id == "1":
            raise LookupError("secret")
        return message.id

    assert scenario.answer(instant, sqs_record("1"), sqs_record("2"), key=key, dead_letter_queue=DEAD_LETTERS) == []
    assert scenario.keys_run == ["2"]
    assert scenario.dead_letters()["1"]["reason"] == "the key strategy raised LookupError"


@pytest.mark.parametrize("exits", [SystemExit(0), KeyboardInterrupt()])
def test_an_exit_in_a_key_strategy_fails_its_message_alone_and_not_for_good(exits: BaseException) -> None:
    """A signal may have caused it, so the message is delivered again, and is no dead letter."""
    scenario = Scenario(namespace="n")
    scenario.keys_of = {"1": ("n#1",), "2": ("n#2",)}

    def key(message: Message) -> str:
        if message.id == "1" and message.receive_count == 1:
            raise exits
        return message.id

    worker = scenario.deliver(instant, sqs_record("1"), sqs_record("2"), key=key, dead_letter_queue=DEAD_LETTERS)
    worker.deliver(sqs_record("1", receives=2), after=5)

    assert scenario.answers_of(worker) == [["1"], []]
    assert scenario.keys_run == ["2", "1"]
    assert scenario.dead_letters() == {}


def test_a_key_may_come_from_a_message_attribute(by_key: Scenario) -> None:
    attributes: list[dict] = [{"stringValue": "a", "dataType": "String"}, {"binaryValue": "YQ==", "dataType": "Binary"}]
    text, binary = (
        sqs_record(id, '{"k":"a"}', attributes={"order": one}) for id, one in zip("13", attributes, strict=True)
    )

    assert by_key.answer(instant, text, sqs_record("2"), binary, key=message_attribute("order")) == ["2", "3"]
    assert by_key.keys_run == ["a"]


@pytest.mark.scenario("S42", mutant="a handler is lent the event's own attributes")
def test_mutating_the_body_and_the_message_changes_neither_key_nor_fingerprint(scenario: Scenario) -> None:
    def handle(body: dict, message: Message) -> None:
        body.clear()
        message.attributes["ApproximateReceiveCount"] = "99"
        message.message_attributes.clear()

    event = sqs_record("1", '{"a":1}', attributes={"a": {"stringValue": "v", "dataType": "String"}})
    worker = scenario.deliver(handle, event)
    worker.deliver(sqs_record("1", '{"a":1}', receives=2), after=1)

    assert scenario.answers_of(worker) == [[], []]
    assert scenario.keys_run == ["1"]
    assert event["attributes"]["ApproximateReceiveCount"] == "1"
    assert event["messageAttributes"] == {"a": {"stringValue": "v", "dataType": "String"}}


# Keys that a message carries.


def stamped(id: str, key: str, body: str = "{}", **options: object) -> dict[str, object]:
    stamp = {"stringValue": json.dumps({"key": key, "original_id": key}), "dataType": "String"}
    return sqs_record(id, body, attributes={STAMP: stamp}, **options)  # type: ignore[arg-type]


def test_a_redriven_message_counts_under_its_original_key(scenario: Scenario) -> None:
    scenario.keys_of = {"new": ("old",)}
    worker = scenario.deliver(instant, sqs_record("old"))
    worker.deliver(stamped("new", "old"), after=1)

    assert scenario.answers_of(worker) == [[], []]
    assert scenario.keys_run == ["old"]


@pytest.mark.scenario("S60", mutant="a failure is an answer to a queue")
def test_a_redriven_message_that_had_failed_runs_again_at_once(either: Scenario) -> None:
    """It carries its key, so it is read although SQS delivers it for the first time. A failed record has no lease."""
    either.keys_of = {"new": ("old",)}
    either.worker(either.taking(0, RuntimeError())).deliver(sqs_record("old", receives=5))

    assert either.answer(either.taking(), stamped("new", "old"), after=1) == []
    assert [run.attempt for run in either.runs] == [1, 2]


@pytest.mark.scenario("S59", mutant="an answer names keys")
def test_a_redriven_message_that_fails_again_is_named_by_the_id_that_it_has_now(scenario: Scenario) -> None:
    """If an answer names an id that is not in the event, Lambda counts the whole batch as failed."""
    scenario.keys_of = {"new": ("old",)}

    assert scenario.answer(scenario.taking(0, RuntimeError()), stamped("new", "old"), sqs_record("other")) == [
        "new",
        "other",
    ]


@pytest.mark.scenario("S69", mutant="the fingerprint is not compared")
def test_a_forged_key_is_a_mismatch_and_never_an_acknowledgement(scenario: Scenario) -> None:
    worker = scenario.deliver(instant, sqs_record("victim", '{"amount":1}'))
    worker.deliver(stamped("forged", "victim", '{"amount":1000}'), after=1)

    assert scenario.answers_of(worker) == [[], ["forged"]]
    assert scenario.keys_run == ["victim"]


def test_only_the_message_id_strategy_honours_a_key_that_is_carried(by_key: Scenario) -> None:
    assert by_key.answer(instant, under("a", 1), stamped("m2", "a", '{"k":"b"}')) == []
    assert sorted(by_key.keys_run) == ["a", "b"]


@pytest.mark.parametrize(
    "stamp",
    ["", "{", "[]", "null", '{"key":7,"original_id":"x"}', '{"key":"","original_id":"x"}', '{"key":"a"}', "[" * 10**5],
)
def test_a_stamp_that_cannot_be_read_is_ignored(scenario: Scenario, stamp: str) -> None:
    assert (
        scenario.answer(instant, sqs_record("1", attributes={STAMP: {"stringValue": stamp, "dataType": "String"}}))
        == []
    )
    assert scenario.keys_run == ["1"]
