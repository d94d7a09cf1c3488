"""What a cloud that stays says to type, and what is said of a port that is taken."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver.local import cloud as clouds
from idempotent_receiver.local import container, server
from idempotent_receiver.local.cloud import Ministack, check_free, embedded_cloud
from idempotent_receiver.local.consumers import QueueConsumer
from idempotent_receiver.local.deployment import Stack
from idempotent_receiver.local.samples import Sample
from idempotent_receiver.local.server import ServerError
from idempotent_receiver.local.stay import Stays, commands

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
    invoke, send, doctor, dead_letters = typed(
        QueueUrl="q", ConsumerDescription="{}", ConsumerName="f", RecordsTable="t"
    )
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


def test_dead_letters_of_a_consumer_without_a_table_of_records_are_not_listed() -> None:
    """`receiver dlq` reads records in DynamoDB alone."""
    assert not [line for line in typed(ConsumerName="f", ConsumerDescription="{}") if "dlq" in line]


def test_of_two_consumers_each_is_named() -> None:
    described = {"RefundsConsumerDescription": "{}", "RefundsRecordsTable": "t"}
    told = typed("Consumer", "RefundsConsumer", ConsumerName="f", RefundsConsumerName="g", **described)
    assert [line for line in told if "receiver" in line] == [
        f".venv/bin/receiver doctor --stack local/Consumer {AT}",
        f".venv/bin/receiver doctor --stack local/RefundsConsumer {AT}",
        f".venv/bin/receiver dlq list --stack local/RefundsConsumer {AT}",
    ]


def test_a_message_without_attributes_is_typed_with_none_to_each_ones_queue() -> None:
    urls = ["http://127.0.0.1:4566/000000000000/Orders", "http://127.0.0.1:4566/000000000000/Refunds"]
    consumers = [QueueConsumer(name=url[-7:], function="f", queue_url=url, mapping="m", partial=True) for url in urls]
    stays = Stays(
        SimpleNamespace(endpoint_url="http://127.0.0.1:4566"),  # type: ignore[arg-type]
        Stack("local", {}, {}),
        consumers,
        contained=True,
    )
    sent = [parts for _, parts in commands(stays, Sample("one.json", {"body": "{}"})) if "send-message" in parts[0]]
    assert [parts[3:] for parts in sent] == [[f"--queue-url {url}", "--message-body '{}'"] for url in urls]


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
    """It has to be free at every address."""
    check_free(port, ["127.0.0.2"])
    with pytest.raises(ServerError, match=f"port {port} cannot be used at 127.0.0.1"):
        check_free(port, ["127.0.0.2", "127.0.0.1"])


def test_a_port_that_is_taken_is_told_before_anything_starts(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clouds, "running", lambda *asked, **more: pytest.fail("it starts"))
    with pytest.raises(ServerError, match=f"port {port} cannot be used"), embedded_cloud(Ministack("py"), port=port):
        pass


def test_it_listens_on_loopback_and_where_containers_reach_it_alone() -> None:
    assert Ministack("py").command(1) == ["py", "-m", "ministack"]
    assert Ministack("py").environment(1).get("BIND_HOST") == "127.0.0.1"
    binds = [each for each in Ministack("py", also_at="172.17.0.1").command(1) if each.startswith("--bind")]
    assert binds == ["--bind=127.0.0.1:1", "--bind=172.17.0.1:1"]


class Programs:
    """A server that fails to start so many times."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.ports: list[int] = []

    def __call__(self, program: object, port: int, folder: object) -> Programs:
        self.ports.append(port)
        return self

    def await_ready(self) -> None:
        if len(self.ports) <= self.failures:
            raise ServerError("the port is taken")

    def close(self) -> None:
        """It is gone."""


@pytest.mark.parametrize(("given", "ports"), [(None, [1, 2, 3]), (4566, [4566] * 3)])
def test_another_free_port_is_tried_but_not_in_place_of_one_that_was_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: int | None, ports: list[int]
) -> None:
    free = iter(range(1, 9))
    monkeypatch.setattr(server, "free_port", lambda: next(free))
    programs: Any = Programs(failures=2)
    monkeypatch.setattr(server, "Server", programs)
    started = False
    try:
        with server.running(programs, folder=tmp_path, port=given):
            started = True
    except ServerError:
        pass
    assert (started, programs.ports) == (True, ports)


NETWORK = [{"Subnet": "fd00::/64", "Gateway": "fd00::1"}, {"Subnet": "172.17.0.0/16"}]
"""As a new engine describes it: without a gateway."""


@pytest.mark.parametrize(
    ("networks", "here", "address"),
    [
        (NETWORK, {"172.17.0.1"}, "172.17.0.1"),
        ([{"Subnet": "172.17.0.0/16", "Gateway": "172.17.0.9"}], {"172.17.0.9"}, "172.17.0.9"),
        (NETWORK, set[str](), "127.0.0.1"),
        (None, {"172.17.0.1"}, "127.0.0.1"),
    ],
    ids=["no gateway told", "gateway", "in a virtual machine", "no network"],
)
def test_containers_reach_the_cloud_at_their_networks_gateway_if_that_is_here(
    monkeypatch: pytest.MonkeyPatch, networks: Any, here: set[str], address: str
) -> None:
    """Every address that is not this machine's may be another's."""
    asked: list[str] = []
    monkeypatch.setattr(container.shutil, "which", lambda name: f"/bin/{name}")
    told = SimpleNamespace(stdout=json.dumps(networks))
    monkeypatch.setattr(container.subprocess, "run", lambda command, **options: told)
    monkeypatch.setattr(container, "_is_here", lambda each: asked.append(each) or each in here)
    assert container.engine() == address
    assert [each for each in asked if ":" in each] == []


@pytest.mark.parametrize("error", [subprocess.CalledProcessError(1, "docker"), subprocess.TimeoutExpired("docker", 1)])
def test_an_engine_that_does_not_answer_is_none(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fails(command: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(container.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(container.subprocess, "run", fails)
    assert container.engine() is None
