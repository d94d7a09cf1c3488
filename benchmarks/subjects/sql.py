"""Handlers with one UPDATE a message in a relational database: with our store, by hand, and with Powertools."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)
from sqlalchemy import Column, Engine, Integer, MetaData, String, Table, insert, update
from sqlalchemy.orm import Session

from benchmarks.settings import TABLE
from benchmarks.subjects.powertools import RETENTION_SECONDS
from benchmarks.subjects.reporting import reporting
from idempotent_receiver import sqs_consumer
from idempotent_receiver.sql import SQLStore, records_table

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

    from benchmarks.settings import Event, Handler

TABLES = MetaData()
RECORDS = records_table(TABLES)
ACCOUNTS = Table("accounts", TABLES, Column("id", String(64), primary_key=True), Column("balance", Integer))


def create(engine: Engine, accounts: int) -> None:
    """Create the tables, with so many accounts."""
    TABLES.create_all(engine)
    with engine.begin() as at:
        at.execute(insert(ACCOUNTS), [{"id": f"account-{number}", "balance": 0} for number in range(accounts)])


def _post(session: Session, transfer: dict[str, Any]) -> dict[str, str]:
    """The handler's own work."""
    balance = ACCOUNTS.c.balance + transfer["amount"]
    session.execute(update(ACCOUNTS).where(ACCOUNTS.c.id == transfer["account"]).values(balance=balance))
    return {"posted": transfer["transfer_id"]}


def ours(engine: Engine) -> Handler:
    """Our consumer, as in docs/sql.md, with metrics and its default logging."""

    def handle(transfer: dict, session: Session) -> dict[str, str]:  # type: ignore[type-arg]  # the library expects a bare `dict`
        return _post(session, transfer)

    logger, metrics = Logger(service="benchmark"), Metrics(namespace="Benchmark", service="benchmark")
    return sqs_consumer(SQLStore(engine, table=RECORDS), logger=logger, metrics=metrics)(handle)


def by_hand(engine: Engine) -> Handler:
    """A Session a message, whose transaction begins with an INSERT of the message's id."""

    def lambda_handler(event: Event, context: Any) -> dict[str, Any]:
        for record in event["Records"]:
            transfer = json.loads(record["body"])
            with Session(engine) as session, session.begin():
                session.execute(insert(RECORDS).values(id=record["messageId"], status="COMPLETED"))
                _post(session, transfer)
        return {"batchItemFailures": []}

    return reporting(lambda_handler)


def powertools(engine: Engine) -> Handler:
    """AWS Lambda Powertools: its records are in DynamoDB, so they cannot commit together with the transaction."""
    processor = BatchProcessor(event_type=EventType.SQS)
    config = IdempotencyConfig(event_key_jmespath="messageId", expires_after_seconds=RETENTION_SECONDS)
    layer = DynamoDBPersistenceLayer(table_name=TABLE)

    @idempotent_function(data_keyword_argument="record", config=config, persistence_store=layer)  # type: ignore[untyped-decorator]  # it has no types
    def handle(record: SQSRecord) -> dict[str, str]:
        with Session(engine) as session, session.begin():
            return _post(session, record.json_body)

    def lambda_handler(event: Event, context: Any) -> Any:
        config.register_lambda_context(context)
        return process_partial_response(
            event=event, record_handler=lambda record: handle(record=record), processor=processor, context=context
        )

    return reporting(lambda_handler)


SUBJECTS = {
    "ours, psycopg 3": (ours, "psycopg"),
    "by hand, psycopg 3": (by_hand, "psycopg"),
    "powertools, psycopg 3": (powertools, "psycopg"),
    "ours, psycopg2": (ours, "psycopg2"),
    "by hand, psycopg2": (by_hand, "psycopg2"),
}
"""By name: how to build a handler, and SQLAlchemy's name of the driver."""
