"""Handlers that send through their transaction: each message goes out if and only if its handler's outcome is there."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from copy import deepcopy
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from idempotent_receiver import MemoryStore, PermanentError, Transaction, http_endpoint, idempotent, sqs_consumer
from idempotent_receiver.batch import sends
from idempotent_receiver.protocol.record import idempotency_key
from idempotent_receiver.protocol.store import NotApplied, Unknown
from idempotent_receiver.sqs.dead_letter import STAMP
from idempotent_receiver.sqs.sends import send_messages
from idempotent_receiver.testing import Table, sqs_event
from idempotent_receiver.testing.worker import SILENT, failed_ids
from idempotent_receiver.transaction.outbox import Outgoing, from_text
from tests.consumers import controlled
from tests.contexts import Context
from tests.manual_clock import ManualClock
from tests.simulation.world import FIFO, sqs_record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from idempotent_receiver.protocol.record import Change, Record
    from idempotent_receiver.protocol.store import ActionFailed, Commit, Written

SHIPMENTS = "https://sqs.us-east-1.amazonaws.com/123456789012/shipments"
both_modes = pytest.mark.parametrize("effects", ["any", "transaction"])


class Sqs:
    """Confirms what it is sent, but for what `refuses` says."""

    class meta:  # noqa: N801  # boto3's name
        endpoint_url = "https://sqs.us-east-1.amazonaws.com"

        class service_model:  # noqa: N801
            service_name = "sqs"

    def __init__(self, refuses: Callable[[dict[str, Any]], dict[str, Any] | None] = lambda entry: None) -> None:
        self.refuses = refuses
        self.seconds = 0.0
        self.requests: list[list[dict[str, Any]]] = []
        self.sent: list[dict[str, Any]] = []
        self.dead: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803
        time.sleep(self.seconds)
        with self._lock:
            self.requests.append(Entries)
            answer: dict[str, Any] = {"Successful": [], "Failed": []}
            for entry in Entries:
                if (failed := self.refuses(entry)) is None:
                    self.sent.append({"QueueUrl": QueueUrl, **entry})
                    answer["Successful"].append({"Id": entry["Id"]})
                else:
                    answer["Failed"].append({"Id": entry["Id"], **failed})
        return answer

    def send_message(self, **arguments: Any) -> None:
        self.dead.append(arguments)

    def change_message_visibility_batch(self, **arguments: Any) -> None: ...

    @property
    def keys(self) -> list[str]:
        return [json.loads(one["MessageAttributes"][STAMP]["StringValue"])["key"] for one in self.sent]

    @property
    def bodies(self) -> list[str]:
        return [one["MessageBody"] for one in self.sent]


class Orders(MemoryStore):
    """Counts its requests, and loses or refuses some. Like DynamoDB, it sends nothing itself."""

    send_messages: Any = None

    def __init__(self) -> None:
        super().__init__(None, {"orders": Table("order")})
        self.requests = Counter[str]()
        self.seconds = 0.0
        self.lost_marks = 0
        self.refuses_marks = False
        self.read_takes: Callable[[], None] = lambda: None

    def insert(self, records: Sequence[Record]) -> Sequence[Written]:
        self._asked("insert")
        return super().insert(records)

    def commit(self, commits: Sequence[Commit]) -> Sequence[Written | ActionFailed]:
        self._asked("commit")
        return super().commit(commits)

    def read(self, ids: Sequence[str]) -> Sequence[Record | None]:
        self._asked("read")
        self.read_takes()
        return super().read(ids)

    def replace(self, changes: Sequence[Change]) -> Sequence[Written]:
        self._asked("replace")
        marks = any(change.seen is not None and change.seen.status == "SENDING" for change in changes)
        if marks and self.refuses_marks:
            return [NotApplied("refused", retry=False)] * len(changes)
        answers = super().replace(changes)
        if marks and self.lost_marks:
            self.lost_marks -= 1
            return [Unknown("lost")] * len(changes)
        return answers

    def _asked(self, request: str) -> None:
        self.requests[request] += 1
        time.sleep(self.seconds)

    @property
    def orders(self) -> list[str]:
        return [item["order"] for item in self.tables["orders"].items.values()]

    def status(self, id: str = "m0") -> Any:
        return self.items[id]["status"]


def deliver(
    store: Any, sqs: Any, function: Callable[..., Any], *records: dict[str, Any], ms: int = 30_000, **options: Any
) -> list[str]:
    """The ids that must be delivered again."""
    consumer = controlled(store, sqs=sqs, **{"logger": SILENT, "metrics": SILENT, **options})(function)
    return failed_ids(consumer({"Records": list(records)}, Context(seconds=ms / 1000)))


def messages(count: int, **more: Any) -> list[dict[str, Any]]:
    return [sqs_record(f"m{number}", body=json.dumps({"n": number}), **more) for number in range(count)]


def post(body: dict, tx: Transaction) -> None:
    tx.put(TableName="orders", Item={"order": str(body["n"])})
    tx.send(QueueUrl=SHIPMENTS, MessageBody={"order": body["n"]})


def only_sends(body: dict, tx: Transaction) -> None:
    tx.send(QueueUrl=SHIPMENTS, MessageBody={"order": body["n"]})


def key_of(id: str, number: int = 1) -> str:
    return f"{idempotency_key(id)}-{number}"


@pytest.mark.parametrize(("effects", "most"), [("any", 24), ("transaction", 18)])
def test_a_hundred_messages_take_few_requests(effects: str, most: int) -> None:
    """On a busy machine some requests leave before they are full, so one of five batches has to do."""
    requests = []
    while not requests or (min(requests) > most and len(requests) < 5):
        store, sqs = Orders(), Sqs()
        store.seconds = sqs.seconds = 0.005
        assert deliver(store, sqs, post, *messages(100), effects=effects) == []
        requests.append(store.requests.total() + len(sqs.requests))
    assert min(requests) <= most
    assert sorted(sqs.keys) == sorted(key_of(f"m{number}") for number in range(100))
    assert {item["status"] for item in store.items.values()} == {"COMPLETED"}
    assert all(item.keys().isdisjoint({"outbox", "in_progress_expiration"}) for item in store.items.values())
    assert len(store.orders) == 100


@both_modes
def test_a_handler_that_only_sends_needs_no_transaction(effects: str) -> None:
    store, sqs = Orders(), Sqs()
    assert deliver(store, sqs, only_sends, *messages(3), effects=effects) == []
    assert store.requests["commit"] == 0
    assert sorted(sqs.bodies) == ['{"order":0}', '{"order":1}', '{"order":2}']
    assert deliver(store, sqs, only_sends, *messages(3, receives=2), effects=effects) == []
    assert len(sqs.sent) == 3, "a duplicate sends nothing"


def failing(asks: Callable[[dict, Transaction], None]) -> Callable[[dict, Transaction], None]:
    """A handler that asks for something, and then raises, fails for good or cannot commit, by the message's number."""

    def handler(body: dict, tx: Transaction) -> None:
        asks(body, tx)
        if body["n"] == 0:
            raise ValueError
        if body["n"] == 1:
            raise PermanentError("no")
        tx.check(TableName="orders", Key={"order": "another"}, ConditionExpression="attribute_exists(nothing)")

    return handler


@both_modes
def test_a_handler_that_raises_or_cannot_commit_sends_nothing(effects: str) -> None:
    store, sqs = Orders(), Sqs()
    assert deliver(store, sqs, failing(post), *messages(3), effects=effects) == ["m0", "m1", "m2"]
    assert (sqs.requests, store.orders) == ([], [])
    assert {item["status"] for item in store.items.values()} == {"FAILED"}
    assert not any("outbox" in item for item in store.items.values())


@both_modes
def test_a_run_again_sends_what_the_last_run_has_sent(effects: str) -> None:
    store, sqs, runs = Orders(), Sqs(), 0

    def handler(body: dict, tx: Transaction) -> None:
        nonlocal runs
        runs += 1
        tx.get(TableName="orders", Key={"order": "x"}, attributes=["order"])
        tx.send(QueueUrl=SHIPMENTS, MessageBody={"run": runs})
        if runs == 1:
            store.tables["orders"].items["x",] = {"order": "x"}

    assert deliver(store, sqs, handler, *messages(1), effects=effects) == []
    assert sqs.bodies == ['{"run":2}']


def unmarked(effects: str) -> Orders:
    """A store after a worker that has committed, and died before it sent anything: its lease is live."""
    store = Orders()
    assert deliver(
        store,
        Sqs(refuses=lambda entry: {"Code": "AccessDenied", "SenderFault": True}),
        post,
        *messages(1),
        effects=effects,
    ) == ["m0"]
    assert store.status() == "SENDING"
    store.items["m0"]["in_progress_expiration"] = 2_000 * int(time.time())
    return store


@both_modes
def test_while_its_lease_lives_others_wait_and_then_send_it_without_the_handler(effects: str) -> None:
    store, sqs = unmarked(effects), Sqs()
    before = deepcopy(store.items["m0"])

    assert deliver(store, sqs, fails, *messages(1, receives=2), effects=effects) == ["m0"]
    assert sqs.sent == []
    assert store.items["m0"] == before

    store.items["m0"]["in_progress_expiration"] = 0
    assert deliver(store, sqs, fails, *messages(1, receives=2), effects=effects) == []
    assert sqs.keys == [key_of("m0")]
    assert store.status() == "COMPLETED"
    kept = ("validation", "attempts")
    assert [store.items["m0"][name] for name in kept] == [before[name] for name in kept]


def fails(body: dict, tx: Transaction) -> None:
    raise AssertionError


@both_modes
def test_another_payload_under_its_key_sends_nothing(effects: str) -> None:
    store, sqs = unmarked(effects), Sqs()
    store.items["m0"]["in_progress_expiration"] = 0
    other = sqs_record("m0", body='{"n": 7}', receives=2)
    assert deliver(store, sqs, fails, other, effects=effects) == ["m0"]
    assert (sqs.sent, store.status()) == ([], "SENDING")


@both_modes
def test_a_consumer_without_a_client_neither_runs_nor_acknowledges_it(effects: str) -> None:
    store = unmarked(effects)
    store.items["m0"]["in_progress_expiration"] = 0
    before = deepcopy(store.items["m0"])
    assert deliver(store, None, fails, *messages(1, receives=2), effects=effects) == ["m0"]
    assert store.items["m0"] == before, "it has not taken it over"


@both_modes
def test_a_consumer_without_time_to_send_takes_nothing_over(effects: str) -> None:
    store = unmarked(effects)
    store.items["m0"]["in_progress_expiration"] = 0
    before = deepcopy(store.items["m0"])
    clock = ManualClock()
    store.read_takes = lambda: clock.sleep(29.1)
    consumer = controlled(store, sqs=Sqs(), effects=effects, logger=SILENT, metrics=SILENT, clock=clock)(fails)  # type: ignore[arg-type]
    assert failed_ids(consumer({"Records": messages(1, receives=2)}, Context())) == ["m0"]
    assert store.items["m0"] == before


def test_a_consumer_without_a_client_refuses_a_send() -> None:
    store = Orders()
    assert deliver(store, None, post, *messages(1)) == ["m0"]
    assert "pass the consumer a client" in json.loads(store.items["m0"]["error"])["text"]


def test_a_call_refuses_a_send_because_nobody_redelivers_it() -> None:
    @idempotent(MemoryStore("calls"), key=lambda order: order, lease_seconds=30)
    def take(order: str, tx: Transaction) -> None:
        tx.send(QueueUrl=SHIPMENTS, MessageBody=order)

    with pytest.raises(RuntimeError, match="its calls are not redelivered"):
        take("a")


@both_modes
def test_a_refused_message_is_tried_again_and_then_left_to_a_redelivery(effects: str) -> None:
    def deliver_with(refusals: int) -> tuple[list[str], Orders, Counter[str]]:
        tries = Counter[str]()

        def refuses(entry: dict[str, Any]) -> dict[str, Any] | None:
            tries[entry["MessageBody"]] += 1
            passes = entry["MessageBody"] != '{"order":1}' or tries[entry["MessageBody"]] > refusals
            return None if passes else {"Code": "InternalError", "SenderFault": False}

        store = Orders()
        return deliver(store, Sqs(refuses), post, *messages(3), effects=effects), store, tries

    for refusals, failed in ((2, []), (9, ["m1"])):
        left, store, tries = deliver_with(refusals)
        assert left == failed
        assert tries == {'{"order":0}': 1, '{"order":1}': 3, '{"order":2}': 1}
        assert store.status("m1") == ("SENDING" if failed else "COMPLETED")


class Silent(Sqs):
    """Takes what it is sent, and leaves the first requests with order 7 without an answer."""

    def __init__(self, unanswered: int, error: Exception) -> None:
        super().__init__()
        self.unanswered, self.error = unanswered, error

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803
        answer = super().send_message_batch(QueueUrl=QueueUrl, Entries=Entries)
        if self.unanswered and any(entry["MessageBody"] == '{"order":7}' for entry in Entries):
            self.unanswered -= 1
            raise self.error
        return answer


class Throttled(Exception):
    response: ClassVar[Any] = {"Error": {"Code": "RequestThrottled"}}


@pytest.mark.parametrize("error", [TimeoutError(), Throttled()])
@pytest.mark.parametrize(("unanswered", "most"), [(0, 0), (1, 0), (2, 10)])
@both_modes
def test_a_request_without_an_answer_is_repeated_once_and_fails_no_order_but_its_own(
    effects: str, unanswered: int, most: int, error: Exception
) -> None:
    store, sqs = Orders(), Silent(unanswered, error)
    failed = deliver(store, sqs, post, *messages(100), effects=effects)
    assert len(failed) <= most
    assert ("m7" in failed) is (most > 0)
    assert Counter(item["status"] for item in store.items.values())["SENDING"] == len(failed)

    sent = Counter(sqs.keys)
    assert deliver(store, sqs, fails, *messages(100, receives=2), effects=effects) == []
    assert Counter(sqs.keys) - sent == Counter(key_of(id) for id in failed), "the others are not sent again"


@pytest.mark.parametrize("code", ["AccessDenied", "InvalidAddress", "InvalidClientTokenId"])
@both_modes
def test_a_queue_that_refuses_all_is_asked_once_and_makes_no_dead_letter(effects: str, code: str) -> None:
    class Denied(Exception):
        response: ClassVar[Any] = {"Error": {"Code": code}}

    class Gone(Sqs):
        def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803
            self.requests.append(Entries)
            raise Denied("a secret")

    store, sqs = Orders(), Gone()
    failed = deliver(store, sqs, post, *messages(200), effects=effects, dead_letter_queue=f"{SHIPMENTS}-dead")
    assert len(failed) == 200
    assert sqs.dead == []
    assert len(sqs.requests) <= 16
    assert {item["status"] for item in store.items.values()} == {"SENDING"}


@both_modes
def test_only_a_messages_own_fault_makes_a_dead_letter_and_the_others_still_go(effects: str) -> None:
    def handler(body: dict, tx: Transaction) -> None:
        for text in ("bad", "good"):
            tx.send(QueueUrl=SHIPMENTS, MessageBody=text)

    def refuses(entry: dict[str, Any]) -> dict[str, Any] | None:
        return {"Code": "InvalidMessageContents", "SenderFault": True} if entry["MessageBody"] == "bad" else None

    store, sqs = Orders(), Sqs(refuses)
    assert deliver(store, sqs, handler, *messages(1), effects=effects, dead_letter_queue=f"{SHIPMENTS}-dead") == []
    assert sqs.bodies == ["good"]
    assert store.status() == "SENDING"
    (letter,) = sqs.dead
    assert "InvalidMessageContents" in json.loads(letter["MessageAttributes"][STAMP]["StringValue"])["reason"]


@both_modes
def test_a_dead_letter_is_sent_only_once_the_record_says_what_is_left(effects: str) -> None:
    """Otherwise a redrive would send again what SQS has confirmed."""

    def handler(body: dict, tx: Transaction) -> None:
        for text in ("bad", "good"):
            tx.send(QueueUrl=SHIPMENTS, MessageBody=text)

    sqs = Sqs(
        lambda entry: {"Code": "InvalidMessageContents", "SenderFault": True} if entry["MessageBody"] == "bad" else None
    )
    for refuses_marks, failed in ((True, ["m0"]), (False, [])):
        store = Orders()
        store.refuses_marks = refuses_marks
        options: dict[str, Any] = {"effects": effects, "dead_letter_queue": f"{SHIPMENTS}-dead"}
        assert deliver(store, sqs, handler, *messages(1), **options) == failed
        assert len(sqs.dead) == len(failed) ^ 1
    assert [*from_text(store.items["m0"]["outbox"])] == [1], "the good one has a tombstone"
    assert store.items["m0"]["in_progress_expiration"] <= time.time() * 1000


@both_modes
def test_a_mark_whose_answer_was_lost_is_found_and_one_that_was_refused_is_a_failure(effects: str) -> None:
    store, sqs = Orders(), Sqs()
    store.lost_marks = 1
    assert deliver(store, sqs, post, *messages(2), effects=effects) == []
    assert len(sqs.sent) == 2

    store, sqs = Orders(), Sqs()
    store.refuses_marks = True
    assert deliver(store, sqs, post, *messages(2), effects=effects) == ["m0", "m1"]
    store.refuses_marks = False
    for item in store.items.values():
        item["in_progress_expiration"] = 0
    assert deliver(store, sqs, fails, *messages(2, receives=2), effects=effects) == []
    assert sorted(sqs.keys) == sorted([key_of("m0"), key_of("m1")] * 2), "each send of a message has its key"


@both_modes
def test_a_mark_of_another_worker_is_as_good(effects: str) -> None:
    store, sqs = unmarked(effects), Sqs()
    store.items["m0"]["in_progress_expiration"] = 0

    def marks(entry: dict[str, Any]) -> None:
        store.items["m0"] |= {"status": "COMPLETED", "version": "theirs"}
        del store.items["m0"]["outbox"]

    sqs.refuses = marks
    assert deliver(store, sqs, fails, *messages(1, receives=2), effects=effects) == []
    assert store.items["m0"]["version"] == "theirs"


@both_modes
def test_the_next_of_a_fifo_group_starts_after_the_mark(effects: str) -> None:
    store, sqs, seen = Orders(), Sqs(), []

    def handler(body: dict, tx: Transaction) -> None:
        seen.append([store.items[f"m{number}"]["status"] for number in range(body["n"])])
        tx.send(QueueUrl=f"{SHIPMENTS}.fifo", MessageBody=str(body["n"]), MessageGroupId="out")

    records = messages(3, queue=FIFO, group="g")
    assert deliver(store, sqs, handler, *records, effects=effects) == []
    assert seen == [["COMPLETED"] * number for number in range(3)]
    assert sqs.bodies == ["0", "1", "2"]
    assert [one["MessageDeduplicationId"] for one in sqs.sent] == sqs.keys


@both_modes
def test_of_one_outgoing_fifo_group_one_is_under_way_and_none_overtakes(effects: str) -> None:
    failures = [2]

    def refuses(entry: dict[str, Any]) -> dict[str, Any] | None:
        if entry["MessageBody"] == "a1" and failures[0]:
            failures[0] -= 1
            return {"Code": "InternalError", "SenderFault": False}
        return None

    def handler(body: dict, tx: Transaction) -> None:
        for number in range(3):
            for group in "ab":
                text = f"{group}{number}"
                tx.send(QueueUrl=f"{SHIPMENTS}.fifo", MessageBody=text, MessageGroupId=group)

    store, sqs = Orders(), Sqs(refuses)
    assert deliver(store, sqs, handler, *messages(1), effects=effects) == []
    assert [text for text in sqs.bodies if text[0] == "a"] == ["a0", "a1", "a2"]
    assert [text for text in sqs.bodies if text[0] == "b"] == ["b0", "b1", "b2"]
    assert all(len({entry["MessageGroupId"] for entry in request}) == len(request) for request in sqs.requests)


@both_modes
def test_after_a_message_that_is_not_sent_none_of_its_group_from_the_same_record_is(effects: str) -> None:
    def handler(body: dict, tx: Transaction) -> None:
        for number in range(4):
            group = f"{body['n']}"
            tx.send(QueueUrl=f"{SHIPMENTS}.fifo", MessageBody=f"{group}{number}", MessageGroupId=group)

    def refuses(entry: dict[str, Any]) -> dict[str, Any] | None:
        return {"Code": "KmsDisabled", "SenderFault": True} if entry["MessageBody"] == "01" else None

    store, sqs = Orders(), Sqs(refuses)
    assert deliver(store, sqs, handler, *messages(2), effects=effects) == ["m0"]
    assert [text for text in sqs.bodies if text[0] == "0"] == ["00"]
    assert [text for text in sqs.bodies if text[0] == "1"] == ["10", "11", "12", "13"]


@both_modes
def test_later_messages_of_its_key_wait_for_the_mark_and_share_it(effects: str) -> None:
    store, sqs = Orders(), Sqs()
    assert deliver(store, sqs, only_sends, *messages(1), *messages(1), effects=effects) == []
    assert len(sqs.sent) == 1
    assert deliver(Orders(), Sqs(lambda entry: {"Code": "x"}), only_sends, *messages(1), *messages(1)) == ["m0"]


@both_modes
def test_without_time_to_send_it_is_a_failure_that_a_redelivery_sends(effects: str) -> None:
    store, sqs, clock = Orders(), Sqs(), ManualClock()

    def handler(body: dict, tx: Transaction) -> None:
        post(body, tx)
        clock.seconds += 29.6

    consumer = controlled(store, sqs=sqs, effects=effects, logger=SILENT, metrics=SILENT, clock=clock)(handler)
    assert failed_ids(consumer({"Records": messages(1)}, Context())) == ["m0"]
    assert sqs.sent == []
    assert store.status() == "SENDING"


@both_modes
def test_a_store_in_memory_takes_what_is_sent_and_nothing_reaches_the_client(effects: str) -> None:
    store, sqs = MemoryStore(), Sqs()
    assert deliver(store, sqs, only_sends, *messages(2), effects=effects) == []
    assert {(one["QueueUrl"], one["MessageBody"]) for one in store.sent} == {
        (SHIPMENTS, '{"order":0}'),
        (SHIPMENTS, '{"order":1}'),
    }
    assert sqs.sent == []
    assert {item["status"] for item in store.items.values()} == {"COMPLETED"}


def test_what_a_store_in_memory_took_is_an_event_for_the_next_consumer() -> None:
    store = MemoryStore()
    assert deliver(store, None, only_sends, *messages(1)) == []
    (sent,) = store.sent
    again = [sqs_event(sent["MessageBody"], ids=[id], attributes=sent["MessageAttributes"]) for id in ("a", "b")]
    handled: list[dict[str, Any]] = []

    def take(body: dict) -> None:
        handled.append(body)

    next_consumer = sqs_consumer(MemoryStore(), logger=SILENT, metrics=SILENT)(take)
    assert [next_consumer(event, Context()) for event in again] == [{"batchItemFailures": []}] * 2
    assert handled == [{"order": 0}], "the repeated send is a duplicate"


def test_an_http_endpoint_refuses_a_send_because_nobody_redelivers_it() -> None:
    @http_endpoint(MemoryStore("http"), logger=SILENT)
    def handler(event: dict, context: Any, tx: Transaction) -> dict:
        tx.send(QueueUrl=SHIPMENTS, MessageBody="a")
        return {"statusCode": 200}

    request = {"httpMethod": "POST", "path": "/", "headers": {"Idempotency-Key": "k"}, "body": "{}"}
    with pytest.raises(RuntimeError, match="its calls are not redelivered"):
        handler(request, Context())


@both_modes
@pytest.mark.parametrize("text", ["no", "[]", '[{"QueueUrl": 5}]', None])
def test_an_outbox_that_cannot_be_read_fails_its_message_alone(effects: str, text: str | None) -> None:
    store, sqs = unmarked(effects), Sqs()
    store.items["m0"] |= {"in_progress_expiration": 0, "outbox": text}
    if text is None:
        del store.items["m0"]["outbox"]
    before = deepcopy(store.items["m0"])
    assert deliver(store, sqs, post, *messages(3, receives=2), effects=effects) == ["m0"]
    assert sorted(sqs.bodies) == ['{"order":1}', '{"order":2}']
    assert store.items["m0"] == before, "nobody has taken it over"


@both_modes
def test_a_message_for_which_sqs_refuses_a_whole_request_keeps_no_other_back(effects: str) -> None:
    class Invalid(Exception):
        response: ClassVar[Any] = {"Error": {"Code": "InvalidParameterValue"}}

    class Strict(Sqs):
        def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803
            if any(entry["MessageBody"] == '{"order":1}' for entry in Entries):
                raise Invalid
            return super().send_message_batch(QueueUrl=QueueUrl, Entries=Entries)

    store, sqs = Orders(), Strict()
    assert deliver(store, sqs, post, *messages(20), effects=effects, dead_letter_queue=f"{SHIPMENTS}-dead") == ["m1"]
    assert (len(sqs.sent), sqs.dead) == (19, [])


@both_modes
def test_a_message_that_sqs_refuses_by_a_whole_request_of_its_own_keeps_no_later_request_back(effects: str) -> None:
    """Those of a FIFO group leave one by one."""

    class Invalid(Exception):
        response: ClassVar[Any] = {"Error": {"Code": "InvalidParameterValue"}}

    class Strict(Sqs):
        def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803
            if Entries[0]["MessageBody"] == "1":
                raise Invalid
            return super().send_message_batch(QueueUrl=QueueUrl, Entries=Entries)

    def handler(body: dict, tx: Transaction) -> None:
        tx.send(QueueUrl=f"{SHIPMENTS}.fifo", MessageBody=str(body["n"]), MessageGroupId="g")

    sqs = Strict()
    assert deliver(Orders(), sqs, handler, *messages(4), effects=effects) == ["m1"]
    assert sorted(sqs.bodies) == ["0", "2", "3"]


def test_a_long_fifo_group_takes_no_longer_for_each_of_its_messages() -> None:
    """Those behind are not looked at for each that leaves."""
    queue, looked = sends._Queue(), 0

    class Entry:
        def __init__(self, number: int) -> None:
            self.number = number

        @property
        def group(self) -> str:
            nonlocal looked
            looked += 1
            return "g"

    for number in range(1000):
        queue.add(Entry(number))  # type: ignore[arg-type]  # as far as a queue asks
    taken = []
    while queue.waiting:
        (entry,) = queue.take()
        assert queue.take() == []
        taken.append(entry.number)
        queue.busy.clear()
    assert taken == list(range(1000))
    assert looked == 1000


def test_no_more_requests_are_in_progress_than_the_bound() -> None:
    started: list[str] = []
    executor = SimpleNamespace(start=lambda send, answered: started.append(send.args[0]))
    settings: Any = SimpleNamespace(send_messages=lambda queue_url, messages: [], executor=executor)
    out = sends.Sends(settings, SimpleNamespace())  # type: ignore[arg-type]  # nothing ends here
    item: Any = None
    for number in range(sends.MOST_REQUESTS + 1):
        message = Outgoing(f"https://example.com/{number}", {"MessageBody": "1"})
        outbox = sends._Outbox(item, 1, calls=False)
        out._queues.setdefault(message.queue_url, sends._Queue()).add(sends._Entry(outbox, 1, "k", message))
    out.flush(0.0, hurry=True, late=False)
    assert len(started) == sends.MOST_REQUESTS


def test_a_message_that_sqs_answers_nothing_about_is_not_sent() -> None:
    """Neither successful nor failed: the record keeps it, and the next delivery sends it under the same key."""
    client: Any = SimpleNamespace(send_message_batch=lambda **asked: {"Successful": [{"Id": "0"}]})
    answers = send_messages(client, SHIPMENTS, [(f"k-{place}", {"MessageBody": "sold"}) for place in range(2)])
    assert [each.confirmed for each in answers] == [True, False]
    client.send_message_batch = lambda **asked: {}
    assert [each.confirmed for each in send_messages(client, SHIPMENTS, [("k-0", {"MessageBody": "sold"})])] == [False]
