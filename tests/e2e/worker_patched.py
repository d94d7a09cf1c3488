"""Handlers whose module is patched as its variable says, as a user's may be."""

import os

exec(os.environ["PATCHES"])  # what stands here in a user's module

import worker_handlers as shared  # noqa: E402

from idempotent_receiver import DynamoDBStore, sqs_consumer  # noqa: E402


@sqs_consumer(DynamoDBStore(shared.table, client=shared.client))
def handle(body: dict) -> None:
    """Say that it ran."""
    shared._note("start", body["name"])
