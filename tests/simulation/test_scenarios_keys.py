"""One key, one effect: duplicates within and between batches, forged keys, and unusable keys."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from idempotent_receiver import Message, PermanentError, body_field, message_attribute
from idempotent_receiver.sqs.dead_letter import STAMP
from tests.simulation.scenario import Scenario
from tests.simulation.world import DEAD_LETTERS, sqs_record


def counting(scenario: Scenario, seconds: float = 0.0, error: BaseException | None = None) -> Callable[..., str]:
    def handle(body: dict) -> str:
        scenario.world.sleep(seconds)
        if error is not None:
            raise error
        return "done"

    return handle


def business(scenario: Scenario, *keys: str) -> Scenario:
    scenario.keys_of = {f"m{place}": tuple(f"n#{key}" for key in keys) for place in range(20)}
    return scenario


def under(key: str, place: int, **body: object) -> dict[str, object]:
    return sqs_record(f"m{place}", json.dumps({"k": key} | body))


# The same message twice in a batch.


@pytest.mark.scenario("S47", mutant="two messages with one body are taken for one")
@pytest.mark.parametrize(("error", "failed"), [(None, []), (RuntimeError(), ["1"])])
def test_one_message_twice_in_a_batch_runs_once_and_is_named_once(error: Exception | None, failed: list[str]) -> None:
    """Both share the outcome."""
    scenario = Scenario()
    worker = scenario.worker(counting(scenario, error=error))
    worker.deliver(sqs_record("1"), sqs_record("2"), sqs_record("1"))

    scenario.run()

    assert worker.answers == [failed if error is None else ["1", "2"]]
    assert sorted(scenario.keys_run) == ["1", "2"]


@pytest.mark.scenario("S47", mutant="the longest run is ignored")
def test_one_message_twice_of_which_the_first_was_cut_short_is_reported_once() -> None:
    """Neither is acknowledged."""
    scenario = Scenario()
    worker = scenario.worker(counting(scenario, seconds=3))
    worker.deliver(sqs_record("0"), sqs_record("1"), sqs_record("1"), seconds=6)

    scenario.run()

    assert worker.answers == [["1"]]
    assert scenario.keys_run == ["0"]


@pytest.mark.scenario("S53", why_none="either suffices: copies are dropped, and all of a key wait for its first")
def test_ten_thousand_copies_of_one_message_run_once_with_one_claim() -> None:
    """And one completion."""
    scenario = Scenario()
    worker = scenario.worker(counting(scenario))
    worker.deliver(*[sqs_record("1")] * 10_000)

    scenario.run()

    assert worker.answers == [[]]
    assert scenario.keys_run == ["1"]
    assert scenario.requests() == [("insert", 1), ("replace", 1)]


@pytest.mark.scenario("S53", mutant="every message of a key claims for itself")
def test_ten_thousand_messages_of_one_key_run_once_with_one_claim() -> None:
    """All others wait for the first, without a request to the table."""
    scenario = Scenario(namespace="n")
    scenario.keys_of = dict.fromkeys((f"m{place}" for place in range(10_000)), ("n#a",))
    worker = scenario.worker(counting(scenario), key=body_field("k"))
    worker.deliver(*[under("a", place) for place in range(10_000)])

    scenario.run()

    assert worker.answers == [[]]
    assert scenario.keys_run == ["a"]
    assert scenario.requests() == [("insert", 1), ("replace", 1)]


# Two messages of one business key.


@pytest.mark.scenario("S20", mutant="every message of a key claims for itself")
@pytest.mark.scenario("S48", mutant="every message of a key claims for itself")
@pytest.mark.parametrize("concurrency", [1, 4])
def test_two_messages_of_one_key_and_body_run_once_and_both_are_acknowledged(concurrency: int) -> None:
    """The second waits for the first, and succeeds only because the record becomes completed."""
    scenario = business(Scenario(namespace="n"), "a")
    worker = scenario.worker(counting(scenario, seconds=1), key=body_field("k"), concurrency=concurrency)
    worker.deliver(under("a", 1), under("a", 2), under("a", 3))

    scenario.run()

    assert worker.answers == [[]]
    assert scenario.keys_run == ["a"]
    assert scenario.requests() == [("insert", 1), ("replace", 1)]


def test_a_body_that_is_formatted_differently_is_the_same_body() -> None:
    """White space and the order of names do not matter to a business key."""
    scenario = business(Scenario(namespace="n"), "a")
    worker = scenario.worker(counting(scenario), key=body_field("k"))
    worker.deliver(sqs_record("m1", '{"k":"a","x":1}'), sqs_record("m2", '{ "x": 1.0, "k": "a" }'))

    scenario.run()

    assert worker.answers == [[]]
    assert scenario.keys_run == ["a"]


def test_a_body_with_a_name_twice_is_not_the_body_that_a_parser_makes_of_it() -> None:
    """It is a failure, not a duplicate: it may ask for something else than what ran."""
    scenario = business(Scenario(namespace="n"), "a")
    worker = scenario.worker(counting(scenario), key=message_attribute("k"))
    named = {"k": {"stringValue": "a", "dataType": "String"}}
    once, twice = sqs_record("m1", '{"k":"a","x":9}'), sqs_record("m2", '{"k":"a","x":1,"x":9}')
    worker.deliver({**once, "messageAttributes": named}, {**twice, "messageAttributes": named})

    scenario.run()

    assert worker.answers == [["m2"]]
    assert scenario.keys_run == ["a"]


@pytest.mark.parametrize("error", [RuntimeError("boom"), SystemExit(1)])
def test_the_second_of_a_key_shares_the_failure_of_the_first(error: BaseException) -> None:
    """Both are delivered again."""
    scenario = business(Scenario(namespace="n"), "a")
    worker = scenario.worker(counting(scenario, error=error), key=body_field("k"))
    worker.deliver(under("a", 1), under("a", 2))

    scenario.run()

    assert worker.answers == [["m1", "m2"]]
    assert scenario.keys_run == ["a"]


def test_the_second_of_a_key_is_not_acknowledged_by_the_dead_letter_of_the_first() -> None:
    """Only one dead letter was confirmed; the second message is delivered again and gets its own."""
    scenario = business(Scenario(namespace="n"), "a")
    worker = scenario.worker(
        counting(scenario, error=PermanentError("no")), key=body_field("k"), dead_letter_queue=DEAD_LETTERS
    )
    worker.deliver(under("a", 1), under("a", 2))

    scenario.run()

    assert worker.answers == [["m2"]]
    assert list(scenario.dead_letters()) == ["m1"]


def test_the_second_of_a_key_that_is_held_elsewhere_waits_for_the_lease_too() -> None:
    """It is a failure like the first."""
    scenario = business(Scenario(namespace="n"), "a")
    other = scenario.worker(counting(scenario, seconds=5), key=body_field("k"))
    other.deliver(under("a", 0))
    worker = scenario.worker(counting(scenario), key=body_field("k"), queue_client=True)
    worker.deliver(under("a", 1), under("a", 2), after=1)

    scenario.run()

    assert worker.answers == [["m1", "m2"]]
    assert min(scenario.sqs.visibilities.values()) >= 31


@pytest.mark.scenario("S66", mutant="another body under the key is mirrored as a success")
def test_two_messages_of_one_key_and_two_bodies_are_not_copies_of_each_other() -> None:
    """One takes effect. The other is a mismatch and does not run, however the first ended."""
    scenario = business(Scenario(namespace="n"), "a")
    worker = scenario.worker(counting(scenario), key=body_field("k"))
    worker.deliver(under("a", 1, amount=1), under("a", 2, amount=2), under("a", 3, amount=1))

    scenario.run()

    assert worker.answers == [["m2"]]
    assert scenario.keys_run == ["a"]


def test_a_chain_of_bodies_under_one_key_is_settled_one_by_one() -> None:
    """Each reads the table for itself, and none is forgotten."""
    scenario = business(Scenario(namespace="n"), "a")
    worker = scenario.worker(counting(scenario), key=body_field("k"))
    worker.deliver(*[under("a", place, amount=place % 3) for place in range(12)])

    scenario.run()

    assert sorted(worker.answers[0]) == sorted(f"m{place}" for place in range(12) if place % 3)
    assert scenario.keys_run == ["a"]


@pytest.mark.scenario("S49", "S65", mutant="the fingerprint is not compared")
@pytest.mark.parametrize("ends", ["completed", "failed", "crashed", "running"])
def test_another_body_under_a_key_is_a_mismatch_in_any_state_and_is_never_run(ends: str) -> None:
    """The record stays as it is."""
    scenario = business(Scenario(namespace="n"), "a")
    first = scenario.worker(
        counting(
            scenario,
            seconds=20 if ends in ("crashed", "running") else 0,
            error=RuntimeError() if ends == "failed" else None,
        ),
        key=body_field("k"),
    )
    first.deliver(under("a", 1, amount=1))
    if ends == "crashed":
        scenario.world.spawn(lambda: scenario.kill(first), after=1)
    second = scenario.worker(counting(scenario), key=body_field("k"))
    after = {"running": 2, "crashed": 60}.get(ends, 30)
    second.deliver(under("a", 2, amount=2), after=after)
    before: list[object] = []
    scenario.world.spawn(lambda: before.append(dict(scenario.memory.items["n#a"])), after=after - 0.1)
    later: list[object] = []
    scenario.world.spawn(lambda: later.append(dict(scenario.memory.items["n#a"])), after=after + 1)

    scenario.run()

    assert second.answers == [["m2"]]
    assert [run.worker for run in scenario.runs] == ["w0"]
    assert before == later


def test_a_mismatch_is_dead_lettered_with_both_fingerprints() -> None:
    """It fails for good. The dead letter says why, and contains no payload."""
    scenario = business(Scenario(namespace="n"), "a")
    worker = scenario.worker(counting(scenario), key=body_field("k"), dead_letter_queue=DEAD_LETTERS)
    worker.deliver(under("a", 1, secret="one"), under("a", 2, secret="two"))

    scenario.run()

    stamp = scenario.dead_letters()["m2"]
    assert worker.answers == [[]]
    assert stamp["error_type"] == "FingerprintMismatch"
    assert scenario.memory.items["n#a"]["validation"] in stamp["reason"]
    assert "two" not in json.dumps(stamp)


def test_a_body_that_did_not_validate_may_be_corrected_under_the_same_key() -> None:
    """Its handler never started, so its key is not bound to a payload."""
    scenario = business(Scenario(namespace="n"), "a")

    def handle(body: dict[str, int | str], message: Message) -> None:
        pass

    worker = scenario.worker(handle, key=body_field("k"))
    worker.deliver(under("a", 1, amount=[]))
    worker.deliver(under("a", 2, amount=5), after=1)

    scenario.run()

    assert worker.answers == [["m1"], []]
    assert [run.attempt for run in scenario.runs] == [1]


def test_a_corrected_body_in_the_same_batch_may_run_too() -> None:
    """It reads the table after the first one has ended, and finds no fingerprint."""
    scenario = business(Scenario(namespace="n"), "a")

    def handle(body: dict[str, int | str]) -> None:
        pass

    worker = scenario.worker(handle, key=body_field("k"))
    worker.deliver(under("a", 1, amount=[]), under("a", 2, amount=5))

    scenario.run()

    assert worker.answers == [["m1"]]
    assert len(scenario.runs) == 1


@pytest.mark.scenario("S71", mutant="a body is validated before its claim")
def test_a_duplicate_of_a_completed_message_is_acknowledged_although_its_body_no_longer_validates() -> None:
    """The model is newer than the completion, which stands."""
    scenario = Scenario()
    scenario.worker(counting(scenario)).deliver(sqs_record("1", '{"amount":"old"}'))
    scenario.run()

    def newer(body: dict[str, int]) -> None:
        pass

    worker = scenario.worker(newer, dead_letter_queue=DEAD_LETTERS)
    worker.deliver(sqs_record("1", '{"amount":"old"}', receives=2))
    scenario.run()

    assert worker.answers == [[]]
    assert scenario.sqs.sent == []
    assert scenario.keys_run == ["1"]


# Namespaces, and keys of every kind.


@pytest.mark.scenario("S44", mutant="a namespace is left out of the id")
def test_two_consumers_of_one_table_do_not_silence_each_other() -> None:
    """Their namespaces keep their keys apart."""
    payments, mails = Scenario(namespace="payments"), Scenario(namespace="mails")
    mails.memory.items = payments.memory.items
    for scenario in (payments, mails):
        scenario.keys_of = {"m1": (f"{scenario.memory.namespace}#a",)}
        worker = scenario.worker(counting(scenario), key=body_field("k"))
        worker.deliver(under("a", 1))
        scenario.run()
        assert worker.answers == [[]]
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
def test_a_message_without_a_usable_key_is_never_run_and_fails_alone(body: str) -> None:
    """Its neighbours go on."""
    scenario = business(Scenario(namespace="n"), "a", "b")
    worker = scenario.worker(counting(scenario), key=body_field("k"))
    worker.deliver(under("a", 1), sqs_record("bad", body), under("b", 2))

    scenario.run()

    assert worker.answers == [["bad"]]
    assert sorted(scenario.keys_run) == ["a", "b"]
    assert sorted(scenario.memory.items) == ["n#a", "n#b"]


@pytest.mark.parametrize("body", BAD_KEYS.values(), ids=BAD_KEYS)
def test_a_message_without_a_usable_key_is_dead_lettered_with_that_reason(body: str) -> None:
    """SQS accepts no empty body, so a message with one stays in its queue."""
    scenario = Scenario(namespace="n")
    worker = scenario.worker(counting(scenario), key=body_field("k"), dead_letter_queue=DEAD_LETTERS)
    worker.deliver(sqs_record("bad", body))

    scenario.run()

    if body == "":
        assert worker.answers == [["bad"]]
    else:
        assert worker.answers == [[]]
        assert scenario.dead_letters()["bad"]["error_type"] == "UnusableKey"
        assert scenario.dead_letters()["bad"]["key"] == "bad"


@pytest.mark.parametrize("key", ["a", "x" * 2046, "\x00", "😀", " ", "a#b", "\n"])
def test_every_string_that_dynamodb_can_hold_is_a_key(key: str) -> None:
    """Up to 2,048 bytes with the namespace."""
    scenario = business(Scenario(namespace="n"), key)
    worker = scenario.worker(counting(scenario), key=body_field("k"))
    worker.deliver(under(key, 1))

    scenario.run()

    assert worker.answers == [[]]


def test_a_key_strategy_that_raises_fails_its_message_alone_and_its_text_goes_nowhere() -> None:
    """The key strategy is the user's code."""
    scenario = Scenario(namespace="n")
    scenario.keys_of = {"2": ("n#2",)}

    def key(message: Message) -> str:
        if message.id == "1":
            raise LookupError("secret")
        return message.id

    worker = scenario.worker(counting(scenario), key=key, dead_letter_queue=DEAD_LETTERS)
    worker.deliver(sqs_record("1"), sqs_record("2"))

    scenario.run()

    assert worker.answers == [[]]
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

    worker = scenario.worker(counting(scenario), key=key, dead_letter_queue=DEAD_LETTERS)
    worker.deliver(sqs_record("1"), sqs_record("2"))
    worker.deliver(sqs_record("1", receives=2), after=5)

    scenario.run()

    assert worker.answers == [["1"], []]
    assert scenario.keys_run == ["2", "1"]
    assert scenario.dead_letters() == {}


def test_a_key_may_come_from_a_message_attribute() -> None:
    """A message without the attribute never runs."""
    scenario = business(Scenario(namespace="n"), "a")
    worker = scenario.worker(counting(scenario), key=message_attribute("order"))
    attribute = {"order": {"stringValue": "a", "dataType": "String"}}
    binary = {"order": {"binaryValue": "YQ==", "dataType": "Binary"}}
    worker.deliver(sqs_record("m1", attributes=attribute), sqs_record("m2"), sqs_record("m3", attributes=binary))

    scenario.run()

    assert worker.answers == [["m2", "m3"]]
    assert scenario.keys_run == ["a"]


@pytest.mark.scenario("S42", mutant="a handler is lent the event's own attributes")
def test_mutating_the_body_and_the_message_changes_neither_key_nor_fingerprint() -> None:
    """Both are computed before the handler runs; a duplicate is recognised."""
    scenario = Scenario()

    def handle(body: dict, message: Message) -> None:
        body.clear()
        message.attributes["ApproximateReceiveCount"] = "99"
        message.message_attributes.clear()

    worker = scenario.worker(handle)
    event = sqs_record("1", '{"a":1}', attributes={"a": {"stringValue": "v", "dataType": "String"}})
    worker.deliver(event)
    worker.deliver(sqs_record("1", '{"a":1}', receives=2), after=1)

    scenario.run()

    assert worker.answers == [[], []]
    assert scenario.keys_run == ["1"]
    assert event["attributes"]["ApproximateReceiveCount"] == "1"
    assert event["messageAttributes"] == {"a": {"stringValue": "v", "dataType": "String"}}


# Keys that a message carries.


def stamped(id: str, key: str, body: str = "{}", **options: object) -> dict[str, object]:
    stamp = {"stringValue": json.dumps({"key": key, "original_id": key}), "dataType": "String"}
    return sqs_record(id, body, attributes={STAMP: stamp}, **options)  # type: ignore[arg-type]


def test_a_redriven_message_counts_under_its_original_key() -> None:
    """It has a new messageId, and is a duplicate of the message that completed under the old one."""
    scenario = Scenario()
    scenario.keys_of = {"new": ("old",)}
    worker = scenario.worker(counting(scenario))
    worker.deliver(sqs_record("old"))
    worker.deliver(stamped("new", "old"), after=1)

    scenario.run()

    assert worker.answers == [[], []]
    assert scenario.keys_run == ["old"]


@pytest.mark.scenario("S60", mutant="a failure is an answer to a queue")
def test_a_redriven_message_that_had_failed_runs_again_at_once() -> None:
    """A failed record has no lease to wait for."""
    scenario = Scenario()
    scenario.keys_of = {"new": ("old",)}
    scenario.worker(counting(scenario, error=RuntimeError())).deliver(sqs_record("old", receives=5))
    worker = scenario.worker(counting(scenario))
    worker.deliver(stamped("new", "old"), after=1)

    scenario.run()

    assert worker.answers == [[]]
    assert [run.attempt for run in scenario.runs] == [1, 2]


@pytest.mark.scenario("S59", mutant="an answer names keys")
def test_a_redriven_message_that_fails_again_is_named_by_the_id_that_it_has_now() -> None:
    """If an answer names an id that is not in the event, Lambda counts the whole batch as failed."""
    scenario = Scenario()
    scenario.keys_of = {"new": ("old",)}
    worker = scenario.worker(counting(scenario, error=RuntimeError()))
    worker.deliver(stamped("new", "old"), sqs_record("other"))

    scenario.run()

    assert worker.answers == [["new", "other"]]


@pytest.mark.scenario("S69", mutant="the fingerprint is not compared")
def test_a_forged_key_is_a_mismatch_and_never_an_acknowledgement() -> None:
    """A producer that forges another message's key sends another body."""
    scenario = Scenario()
    worker = scenario.worker(counting(scenario))
    worker.deliver(sqs_record("victim", '{"amount":1}'))
    worker.deliver(stamped("forged", "victim", '{"amount":1000}'), after=1)

    scenario.run()

    assert worker.answers == [[], ["forged"]]
    assert scenario.keys_run == ["victim"]


def test_only_the_message_id_strategy_honours_a_key_that_is_carried() -> None:
    """The other strategies compute the key anew."""
    scenario = business(Scenario(namespace="n"), "a", "b")
    worker = scenario.worker(counting(scenario), key=body_field("k"))
    worker.deliver(under("a", 1), stamped("m2", "a", '{"k":"b"}'))

    scenario.run()

    assert worker.answers == [[]]
    assert sorted(scenario.keys_run) == ["a", "b"]


@pytest.mark.parametrize(
    "stamp",
    ["", "{", "[]", "null", '{"key":7,"original_id":"x"}', '{"key":"","original_id":"x"}', '{"key":"a"}', "[" * 10**5],
)
def test_a_stamp_that_cannot_be_read_is_ignored(stamp: str) -> None:
    """The messageId is the key, as usual."""
    scenario = Scenario()
    worker = scenario.worker(counting(scenario))
    worker.deliver(sqs_record("1", attributes={STAMP: {"stringValue": stamp, "dataType": "String"}}))

    scenario.run()

    assert worker.answers == [[]]
    assert scenario.keys_run == ["1"]
