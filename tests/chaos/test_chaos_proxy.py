"""The proxy hands on what it has read, and logs what was applied, whatever happens to the sender, and parts workers."""

from __future__ import annotations

import json
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from urllib3.exceptions import ProtocolError

from harness.cloud import LOOPBACK
from harness.serving import serving
from harness.workload.evidence import Log, Posted, Write, lines_of
from idempotent_receiver.local.server import ServerError
from tests.chaos.__main__ import chosen
from tests.chaos.network_faults import NetworkFaults
from tests.chaos.proxy import Cut, Partitions, Proxy, Service
from tests.chaos.settings import Cast, Effects

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LEG = {":transfer": {"S": "t"}, ":account": {"S": "a"}, ":amount": {"N": "1"}}
POSTING = {
    "ClientRequestToken": "token",
    "TransactItems": [{"Update": {"TableName": "entries", "ExpressionAttributeValues": LEG}}],
}
SEED = next(seed for seed in range(100) if NetworkFaults(seed).choose("PutItem", {}) is None)
"""One that lets the first request pass."""
PATIENCE_SECONDS = 5.0
CLAIM = {"id": {"S": "key"}, "owner": {"S": "w1.1"}, "in_progress_expiration": {"N": "9000"}}
BODY = json.dumps({"TableName": "records", "Item": CLAIM}).encode()
HEAD = b"POST / HTTP/1.1\r\nX-Amz-Target: D.PutItem\r\nUser-Agent: Boto3 worker/w1\r\nContent-Length: %d\r\n\r\n"


class Cloud:
    """It says when a request has arrived, and answers once it is allowed to, or breaks the connection."""

    def __init__(self, *, breaks: bool = False) -> None:
        self.arrived = threading.Event()
        self.answers = threading.Event()
        self._breaks = breaks

    def respond(self, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes] | None:
        self.arrived.set()
        assert self.answers.wait(PATIENCE_SECONDS)
        assert body == BODY
        return None if self._breaks else (200, b"{}")


def left_alone(folder: Path, cloud: Cloud, request: bytes = HEAD % len(BODY) + BODY) -> Proxy:
    """Send a request, break the connection before there is an answer, and wait until all is quiet."""
    log = Log(folder / "proxy.jsonl")
    with serving(cloud.respond) as upstream:
        proxy = Proxy(upstream, SEED, log)
        with serving(proxy.respond) as port:
            with socket.create_connection((LOOPBACK, port)) as sender:
                sender.sendall(request)
                whole = request.endswith(BODY)
                assert cloud.arrived.wait(PATIENCE_SECONDS if whole else 0.1) == whole
            cloud.answers.set()
            proxy.await_quiet(PATIENCE_SECONDS)
    log.close()
    return proxy


def test_a_request_whose_sender_is_gone_is_handed_on_and_logged(tmp_path: Path) -> None:
    proxy = left_alone(tmp_path, Cloud())
    assert proxy.requests == {"PutItem": 1}
    (line,) = lines_of(tmp_path)
    assert isinstance(line, Write)
    assert (line.worker, line.name, line.move) == ("w1", "key", "claim")


def test_a_posting_that_comes_again_under_its_token_is_one(tmp_path: Path) -> None:
    """DynamoDB answers it again, and does not apply it again. Without a token it does."""
    headers = {"X-Amz-Target": "D.TransactWriteItems", "User-Agent": "worker/w1"}
    log = Log(tmp_path / "proxy.jsonl")
    with serving(lambda *request: (200, b"{}")) as upstream:
        proxy = Proxy(upstream, SEED, log)
        for request in (POSTING, POSTING, *[{"TransactItems": POSTING["TransactItems"]}] * 2):
            proxy._asked(headers, "TransactWriteItems", request, "w1", b"{}")
    log.close()
    found = [line for line in lines_of(tmp_path) if isinstance(line, Posted)]
    assert [(line.worker, line.name) for line in found] == [("w1", "t")] * 3


def test_half_a_request_is_not_handed_on_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    """Its sender was killed while it wrote."""
    left_alone(tmp_path, Cloud(), HEAD % len(BODY) + BODY[:20])
    assert lines_of(tmp_path) == []


def test_a_failure_that_was_not_meant_is_told_in_the_end(tmp_path: Path) -> None:
    """The log is not whole then, and there is nothing to reconcile with."""
    with pytest.raises(ServerError, match="not meant") as raised:
        left_alone(tmp_path, Cloud(breaks=True))
    assert lines_of(tmp_path) == []
    assert isinstance(raised.value.__cause__, ProtocolError)


def test_all_workers_claim_or_none_or_every_other_one() -> None:
    said = {"": ["any", "any"], "transaction": ["transaction", "transaction"], "mixed": ["any", "transaction"]}
    for text, of_workers in said.items():
        effects = chosen({"EFFECTS": text}, "EFFECTS", Effects)
        assert [effects.of_worker(number).value for number in (1, 2)] == of_workers
    assert chosen({}, "CAST", Cast) is Cast.STANDARD


@pytest.mark.parametrize(
    ("name", "among", "choices"),
    [("EFFECTS", Effects, "any, transaction, mixed"), ("CAST", Cast, "standard, fifo, workflow")],
)
def test_another_choice_is_refused_with_those_there_are(name: str, among: type[Any], choices: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is {choices}; it is 'none'"):
        chosen({name: "none"}, name, among)


LASTS_SECONDS = 0.3


class PartedCloud:
    """It knows when a request arrived. With `cut`, a partition begins then."""

    def __init__(self, cut: Cut | None = None) -> None:
        self.partitions = Partitions(self.respond)
        self.arrived: list[float] = []
        self._cut = cut

    def respond(self, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes] | None:
        self.arrived.append(time.monotonic())
        if self._cut is not None:
            self.partitions.part("8", Service.DYNAMODB, self._cut, LASTS_SECONDS)
        return 200, body

    def asked(self, worker: str = "7/8", target: str = "DynamoDB_20120810.PutItem") -> tuple[int, bytes] | None:
        return self.partitions.respond("/", {"User-Agent": f"worker/{worker}", "X-Amz-Target": target}, b"{}")


@pytest.mark.parametrize(
    ("cut", "answer", "arrives_at_once", "answered_at_once"),
    [
        (Cut.REQUESTS_HANG, (200, b"{}"), [False], False),
        (Cut.ANSWERS_HANG, (200, b"{}"), [True], False),
        (Cut.CONNECTIONS_BREAK, None, [], True),
    ],
)
@pytest.mark.parametrize("worker", ["7", "8"])
def test_what_a_parted_worker_sends_and_is_told(
    worker: str, cut: Cut, answer: tuple[int, bytes] | None, arrives_at_once: list[bool], answered_at_once: bool
) -> None:
    """Only the process, or the supervisor whose process it is, is cut off; only from this; and not for ever."""
    cloud = PartedCloud()
    cloud.partitions.part(worker, Service.DYNAMODB, cut, LASTS_SECONDS)
    ends = time.monotonic() + LASTS_SECONDS / 2

    assert cloud.asked("9/10") == cloud.asked(target="AmazonSQS.ReceiveMessage") == (200, b"{}")
    assert time.monotonic() < ends
    assert cloud.asked() == answer
    assert [at < ends for at in cloud.arrived[2:]] == arrives_at_once
    assert (time.monotonic() < ends) == answered_at_once
    assert cloud.partitions.met == {(Service.DYNAMODB, cut): 1}
    cloud.partitions.await_end()
    assert cloud.asked() == (200, b"{}")


def test_an_answer_on_its_way_when_the_partition_begins_does_not_pass() -> None:
    cloud = PartedCloud(Cut.CONNECTIONS_BREAK)
    assert cloud.asked() is None
    assert len(cloud.arrived) == 1
