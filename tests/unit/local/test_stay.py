"""What a cloud that stays says to type, and what is said of a port that is taken."""

from __future__ import annotations

import os
import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver.local import cloud as clouds
from idempotent_receiver.local.cloud import check_free
from idempotent_receiver.local.consumers import QueueConsumer
from idempotent_receiver.local.deployment import Stack
from idempotent_receiver.local.samples import Sample
from idempotent_receiver.local.server import ServerError
from idempotent_receiver.local.stay import Stays, commands

if TYPE_CHECKING:
    from collections.abc import Iterator

BODY = '{"customer": "O\'Hara"}'
ATTRIBUTES = {"order": {"stringValue": "1", "dataType": "String"}}
RECORD = {"body": BODY, "messageAttributes": ATTRIBUTES, "attributes": {"MessageGroupId": "g"}}
AT = "--endpoint-url http://127.0.0.1:4566 --region us-east-1"


def typed(*names: str, queue: str = "Queue", **outputs: str) -> list[str]:
    url = f"http://127.0.0.1:4566/000000000000/{queue}"
    consumers = [
        QueueConsumer(name=name, function="f", queue_url=url, mapping="m", partial=True)
        for name in names or ["Consumer"]
    ]
    cloud: Any = SimpleNamespace(endpoint_url="http://127.0.0.1:4566")
    stays = Stays(cloud, Stack("local", outputs, {}), consumers, contained=True)
    return [" ".join(parts) for _, parts in commands(stays, Sample("two orders.json 2", RECORD))]


def test_what_is_typed_names_this_cloud_and_a_sample_event() -> None:
    invoke, send, doctor, dead_letters = typed(QueueUrl="q", ConsumerDescription="{}", ConsumerName="f")
    assert invoke == "sam local invoke Consumer -e events/'two orders.json'"
    attributes = '\'{"order": {"DataType": "String", "StringValue": "1"}}\''
    assert send == (
        f"aws sqs send-message {AT} --queue-url http://127.0.0.1:4566/000000000000/Queue"
        f' --message-body \'{{"customer": "O\'"\'"\'Hara"}}\' --message-attributes {attributes}'
    )
    assert doctor == f".venv/bin/receiver doctor --stack local {AT}"
    assert dead_letters == f".venv/bin/receiver dlq list --stack local {AT}"


def test_a_fifo_message_has_its_group_and_a_stack_without_outputs_is_not_named() -> None:
    invoke, send = typed(queue="Queue.fifo")
    assert invoke.startswith("sam local invoke Consumer")
    assert " --message-group-id g --message-deduplication-id " in send


def test_of_two_consumers_each_is_named() -> None:
    told = typed(
        "Consumer", "RefundsConsumer", ConsumerName="f", RefundsConsumerName="g", RefundsConsumerDescription="{}"
    )
    assert [line for line in told if "receiver" in line] == [
        f".venv/bin/receiver doctor --stack local/Consumer {AT}",
        f".venv/bin/receiver doctor --stack local/RefundsConsumer {AT}",
        f".venv/bin/receiver dlq list --stack local/RefundsConsumer {AT}",
    ]


@pytest.fixture
def port() -> Iterator[int]:
    """A port of loopback on which this process listens."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def test_it_is_said_who_has_the_port(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = f"p{os.getpid()}\ncpython\nf5\n"
    monkeypatch.setattr(clouds.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(clouds.subprocess, "run", lambda asked, **options: SimpleNamespace(stdout=found))
    monkeypatch.setattr(clouds, "is_ministack", lambda url: url.endswith(f":{port}"))
    with pytest.raises(
        ServerError, match=rf"in use \(a local cloud, process {os.getpid()}, python\)\. Stop the program"
    ):
        check_free(port, ["127.0.0.1"])


def test_where_nobody_can_tell_it_is_said_that_the_port_is_taken(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clouds.shutil, "which", lambda name: None)
    monkeypatch.setattr(clouds, "is_ministack", lambda url: False)
    with pytest.raises(
        ServerError, match=r"Address already in use\. Stop the program that uses it, or choose another port"
    ):
        check_free(port, ["127.0.0.1"])


def test_a_free_port_is_none_of_anybodys(port: int) -> None:
    check_free(port, ["127.0.0.2"])
