"""A handler for the worker's tests that starts other processes, as the body says, and has its effect afterwards."""

import atexit
import multiprocessing
import os
import subprocess
import sys
import threading
import time

import worker_handlers as shared

from idempotent_receiver import DynamoDBStore, Transaction, sqs_consumer

threading.Thread(target=time.sleep, args=(1_000,)).start()  # as some libraries do, to export metrics for example


@atexit.register
def _at_exit() -> None:
    shared._note("exit", "process")


def _fork() -> None:
    """And forget that there are two from now on."""
    os.fork()


def _pool() -> None:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(abs, [-1, -2]) == [1, 2]


def _program() -> None:
    with subprocess.Popen(["sleep", "1000"]) as program:
        shared._note("program", str(program.pid))


DEEDS = {
    "waits for a program": _program,
    "ends the process": lambda: os._exit(0),
    "forks": _fork,
    "uses a pool": _pool,
    "closes standard output": sys.stdout.close,
    "reads standard input": lambda: print(repr(sys.stdin.read())),
    "runs a program that reads standard input": lambda: subprocess.run(["cat"], check=True),
    "nothing": lambda: None,
}


@sqs_consumer(DynamoDBStore(shared.table, client=shared.client))
def handle(body: dict, tx: Transaction) -> None:
    """Does what the body says."""
    shared._note("start", body["name"])
    DEEDS[body["does"]]()
    time.sleep(body.get("seconds", 0))
    entry = {"TableName": os.environ["ENTRIES"], "Key": {"id": body["name"]}}
    tx.update(**entry, UpdateExpression="ADD times :one", ExpressionAttributeValues={":one": 1})
    shared._note("end", body["name"])
