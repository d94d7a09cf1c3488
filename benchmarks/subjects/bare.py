"""The limit: the requests that ours sends for fresh messages, sent by a bare client with no protocol around them.

Everything is made beforehand, statements and values; what is timed is the sending, by boto3's own client, in threads.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from boto3.session import Session

from idempotent_receiver.clock import SystemClock
from idempotent_receiver.dynamodb.statements import insert, replacement_of, update
from idempotent_receiver.dynamodb.store import client_config
from idempotent_receiver.dynamodb.values import typed
from idempotent_receiver.protocol.record import Change, attributes
from idempotent_receiver.protocol.store import WRITES_A_CALL
from idempotent_receiver.protocol.transitions import Claim, Claimed, complete

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.settings import Event, Handler, Settings

THREADS = 8
"""Connections at once; fewer wait longer, and more are slower, for Python runs them one at a time."""

Statements = list[dict[str, Any]]


def build(settings: Settings) -> Handler:
    """A function that sends an event's requests, which `prepare` has made of it."""
    client: Any = Session().client("dynamodb", config=client_config())
    pool = ThreadPoolExecutor(THREADS)

    def send(chunk: tuple[Statements, Statements]) -> None:
        for statements in chunk:
            responses = client.batch_execute_statement(Statements=statements)["Responses"]
            assert not any("Error" in response for response in responses)

    def lambda_handler(event: Event, context: Any) -> Any:
        list(pool.map(send, event["Prepared"]))
        return {"batchItemFailures": []}

    return lambda_handler


def prepare(event: Event, settings: Settings) -> Event:
    """The event with the requests for it: of every 25 messages the claims, then the settlements."""
    ids = [record["messageId"] for record in event["Records"]]
    chunks = [ids[start : start + WRITES_A_CALL] for start in range(0, len(ids), WRITES_A_CALL)]
    return {**event, "Prepared": [_chunk(chunk, settings.table) for chunk in chunks]}


def _chunk(ids: Sequence[str], table: str) -> tuple[Statements, Statements]:
    clock = SystemClock()
    now_ms = clock.epoch_ms()
    claims: Statements = []
    settlements: Statements = []
    for id in ids:
        claim = Claim(id=id, fingerprint="f" * 64, owner="o" * 36, lease_until_ms=now_ms + 900_000)
        claiming = claim.step(None, (), now_ms, clock.versions(1)[0])
        assert isinstance(claiming, Change)
        held = claim.applied(claiming)
        assert isinstance(held, Claimed)
        settling = complete(held, f'{{"posted":"{id}"}}').change(now_ms, clock.versions(1)[0])
        claims.append(_insert(table, claiming))
        settlements.append(_update(table, settling))
    return claims, settlements


def _insert(table: str, change: Change) -> dict[str, Any]:
    held = attributes(change.new)
    return {"Statement": insert(table, tuple(held)), "Parameters": [typed(value) for value in held.values()]}


def _update(table: str, change: Change) -> dict[str, Any]:
    id, shape, put, standing = replacement_of(change)
    return {
        "Statement": update(table, shape),
        "Parameters": [typed(value) for value in (*put.values(), id, *standing.values())],
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
