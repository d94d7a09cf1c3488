"""Secrets are not written where they can be read: they are planted in every input, and searched for
in every output.
"""

from __future__ import annotations

import io
import json
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import EphemeralMetrics
from botocore.exceptions import ClientError
from pydantic import BaseModel, ConfigDict, field_validator

from idempotent_receiver import (
    MemoryStore,
    Message,
    PermanentError,
    Transaction,
    body_field,
    current_claim,
    idempotent,
    sqs_consumer,
)
from idempotent_receiver.sqs.keys import message_id
from idempotent_receiver.transaction.outbox import STAMP
from tests.contexts import Context
from tests.queues import Queues

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SECRET = "hunter2"
"""In all of them, whatever else they say."""

CONTEXT = Context(seconds=60)


class Card(BaseModel):
    model_config = ConfigDict(extra="forbid")

    order: str
    number: int
    holder: str = ""
    limits: dict[str, int] = {}

    @field_validator("holder")
    @classmethod
    def _known(cls, holder: str) -> str:
        if holder == "":
            return holder
        raise ValueError(f"no account of {holder}")


class Awkward(Exception):
    def __str__(self) -> str:
        raise RuntimeError(f"{SECRET} in the text of a text")


class Unserialisable:
    def __repr__(self) -> str:
        return SECRET


def refusing() -> Queues:
    """A client whose dead letters are refused, in so many words."""
    sqs = Queues()
    error = {"Error": {"Code": "InvalidMessageContents", "Message": SECRET}}
    sqs.broken, sqs.error = {"send_message"}, ClientError(error, "SendMessage")
    return sqs


class Failing(MemoryStore):
    """Its errors show its arguments."""

    def insert(self, records: Sequence[Any]) -> Any:
        raise RuntimeError(f"could not put {SECRET}")


def card(body: Card) -> dict[str, str]:
    return {"paid": body.order}


def nothing(body: dict[str, Any]) -> None:
    """Do it."""


def raising(*errors: Callable[[], BaseException]) -> Callable[[dict[str, Any]], None]:
    """A function that raises the first of them, because of the others."""

    def pay(body: dict[str, Any]) -> None:
        first, *others = (make() for make in errors)
        try:
            for other in others:
                raise other  # noqa: TRY301  # what is raised next is to have a cause
        except BaseException as other:
            raise first from other
        raise first

    return pay


def noted() -> BaseException:
    error = ValueError(SECRET)
    error.add_note(f"and {SECRET}")
    return error


def unserialisable(body: dict[str, Any]) -> Any:
    return {"holder": Unserialisable()}


def unfit_transaction(body: dict[str, Any], tx: Transaction) -> None:
    tx.put(TableName="cards", Item={"id": SECRET, "number": object()})


def unfit_within(body: dict[str, Any], tx: Transaction) -> None:
    tx.put(TableName="cards", Item={"id": "1", "limits": {SECRET: [{SECRET: 0.5}]}})


def unfit_otherwise(body: dict[str, Any], tx: Transaction) -> None:
    tx.delete(TableName="cards", Key={"id": "1"}, otherwise=SECRET)  # type: ignore[arg-type]  # that is the test


def unfit_key(body: dict[str, Any], tx: Transaction) -> None:
    tx.delete(TableName="cards", Key={"id": [SECRET]})


def unfit_expression(body: dict[str, Any], tx: Transaction) -> None:
    tx.check(TableName="cards", Key={"id": "1"}, ConditionExpression=SECRET, ReturnValuesOnConditionCheckFailure=SECRET)


def too_deep(body: dict[str, Any], tx: Transaction) -> None:
    nested: Any = SECRET
    for _ in range(40):
        nested = {SECRET: nested}
    tx.put(TableName="cards", Item={"id": "1", "limits": nested})


def unrun(body: dict[str, Any]) -> Any:
    async def told(secret: str = SECRET) -> str:
        return secret

    return told()


def in_a_thread(function: Callable[[], object]) -> Callable[[dict[str, Any]], None]:
    """A handler that calls it where the claim is not known."""

    def handle(body: dict[str, Any]) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(function).result()

    return handle


@idempotent(MemoryStore("cards"), key=lambda: SECRET)
def call() -> None:
    """Do it."""


def refused_transaction(body: dict[str, Any], tx: Transaction) -> None:
    tx.update(
        TableName="cards",
        Key={"id": SECRET},
        UpdateExpression="SET #n = :n",
        ConditionExpression="attribute_exists(id)",
        ExpressionAttributeNames={"#n": "number"},
        ExpressionAttributeValues={":n": SECRET},
    )


async def asynchronous(body: dict[str, Any]) -> None:
    raise ConnectionError(SECRET)


def unfindable(message: Message) -> str:
    raise LookupError(f"no key in {message.body}")


HANDLERS: dict[str, Callable[..., Any]] = {
    "success": nothing,
    "an error's text": raising(lambda: ValueError(SECRET)),
    "a key error": raising(lambda: KeyError(SECRET)),
    "a cause": raising(lambda: RuntimeError("x"), lambda: ValueError(SECRET)),
    "a permanent error's cause": raising(lambda: PermanentError("refused"), lambda: ValueError(SECRET)),
    "a note": raising(noted),
    "a group": raising(lambda: ExceptionGroup(SECRET, [ValueError(SECRET)])),
    "an exit": raising(lambda: SystemExit(SECRET)),
    "an awkward error": raising(Awkward),
    "a result": unserialisable,
    "a transaction that is unfit": unfit_transaction,
    "a transaction that is unfit within": unfit_within,
    "a transaction of another error": unfit_otherwise,
    "a transaction of another key": unfit_key,
    "a transaction of another expression": unfit_expression,
    "a transaction that is too deep": too_deep,
    "a coroutine that nobody ran": unrun,
    "a claim of nobody's": in_a_thread(current_claim),
    "a call of nobody's": in_a_thread(call),
    "a transaction that is refused": refused_transaction,
    "an async function": asynchronous,
}
BODIES: dict[str, str] = {
    "no json": SECRET,
    "a wrong type": json.dumps({"order": "o-1", "number": SECRET}),
    "a refused value": json.dumps({"order": "o-1", "number": 1, "holder": SECRET}),
    "a name of the sender's": json.dumps({"order": "o-1", "number": 1, "limits": {SECRET: "x"}}),
    "a missing field": json.dumps({"holder": SECRET}),
    "a name that is none of ours": json.dumps({"order": "o-1", "number": 1, SECRET: 1}),
    "a list": json.dumps([SECRET]),
}


class Run:
    """One event with secrets, and everything that was written for it."""

    _numbers = count(1)

    def __init__(
        self, capfd: pytest.CaptureFixture[str], store: MemoryStore | None = None, sqs: Queues | None = None
    ) -> None:
        self.store = MemoryStore(tables={"cards": "id"}) if store is None else store
        self.sqs = Queues() if sqs is None else sqs
        self.dead_letters = self.sqs.create("pay-dead")
        self._log = io.StringIO()
        self._capfd = capfd

    def __call__(self, handler: Callable[..., Any], body: str, *, twice: bool = False, **options: Any) -> None:
        # Loggers of one name share their first stream.
        logger = Logger(service=f"pay-{next(self._numbers)}", level="DEBUG", stream=self._log)
        metrics = EphemeralMetrics(namespace="Pay", service="pay")
        consume = sqs_consumer(
            self.store,
            sqs=self.sqs,  # type: ignore[arg-type]  # it does what is asked of it
            dead_letter_queue=self.dead_letters.url,
            logger=logger,
            metrics=metrics,
            **options,
        )(handler)
        for receives in ("1", "2") if twice else ("1",):
            self.answer = consume({"Records": [record("m-1", body, receives), record("m-2", body, receives)]}, CONTEXT)

    def written(self) -> str:
        """Logs, metrics, records, visibilities, the answer, and dead letters except what the sender wrote."""
        out, err = self._capfd.readouterr()
        stamps = [each["MessageAttributes"].get(STAMP) for each in self.dead_letters.sent]
        others = [
            {k: v for k, v in each.items() if k not in ("MessageBody", "MessageAttributes")}
            for each in self.dead_letters.sent
        ]
        hidden = [asked for name, asked in self.sqs.calls if name == "change_message_visibility_batch"]
        kept = [self._log.getvalue(), out, err, repr(self.store.items), hidden, stamps, others, self.answer]
        return "\n".join(map(str, kept))


def record(id: str, body: str, receives: str) -> Mapping[str, Any]:
    return {
        "messageId": id,
        "receiptHandle": f"receipt-{id}",
        "body": body,
        "attributes": {"ApproximateReceiveCount": receives, "SenderId": SECRET},
        "messageAttributes": {
            "card": {"dataType": "String", "stringValue": SECRET},
            SECRET: {"dataType": "Binary", "binaryValue": "aHVudGVyMg=="},
        },
        "eventSourceARN": "arn:aws:sqs:us-east-1:123456789012:pay",
    }


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    return Run(capfd)


def told(written: str) -> bool:
    return SECRET in written or "aHVudGVyMg==" in written


@pytest.mark.parametrize("name", HANDLERS)
@pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
def test_nothing_of_a_body_or_an_error_is_told(run: Run, name: str, twice: bool) -> None:
    run(HANDLERS[name], json.dumps({"order": "o-1", "number": SECRET}), twice=twice)
    written = run.written()
    assert '"message":"batch"' in written
    assert "BatchDuration" in written
    assert not told(written)


@pytest.mark.parametrize("name", BODIES)
def test_nothing_of_a_body_that_does_not_validate_is_told(run: Run, name: str) -> None:
    run(card, BODIES[name])
    written = run.written()
    assert "the body is not a Card" in written
    assert len(run.dead_letters.sent) == 2
    assert not told(written)


def test_of_a_body_only_the_key_is_told_and_none_of_its_neighbours(capfd: pytest.CaptureFixture[str]) -> None:
    run = Run(capfd, MemoryStore(namespace="pay"))
    run(raising(lambda: ValueError(SECRET)), json.dumps({"order": "o-1", "card": SECRET}), key=body_field("order"))
    written = run.written()
    assert "pay#o-1" in written
    assert not told(written)


@pytest.mark.parametrize("body", [SECRET, json.dumps({"order": [SECRET]}), json.dumps({"card": SECRET})])
@pytest.mark.parametrize("key", [body_field("order"), unfindable])
def test_nothing_is_told_where_no_key_is_found(
    capfd: pytest.CaptureFixture[str], key: Callable[[Message], str], body: str
) -> None:
    run = Run(capfd, MemoryStore(namespace="pay"))
    run(raising(lambda: ValueError(SECRET)), body, key=key)
    written = run.written()
    assert "UnusableKey" in written
    assert not told(written)


def test_nothing_is_told_where_one_key_has_two_payloads(capfd: pytest.CaptureFixture[str]) -> None:
    run = Run(capfd, MemoryStore(namespace="pay"))
    for card_number in ("1", SECRET):
        run(HANDLERS["success"], json.dumps({"order": "o-1", "card": card_number}), key=body_field("order"))
    written = run.written()
    assert "FingerprintMismatch" in written
    assert not told(written)


@pytest.mark.parametrize(("store", "sqs"), [(Failing(), None), (None, refusing())], ids=["store", "sqs"])
def test_nothing_is_told_of_what_aws_said(
    capfd: pytest.CaptureFixture[str], store: MemoryStore | None, sqs: Queues | None
) -> None:
    run = Run(capfd, store, sqs)
    run(raising(lambda: PermanentError("refused")), SECRET if store else json.dumps({"card": SECRET}))
    assert len(run.answer["batchItemFailures"]) == 2
    assert not told(run.written())


def test_a_dead_letter_keeps_what_its_sender_wrote(run: Run) -> None:
    """The dead letter is the message, and a redrive must restore it."""
    run(card, SECRET)
    for sent in run.dead_letters.sent:
        assert sent["MessageBody"] == SECRET
        assert sent["MessageAttributes"]["card"]["StringValue"] == SECRET


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("a transaction that is unfit", "Item.number is an object: plain values are str"),
        ("a transaction that is unfit within", "Item.limits.*[0].* is a float: write Decimal(str"),
        ("a transaction of another error", "; it is a str"),
        ("a transaction of another key", "Key.id takes a non-empty plain str, number or bytes"),
        ("a transaction of another expression", "ReturnValuesOnConditionCheckFailure takes ALL_OLD or NONE"),
        ("a transaction that is too deep", "nests more than 32 levels"),
        ("a coroutine that nobody ran", "the handler returned a coroutine, which never ran: await it"),
        ("a claim of nobody's", "current_claim() works only inside a wrapped handler"),
        ("a call of nobody's", "call has no time limit"),
    ],
)
def test_a_wrong_use_of_the_library_says_what_to_write(run: Run, name: str, says: str) -> None:
    """In the log and in the record: names of arguments, attributes and types, and no value."""
    run(HANDLERS[name], json.dumps({"order": "o-1"}))
    written = run.written()
    assert written.count(says) == 4


def test_what_an_author_chose_to_show_is_shown(run: Run) -> None:
    """Otherwise a log that says nothing would pass all tests above."""
    run(raising(lambda: PermanentError(SECRET)), "{}", key=message_id)
    assert told(run.written())
    run(raising(lambda: ValueError(SECRET)), "{}", error_texts=True, key=message_id)
    assert told(run.written())
