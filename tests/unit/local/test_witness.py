"""The witness notes what happens to each message, and lets go wrong what it is told to."""

from __future__ import annotations

import asyncio
import io
import os
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.exceptions import ClientError

from idempotent_receiver.local import witness
from idempotent_receiver.testing import lambda_context, sqs_event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

OFFER_AGAIN = witness.offer_again
"""The witness's own, which the fixture replaces."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    settings = {"folder": str(tmp_path), "queue_url": "q", "partial": True, "faults": witness.KILLS}
    monkeypatch.setattr(witness, "settings", settings)
    monkeypatch.setattr(witness, "offer_again", list)
    witness.first("killed-after")
    monkeypatch.setattr(witness, "deliveries", witness.Deliveries())
    witness.deliveries.take(
        [{"messageId": "m", "receiptHandle": "h"}, {"messageId": "n", "receiptHandle": "i"}], 10_000
    )
    return tmp_path


def failures(*ids: str) -> dict[str, list[dict[str, str]]]:
    return {"batchItemFailures": [{"itemIdentifier": id} for id in ids]}


def test_only_the_first_acknowledgement_of_a_message_is_lost(folder: Path) -> None:
    assert folder
    assert witness._answered(["m"]) == failures("n", "m")
    assert witness._answered(["m"]) == failures("n")
    assert witness._answered(["n"]) == failures("m", "n")


def test_the_first_worker_waits_until_a_second_has_its_message(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own delivery is none of another's."""
    assert folder
    own, other = ({"what": "delivered", "process": os.getpid() + more, "ids": ["m"]} for more in (0, 1))
    looks = iter([[own], [own, {**other, "ids": ["n"]}], [own, other]])
    monkeypatch.setattr(witness, "lines", lambda: next(looks))
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    witness.meet("m", "h", 60)
    assert [*looks] == []


def test_without_partial_responses_the_whole_answer_is_lost(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert folder
    monkeypatch.setitem(witness.settings, "partial", False)
    with pytest.raises(ConnectionError):
        witness._answered(["m", "n"])
    assert witness._answered(["m", "n"]) == failures()


@pytest.mark.parametrize("faults", [witness.NONE, witness.ONE_FAILS])
def test_where_no_worker_is_killed_no_acknowledgement_is_lost(
    folder: Path, monkeypatch: pytest.MonkeyPatch, faults: str
) -> None:
    (folder / "killed-after").unlink()
    monkeypatch.setitem(witness.settings, "faults", faults)
    assert witness._answered(["m"]) == failures("n")


@pytest.mark.parametrize(
    ("answer", "deleted"),
    [
        (failures(), ["m", "n"]),
        (failures("n"), ["m"]),
        (None, ["m", "n"]),
        ({}, ["m", "n"]),
        ({"batchItemFailures": None}, ["m", "n"]),
        (failures("m", "other"), []),
        (failures(""), []),
        ({"batchItemFailures": [{"itemIdentifier": None}]}, []),
        ({"batchItemFailures": [{"id": "m"}]}, []),
        ({"batchItemFailures": ["m"]}, []),
    ],
)
def test_lambda_deletes_what_its_rules_say(answer: object, deleted: list[str]) -> None:
    """An answer that it cannot read fails the whole batch; an empty one acknowledges it."""
    assert witness.acknowledged(answer, ["m", "n"], partial=True) == deleted
    assert witness.acknowledged(answer, ["m", "n"], partial=False) == ["m", "n"]


CONSUMER = """
from idempotent_receiver import MemoryStore, sqs_consumer
ran = []

@sqs_consumer(MemoryStore())
def lambda_handler(order: dict) -> None:
    ran.append(order["id"])
    if order["id"] == "refused":
        raise ValueError("refused")
"""
PLAIN = """
def lambda_handler(event, context):
    if event["Records"][0]["body"] == "refused":
        raise ValueError("refused")
    return {"batchItemFailures": [{"itemIdentifier": "m-2"}]}
"""
KEYED = CONSUMER.replace("(MemoryStore())", "(MemoryStore('orders'), key=body_field('id'))").replace(
    "import MemoryStore", "import MemoryStore, body_field"
)
UNCLAIMED = """
from idempotent_receiver import DynamoDBStore, Transaction, sqs_consumer

@sqs_consumer(DynamoDBStore(table_name="records", client=object()), effects="transaction")
def lambda_handler(order: dict, tx: Transaction) -> None:
    pass
"""
DECORATED = """
import functools
def own(function):
    return functools.wraps(function)(lambda event, context: function(event, context))
lambda_handler = own(own(lambda_handler))
"""
DISPATCHER = """
refunds = sqs_consumer(MemoryStore())(lambda_handler.__wrapped__)
take_order = lambda_handler
def lambda_handler(event, context):
    return (take_order if "Records" in event else print)(event, context)
"""


@pytest.fixture
def handler(folder: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[str]:
    """A function's module, whose handler is behind the witness."""
    name = f"witnessed_{request.node.name.partition('[')[0]}"
    more = DECORATED * ("decorated" in name) + DISPATCHER * ("dispatcher" in name)
    kinds = {"plain": PLAIN, "own_key": KEYED, "unclaimed": UNCLAIMED}
    (folder / f"{name}.py").write_text(next((kinds[each] for each in kinds if each in name), CONSUMER + more))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setitem(witness.settings, "handler", f"{name}.lambda_handler")
    witness.shipped.cache_clear()
    yield name
    witness.shipped.cache_clear()
    sys.modules.pop(name, None)


def handled(*bodies: object) -> list[str]:
    """The messages that are to be delivered again, of a batch `m-1`, `m-2`, ..."""
    records = [
        {**sqs_event(body)["Records"][0], "messageId": f"m-{place}"} for place, body in enumerate(bodies, start=1)
    ]
    answer = witness.lambda_handler({"Records": records}, lambda_context())
    return [each["itemIdentifier"] for each in answer["batchItemFailures"]]


def noted(what: str) -> list[dict[str, Any]]:
    return [each for each in witness.lines() if each["what"] == what]


def test_one_message_of_a_batch_fails_once_in_place_of_its_handler(
    handler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its neighbours do not, and it succeeds when it comes again."""
    monkeypatch.setitem(witness.settings, "faults", witness.ONE_FAILS)
    batch = [{"id": "a"}, {"id": "b"}, {"id": "c"}]
    assert handled(*batch) == ["m-1"]
    ran = sys.modules[handler].ran
    assert ran == ["b", "c"]
    (answered,) = noted("answered")
    assert (answered["ids"], answered["failed"], answered["lost"]) == (["m-2", "m-3"], ["m-1"], [])
    assert [each["key"] for each in noted("spoiled")] == ["m-1"]
    assert handled(*batch) == []
    assert ran == ["b", "c", "a"]


def test_a_decorated_consumer_is_observed_from_inside(handler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though what decorates it has copies of its attributes."""
    assert handler
    monkeypatch.setitem(witness.settings, "faults", witness.NONE)
    assert witness.lambda_handler(witness.PING, None) == {"consumer": True, "named": []}
    assert handled({"id": "a"}, {"id": "refused"}) == ["m-2"]
    assert [each["error"] for each in noted("ended")] == [None, "ValueError: refused"]


def test_a_dispatcher_is_said_to_have_the_consumers_of_its_module(handler: str) -> None:
    assert handler
    assert witness.lambda_handler(witness.PING, None) == {"consumer": False, "named": ["refunds", "take_order"]}


def test_without_faults_it_only_notes(handler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert handler
    monkeypatch.setitem(witness.settings, "faults", witness.NONE)
    assert handled({"id": "a"}, {"id": "refused"}) == ["m-2"]
    assert [(each["key"], each["error"]) for each in noted("ended")] == [("m-1", None), ("m-2", "ValueError: refused")]
    assert noted("delivered")[-1]["handles"].keys() == {"m-1", "m-2"}


def test_a_plain_handler_that_raises_is_noted_as_that(handler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert handler
    monkeypatch.setitem(witness.settings, "faults", witness.NONE)
    assert handled("a", "b") == ["m-2"]
    assert [(each["key"], each["error"]) for each in noted("ended")] == [("m-1", None), ("m-2", "unknown")]
    with pytest.raises(ValueError, match="refused"):
        handled("refused")
    assert [each["ids"] for each in noted("raised")] == [["m-1"]]


def test_what_is_printed_has_a_copy_that_survives_line_by_line(tmp_path: Path) -> None:
    stream = io.StringIO()
    with (tmp_path / "printed.log").open("ab", buffering=0) as file:
        copied = witness.Copied(stream, file)
        print("one", "line", file=copied)  # type: ignore[call-overload]
        copied.writelines(["half a", " line\nand"])
        assert (tmp_path / "printed.log").read_text() == "one line\nhalf a line\n"
    assert stream.getvalue() == "one line\nhalf a line\nand"
    assert not copied.isatty()


def test_a_message_that_was_sent_back_is_known_by_the_key_it_carries(folder: Path) -> None:
    stamp = {"idempotent-receiver": {"stringValue": '{"key": "first", "original_id": "first"}'}}
    witness.deliveries.read_stamps([{"messageId": "n"}, {"messageId": "m", "messageAttributes": stamp}])
    noted = [(each["id"], each["key"]) for each in witness.lines() if each["what"] == "keyed"]
    assert noted == [("m", "first")]
    assert witness.deliveries.ids == {"first": "m"}


def test_an_unclaimed_consumer_and_its_table_are_noted(handler: str) -> None:
    assert handler
    witness.lambda_handler(witness.PING, None)
    assert [(each["table"], each["claims"]) for each in noted("consumer")] == [("records", False)]


def test_a_message_is_noted_with_its_own_key(handler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert handler
    monkeypatch.setitem(witness.settings, "faults", witness.NONE)
    assert handled({"id": "a"}, {"id": "b"}) == []
    assert {(each["id"], each["key"]) for each in noted("keyed")} == {("m-1", "a"), ("m-2", "b")}


@pytest.mark.parametrize("observed", [True, False])
def test_a_batch_is_noted_with_the_end_of_its_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch, observed: bool
) -> None:
    """Its messages are noted whole only if another function's queue is observed."""
    assert folder
    monkeypatch.setitem(witness.settings, "observed", observed)
    monkeypatch.setattr("time.time_ns", lambda: 1_000_000_000)
    witness.deliveries.take([{"messageId": "m", "body": "{}"}], 7_000)
    delivered = noted("delivered")[-1]
    assert (delivered["until_ms"], delivered["messages"]) == (
        8_000,
        [{"messageId": "m", "body": "{}"}] if observed else [],
    )


class Faults:
    """What the witness does to its process, which goes on here."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.met: list[tuple[object, ...]] = []
        self.crashed: list[tuple[object, ...]] = []
        self.offered: list[str] = []
        monkeypatch.setattr(witness, "meet", lambda *asked: self.met.append(asked))
        monkeypatch.setattr(witness, "crash", lambda *asked: self.crashed.append(asked))
        monkeypatch.setattr(witness, "offer_again", self.offered.extend)


def watched(function: Callable[..., Any], key: str = "m") -> Callable[..., Any]:
    """The function as the witness wraps it, run under this key with 4 s left."""
    claim = SimpleNamespace(key=key, id=key, attempt=1, idempotency_key="i", remaining_time_ms=lambda: 4_000)
    return witness.watched(function, lambda: claim)


@pytest.mark.parametrize("key", ["m", "order-1"])
def test_one_run_meets_a_second_worker_and_one_worker_dies(
    folder: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """Whatever the message's key; for at most half of the time left. A worker dies only after a success."""
    assert folder
    faults = Faults(monkeypatch)
    if key != "m":
        witness.deliveries.has_key("m", key)
    answers = iter([ValueError("refused"), None, None])

    def handle() -> None:
        if (error := next(answers)) is not None:
            raise error

    run = watched(handle, key)
    with pytest.raises(ValueError, match="refused"):
        run()
    assert (faults.met, faults.crashed) == ([("m", "h", 2.0)], [])
    run()
    run()
    assert (len(faults.met), faults.crashed) == (1, [("before recording the result",)])


class Charges:
    """A handler that is an object."""

    async def __call__(self, error: Exception | None) -> None:
        await charge(error)


async def charge(error: Exception | None) -> None:
    """A handler that is a coroutine function."""
    await asyncio.sleep(0)
    witness.note("ran")
    if error is not None:
        raise error


@pytest.mark.parametrize("handle", [charge, Charges()], ids=["function", "object"])
def test_a_coroutine_is_noted_when_it_has_ended(
    folder: Path, monkeypatch: pytest.MonkeyPatch, handle: Callable[..., Any]
) -> None:
    assert folder
    monkeypatch.setitem(witness.settings, "faults", witness.NONE)
    asyncio.run(watched(handle)(None))
    with pytest.raises(ValueError, match="refused"):
        asyncio.run(watched(handle)(ValueError("refused")))
    told = [(each["what"], each.get("error")) for each in witness.lines() if each["what"] != "delivered"]
    run = [("started", None), ("ran", None)]
    assert told == [*run, ("ended", None), *run, ("ended", "ValueError: refused")]


def test_a_batch_of_failures_does_not_crash_and_what_is_lost_comes_again_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "killed-after").unlink()
    faults = Faults(monkeypatch)
    witness._answered([])
    assert (faults.crashed, faults.offered) == ([], [])
    witness._answered(["m"])
    assert (faults.crashed, faults.offered) == ([("before responding", ["m"])], ["h"])


def test_every_message_of_a_crash_is_offered_again_though_one_has_been_redelivered(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert folder
    offered: list[str] = []

    def change_message_visibility(*, ReceiptHandle: str, **asked: Any) -> None:  # noqa: N803
        offered.append(ReceiptHandle)
        if ReceiptHandle == "h":
            raise ClientError({"Error": {"Code": "MessageNotInflight"}}, "ChangeMessageVisibility")

    clients = SimpleNamespace(change_message_visibility=change_message_visibility)
    monkeypatch.setattr(boto3, "client", lambda service: clients)
    monkeypatch.setattr(witness, "offer_again", OFFER_AGAIN)
    monkeypatch.setattr(os, "kill", lambda process, number: offered.append("killed"))
    witness.crash("before responding", ["m", "n"])
    assert offered == ["h", "i", "killed"]
