"""The limit: the requests that our consumer sends for fresh messages, sent by a bare client without any protocol.

All requests are prepared in advance; records with a write each fill transactions. Only the sending is timed, in threads
and with boto3's own client.
"""

from __future__ import annotations

import json
import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from boto3.session import Session

from benchmarks import settings
from benchmarks.settings import TABLE
from harness.dynamodb.values import wire
from idempotent_receiver.clock import SystemClock
from idempotent_receiver.dynamodb import client_config
from idempotent_receiver.dynamodb.statements import insert, put_item, replacement_of, update, update_item
from idempotent_receiver.protocol.record import Change, attributes
from idempotent_receiver.protocol.store import WRITES_A_CALL
from idempotent_receiver.protocol.transitions import Claim, Claimed, complete

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.settings import Cell, Event, Handler

THREADS = 8
"""The fastest number of connections: fewer wait longer, and more compete for Python's one running thread."""

MESSAGES_A_PACK = 50
"""How many records with one write each fill a transaction."""

Call = tuple[str, dict[str, Any]]
"""A method of the client, and its arguments."""


def build(cell: Cell) -> Handler:
    """A handler that sends the requests that `prepare` has added to an event."""
    client: Any = Session().client("dynamodb", config=client_config())
    pool = ThreadPoolExecutor(THREADS)

    def send(calls: Sequence[Call]) -> None:
        for method, arguments in calls:
            responses = getattr(client, method)(**arguments).get("Responses", ())
            assert not any("Error" in response for response in responses)

    def lambda_handler(event: Event, context: Any) -> Any:
        for phase in event["Prepared"]:
            list(pool.map(send, phase))
        return {"batchItemFailures": []}

    return lambda_handler


def prepare(event: Event, cell: Cell, *, claims: bool = True) -> Event:
    """The event with its requests, phase by phase; within one, threads send as many calls after each other."""
    messages = [_Message(record) for record in event["Records"]]
    claiming = [_statements([one.claim for one in chunk]) for chunk in _chunks(messages, WRITES_A_CALL)]
    if not cell.writes:
        settling = [_statements([one.settlement for one in chunk]) for chunk in _chunks(messages, WRITES_A_CALL)]
        return {**event, "Prepared": [list(zip(claiming, settling, strict=True))]}
    packs = [(_transaction(chunk, claims),) for chunk in _chunks(messages, MESSAGES_A_PACK)]
    return {**event, "Prepared": [[(call,) for call in claiming], packs] if claims else [packs]}


class _Message:
    """One message's requests: a statement that claims, one that settles, and the actions of a transaction."""

    def __init__(self, record: dict[str, Any]) -> None:
        clock = SystemClock()
        now_ms, id = clock.epoch_ms(), record["messageId"]
        claim = Claim(id=id, fingerprint="f" * 64, owner="o" * 36, lease_until_ms=now_ms + 900_000)
        claiming = claim.step(None, (), now_ms, clock.versions(1)[0])
        assert isinstance(claiming, Change)
        held = claim.applied(claiming)
        assert isinstance(held, Claimed)
        settling = complete(held, f'{{"posted":"{id}"}}').change(now_ms, clock.versions(1)[0])
        self.claim = insert(TABLE, attributes(claiming.new))
        self.settlement = update(TABLE, replacement_of(settling))
        self._put = {"Put": put_item(TABLE, attributes(settling.new))}
        self._update = {"Update": update_item(TABLE, replacement_of(settling))}
        self._effect = {"Update": wire(settings.update(json.loads(record["body"])))}

    def actions(self, claims: bool) -> tuple[Any, Any]:
        """The record's completion, which replaces the claim if there is one, and the handler's write."""
        return self._update if claims else self._put, self._effect


def _chunks(messages: Sequence[_Message], most: int) -> Iterator[Sequence[_Message]]:
    return (messages[start : start + most] for start in range(0, len(messages), most))


def _statements(statements: Sequence[Any]) -> Call:
    return "batch_execute_statement", {"Statements": statements}


def _transaction(chunk: Sequence[_Message], claims: bool) -> Call:
    actions = [action for one in chunk for action in one.actions(claims)]
    return "transact_write_items", {"TransactItems": actions, "ClientRequestToken": secrets.token_hex(18)}
