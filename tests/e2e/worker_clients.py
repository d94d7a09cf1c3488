"""A coroutine for the worker's tests with what such modules have: clients and a semaphore, kept for the process."""

import asyncio
import os

import aiohttp
import httpx
import worker_handlers as shared

from idempotent_receiver import DynamoDBStore, Transaction, sqs_consumer

two_at_once = asyncio.Semaphore(2)
client = httpx.AsyncClient(timeout=60)
sessions: list[aiohttp.ClientSession] = []


async def _with_aiohttp(url: str) -> None:
    if not sessions:  # it needs a running loop
        sessions.append(aiohttp.ClientSession())
    async with sessions[0].get(url) as response:
        await response.read()


async def _with_httpx(url: str) -> None:
    (await client.get(url)).raise_for_status()


async def _with_semaphore(url: str) -> None:
    async with two_at_once:
        await asyncio.sleep(float(url.rpartition("/")[2]) / 1000)


@sqs_consumer(DynamoDBStore(shared.table, client=shared.client))
async def handle(body: dict, tx: Transaction) -> None:
    """Waits for as long as the body says, by the client that it names."""
    shared._note("start", body["name"])
    waits = {"aiohttp": _with_aiohttp, "httpx": _with_httpx, "semaphore": _with_semaphore}[body["client"]]
    await waits(f"{os.environ['SERVER']}/{body['milliseconds']}")
    entry = {"TableName": os.environ["ENTRIES"], "Key": {"id": body["name"]}}
    tx.update(**entry, UpdateExpression="ADD times :one", ExpressionAttributeValues={":one": 1})
    shared._note("end", body["name"])
