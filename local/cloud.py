"""AWS on this machine: `ministack` in a process of its own, on loopback, gone when its user is gone.

    with running_cloud() as cloud:
        cloud.client("sqs").create_queue(QueueName="orders")

Or the cloud that LOCALSTACK_HOST names, which is found as it is and left as it was. What is deployed onto it, and
what runs on it, is decided elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from local.server import Server, ServerError, running

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

ROOT = Path(__file__).resolve().parent.parent
MINISTACK = ROOT / ".tools" / "ministack"

REGION = "us-east-1"
ACCOUNT = "000000000000"
LOOPBACK = "127.0.0.1"
NAMED_BY = "LOCALSTACK_HOST"
"""The variable of localstack-client that names a cloud to use instead of one of our own."""
GREETING_SECONDS = 5.0

# A proxy that the environment names must not be asked for what is on loopback.
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Ministack:
    """How ministack is started, and how it says that it is ready."""

    def __init__(self, also_at: str = LOOPBACK) -> None:
        self._addresses = dict.fromkeys([LOOPBACK, also_at])

    def command(self, port: int) -> Sequence[str]:
        """Return the command line; the port is in the environment, too."""
        python = str(MINISTACK / "bin" / "python")
        if len(self._addresses) == 1:
            return [python, "-m", "ministack"]
        # It listens on one address, or on every; its web server takes several.
        binds = [f"--bind={address}:{port}" for address in self._addresses]
        return [python, "-m", "hypercorn", "ministack.app:app", "--workers=0", "--log-level=WARNING", *binds]

    def environment(self, port: int) -> Mapping[str, str]:
        return {
            "GATEWAY_PORT": str(port),
            "BIND_HOST": LOOPBACK,  # its default is every interface
            "IOT_MTLS_ENABLED": "0",
            "SFTP_ENABLED": "0",
            "DOCKER_HOST": "unix:///nonexistent.sock",  # functions run as plain subprocesses, with Docker or without
            "LOG_LEVEL": "WARNING",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def ready(self, port: int) -> bool:
        return _is_ministack(f"http://{LOOPBACK}:{port}")


def _is_ministack(endpoint_url: str) -> bool:
    with contextlib.suppress(OSError), direct.open(f"{endpoint_url}/_ministack/ready", timeout=1) as response:
        return bool(response.status == 200)
    return False


class Cloud:
    """A running local cloud. Its account, region and credentials are made up, and the same at every start."""

    def __init__(self, endpoint_url: str, whose: str, server: Server | None = None) -> None:
        self.endpoint_url = endpoint_url
        self.whose = whose
        self._server = server
        self._clients: dict[str, Any] = {}

    @property
    def alive(self) -> bool:
        """Whether it still runs; it does until the block is left, unless it crashes. Of one that is named, unknown."""
        return self._server is None or self._server.alive

    @property
    def environment(self) -> dict[str, str]:
        """What a program must find in its environment for its AWS clients to come here."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_ACCESS_KEY_ID": ACCOUNT,
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def client(self, service: Any) -> Any:
        """Return the one client of this service, made on first use and closed with the cloud; threads may share it."""
        if service not in self._clients:
            self._clients[service] = boto3.session.Session(
                aws_access_key_id=ACCOUNT, aws_secret_access_key="test", region_name=REGION
            ).client(
                service,
                endpoint_url=self.endpoint_url,
                config=Config(retries={"mode": "standard", "total_max_attempts": 3}, max_pool_connections=32),
            )
        return self._clients[service]

    def log(self) -> str:
        """Return what the server has written so far: above all why a function does not start."""
        return "" if self._server is None else self._server.log()

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


@contextlib.contextmanager
def running_cloud(*, port: int | None = None, also_at: str = LOOPBACK) -> Iterator[Cloud]:
    """The cloud that LOCALSTACK_HOST names, or else one that is started here."""
    if not os.environ.get(NAMED_BY):
        chosen = embedded_cloud(port=port, also_at=also_at)
    elif port is None:
        chosen = named_cloud()
    else:
        raise ServerError(
            f"PORT is for a cloud that is started here, and {NAMED_BY} names another: leave one of them out"
        )
    with chosen as cloud:
        yield cloud


def in_containers() -> bool:
    """Whether the cloud runs functions in containers, as LocalStack does: without our loopback, and our Python."""
    return bool(os.environ.get(NAMED_BY)) and not _is_ministack(_named_endpoint())


@contextlib.contextmanager
def named_cloud() -> Iterator[Cloud]:
    """The cloud that LOCALSTACK_HOST names: nothing of it is started or stopped, and no stack made here stays on it."""
    with contextlib.closing(Cloud(_named_endpoint(), f"{NAMED_BY} names it: the stack is deleted in the end")) as cloud:
        stacks: list[str] = []
        at = urlsplit(cloud.endpoint_url)
        try:
            socket.create_connection((at.hostname or "", at.port or 443), timeout=GREETING_SECONDS).close()
            cloud.client("cloudformation").list_stacks()
        except (OSError, BotoCoreError, ClientError, ResponseParserError) as error:
            (why, *_) = f"{error}".splitlines()
            raise ServerError(
                f"{NAMED_BY}={os.environ[NAMED_BY]}: no cloud answers at {cloud.endpoint_url} ({why}). Start it, or "
                f"unset {NAMED_BY}, and a cloud is started here"
            ) from None
        # Whoever makes a stack, knowing nothing of this.
        cloud.client("cloudformation").meta.events.register(
            "after-call.cloudformation.CreateStack", lambda parsed, **_: stacks.append(parsed.get("StackId"))
        )
        try:
            yield cloud
        finally:
            for stack in filter(None, stacks):
                _delete(cloud, stack)


def _named_endpoint() -> str:
    # Here, for benchmarks run where it is not installed.
    from localstack_client.config import get_service_endpoint  # type: ignore[import-untyped]  # noqa: PLC0415

    try:
        return str(get_service_endpoint("cloudformation"))
    except RuntimeError as error:
        raise ServerError(f"{NAMED_BY} is a host and a port, such as localhost:4566: {error}") from None


def _delete(cloud: Cloud, stack: str) -> None:
    """Delete a stack, with the tables and queues that its template would keep."""
    formation, told = cloud.client("cloudformation"), stack.partition("/")[2].partition("/")[0]
    try:
        made = formation.describe_stack_resources(StackName=stack)["StackResources"]
        formation.delete_stack(StackName=stack)
        formation.get_waiter("stack_delete_complete").wait(StackName=stack, WaiterConfig={"Delay": 1})
        for each in made:
            with contextlib.suppress(ClientError):  # it is gone already, where nothing is kept
                if each["ResourceType"] == "AWS::DynamoDB::Table":
                    cloud.client("dynamodb").delete_table(TableName=each["PhysicalResourceId"])
                elif each["ResourceType"] == "AWS::SQS::Queue":
                    cloud.client("sqs").delete_queue(QueueUrl=each["PhysicalResourceId"])
    except (BotoCoreError, ClientError) as error:
        print(f"stack {told} is left at {cloud.endpoint_url}: {error}", file=sys.stderr)
    else:
        print(f"stack {told} is deleted from {cloud.endpoint_url}", file=sys.stderr)


@contextlib.contextmanager
def embedded_cloud(*, port: int | None = None, also_at: str = LOOPBACK) -> Iterator[Cloud]:
    """Start a local cloud and end it, with all its processes and files, however the block is left.

    It listens on loopback, on this port or on a free one. `also_at` is one address more, for functions in containers,
    which find this machine at their network's gateway.
    """
    if not MINISTACK.exists():
        raise ServerError(f"there is no local cloud at {MINISTACK}: run `make setup`")
    contained = "" if also_at == LOOPBACK else f", and at {also_at} for containers"
    if port is not None:
        _check_free(port, {LOOPBACK, also_at})
    with (
        running(Ministack(also_at), folder=MINISTACK, port=port) as server,
        contextlib.closing(
            Cloud(f"http://{LOOPBACK}:{server.port}", f"in a process of its own{contained}", server)
        ) as cloud,
    ):
        yield cloud


def _check_free(port: int, addresses: Iterable[str]) -> None:
    """Raise `ServerError` if something else has the port, or nobody may: the server's own words would not name it."""
    for address in addresses:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
            try:
                probe.bind((address, port))
            except OSError as error:
                raise ServerError(
                    f"PORT={port} cannot be used at {address}: {error.strerror}. End what listens there, or name "
                    "another port; without PORT, a free one is taken"
                ) from None
