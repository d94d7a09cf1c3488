"""The limit: the requests that our consumer sends for fresh messages, sent by a bare client without any protocol.

All statements are prepared in advance. Only the sending is timed, in threads and with boto3's own client.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from boto3.session import Session

from benchmarks.settings import TABLE
from idempotent_receiver.clock import SystemClock
from idempotent_receiver.dynamodb import client_config
from idempotent_receiver.dynamodb.statements import insert, replacement_of, update
from idempotent_receiver.protocol.record import Change, attributes
from idempotent_receiver.protocol.store import WRITES_A_CALL
from idempotent_receiver.protocol.transitions import Claim, Claimed, complete

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.settings import Cell, Event, Handler

THREADS = 8
"""The fastest number of connections: fewer wait longer, and more compete for Python's one running thread."""

Statements = list[Any]


def build(cell: Cell) -> Handler:
    """A handler that sends the requests that `prepare` has added to an event."""
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


def prepare(event: Event) -> Event:
    """The event with its requests: for every 25 messages the claims, then the settlements."""
    ids = [record["messageId"] for record in event["Records"]]
    chunks = [ids[start : start + WRITES_A_CALL] for start in range(0, len(ids), WRITES_A_CALL)]
    return {**event, "Prepared": [_chunk(chunk) for chunk in chunks]}


def _chunk(ids: Sequence[str]) -> tuple[Statements, Statements]:
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
        claims.append(insert(TABLE, attributes(claiming.new)))
        settlements.append(update(TABLE, replacement_of(settling)))
    return claims, settlements
