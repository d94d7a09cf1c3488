"""AWS on this machine: `ministack` in a process of its own, on loopback, gone when its user is gone.

    with embedded_cloud() as cloud:
        cloud.client("sqs").create_queue(QueueName="orders")

What is deployed onto it, and what runs on it, is decided elsewhere.
"""

import contextlib
import importlib.util
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from idempotent_receiver.local.server import Server, ServerError, running

REGION = "us-east-1"
ACCOUNT = "000000000000"
LOOPBACK = "127.0.0.1"

# A proxy that the environment names must not be asked for what is on loopback.
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class NotInstalled(ServerError):
    """The extra `[local]` is missing."""


def interpreter() -> str:
    """The interpreter that runs this, if it has a local cloud. Raises NotInstalled, with the remedy."""
    if importlib.util.find_spec("ministack") is None:
        raise NotInstalled("a local cloud needs the extra [local]: pip install 'idempotent-receiver[cli,local]'")
    return sys.executable


class Ministack:
    """How ministack is started, and how it says that it is ready. `python` is an interpreter that has it."""

    def __init__(self, python: str | None = None) -> None:
        self.python = interpreter() if python is None else python

    def command(self, port: int) -> Sequence[str]:
        """Return the command line; the port is in the environment."""
        return [self.python, "-m", "ministack"]

    def environment(self, port: int) -> Mapping[str, str]:
        """Return what it finds in its environment."""
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
        """Say whether it answers."""
        return is_ministack(f"http://{LOOPBACK}:{port}")


def is_ministack(endpoint_url: str) -> bool:
    """Whether a ministack answers there."""
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
        """Close its clients."""
        for client in self._clients.values():
            client.close()


@contextlib.contextmanager
def embedded_cloud(program: Ministack | None = None, *, port: int | None = None) -> Iterator[Cloud]:
    """Start a local cloud on loopback and end it, with all its processes and files, however the block is left.

    Raises ServerError where it cannot be started.
    """
    with (
        running(program or Ministack(), folder=Path(sys.prefix), port=port) as server,
        contextlib.closing(Cloud(f"http://{LOOPBACK}:{server.port}", "in a process of its own", server)) as cloud,
    ):
        yield cloud
