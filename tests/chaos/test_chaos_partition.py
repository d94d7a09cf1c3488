"""A partition parts the worker that it names from the service that it names, and nobody else from anything."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.chaos.partition import Cut, Partitions, Service

if TYPE_CHECKING:
    from collections.abc import Mapping

LASTS_SECONDS = 0.3


class Cloud:
    """It knows when a request arrived."""

    def __init__(self) -> None:
        self.arrived: list[float] = []

    def respond(self, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes] | None:
        self.arrived.append(time.monotonic())
        return 200, body


def headers_of(worker: str, target: str) -> dict[str, str]:
    return {"User-Agent": f"Boto3/1.43 worker/{worker}", "X-Amz-Target": target}


PARTED = headers_of("7/8", "DynamoDB_20120810.PutItem")


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
    worker: str,
    cut: Cut,
    answer: tuple[int, bytes] | None,
    arrives_at_once: list[bool],
    answered_at_once: bool,
) -> None:
    """Parted is the process, or the supervisor whose process it is."""
    cloud = Cloud()
    partitions = Partitions(cloud.respond)
    partitions.part(worker, Service.DYNAMODB, cut, LASTS_SECONDS)
    ends = time.monotonic() + LASTS_SECONDS / 2

    assert partitions.respond("/", PARTED, b"{}") == answer
    assert [at < ends for at in cloud.arrived] == arrives_at_once
    assert (time.monotonic() < ends) == answered_at_once
    assert partitions.met == {(Service.DYNAMODB, cut): 1}


@pytest.mark.parametrize(
    "headers", [headers_of("7/9", "DynamoDB_20120810.PutItem"), headers_of("7/8", "AmazonSQS.ReceiveMessage")]
)
def test_others_and_the_other_service_notice_nothing(headers: dict[str, str]) -> None:
    partitions = Partitions(Cloud().respond)
    partitions.part("8", Service.DYNAMODB, Cut.CONNECTIONS_BREAK, 60)

    assert partitions.respond("/", headers, b"{}") == (200, b"{}")


def test_an_answer_on_its_way_when_the_partition_begins_does_not_pass() -> None:
    cloud = Cloud()

    def parts_meanwhile(path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes] | None:
        partitions.part("8", Service.DYNAMODB, Cut.CONNECTIONS_BREAK, 60)
        return cloud.respond(path, headers, body)

    partitions = Partitions(parts_meanwhile)

    assert partitions.respond("/", PARTED, b"{}") is None
    assert len(cloud.arrived) == 1


def test_a_partition_ends() -> None:
    partitions = Partitions(Cloud().respond)
    partitions.part("8", Service.DYNAMODB, Cut.CONNECTIONS_BREAK, 0.0)

    assert partitions.respond("/", PARTED, b"{}") == (200, b"{}")
