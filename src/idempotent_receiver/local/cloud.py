"""AWS on this machine: runs `ministack` in its own process, on loopback, for as long as the calling process runs.

    with embedded_cloud() as cloud:
        cloud.client("sqs").create_queue(QueueName="orders")

Other modules decide what to deploy and run there.
"""

import contextlib
import importlib.util
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from idempotent_receiver.local.container import LOOPBACK
from idempotent_receiver.local.server import Server, ServerError, running

REGION = "us-east-1"
ACCOUNT = "000000000000"
PORT = 4566
"""The default port of a long-lived local cloud, which people's commands and a project's own files refer to."""
LSOF_SECONDS = 5.0

# A proxy in the environment must not be used for loopback.
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class NotInstalled(ServerError):
    """The `[local]` extra is missing."""


def interpreter() -> str:
    """The running interpreter, if ministack is installed in it. Otherwise raises NotInstalled, with the remedy."""
    if importlib.util.find_spec("ministack") is None:
        raise NotInstalled("a local cloud needs the [local] extra: pip install 'idempotent-receiver[cli,local]'")
    return sys.executable


class Ministack:
    """How to start ministack and recognise that it is ready. `python` is an interpreter that has it installed.

    Ministack listens on loopback and at `also_at`, where functions in containers reach it.
    """

    def __init__(self, python: str | None = None, *, also_at: str = LOOPBACK) -> None:
        self.python = interpreter() if python is None else python
        self.addresses = list(dict.fromkeys([LOOPBACK, also_at]))

    def command(self, port: int) -> Sequence[str]:
        """Return the command line; the port is in the environment."""
        if len(self.addresses) == 1:
            return [self.python, "-m", "ministack"]
        # Ministack itself listens on one address or on all; its web server accepts several.
        binds = [f"--bind={address}:{port}" for address in self.addresses]
        return [self.python, "-m", "hypercorn", "ministack.app:app", "--workers=0", "--log-level=WARNING", *binds]

    def environment(self, port: int) -> Mapping[str, str]:
        """Return the environment variables."""
        return {
            "GATEWAY_PORT": str(port),
            "BIND_HOST": LOOPBACK,  # by default, it listens on every interface
            "IOT_MTLS_ENABLED": "0",
            "SFTP_ENABLED": "0",
            "DOCKER_HOST": "unix:///nonexistent.sock",  # functions run as plain subprocesses, with or without Docker
            "LOG_LEVEL": "WARNING",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def ready(self, port: int) -> bool:
        """Whether ministack responds."""
        return is_ministack(f"http://{LOOPBACK}:{port}")


def is_ministack(endpoint_url: str) -> bool:
    """Whether ministack responds at this endpoint."""
    with contextlib.suppress(OSError), direct.open(f"{endpoint_url}/_ministack/ready", timeout=1) as response:
        return bool(response.status == 200)
    return False


class Cloud:
    """A running local cloud. Its account, region and credentials are fictitious, and the same at every start."""

    def __init__(self, endpoint_url: str, whose: str, server: Server | None = None) -> None:
        self.endpoint_url = endpoint_url
        self.whose = whose
        self._server = server
        self._clients: dict[str, Any] = {}

    @property
    def alive(self) -> bool:
        """Whether the cloud is still running or was given by its URL. False after a crash, and after the block ends."""
        return self._server is None or self._server.alive

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that point a program's AWS clients to this cloud."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_ACCESS_KEY_ID": ACCOUNT,
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def client(self, service: Any) -> Any:
        """Return the client for this service, created on first use and closed with the cloud; threads may share it."""
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
        """Return the server's output so far, useful mainly to see why a function does not start."""
        return "" if self._server is None else self._server.log()

    def close(self) -> None:
        """Close the cloud's clients."""
        for client in self._clients.values():
            client.close()


@contextlib.contextmanager
def embedded_cloud(program: Ministack | None = None, *, port: int | None = None) -> Iterator[Cloud]:
    """Start a local cloud on `port`, or on a free port. Its processes and files are removed however the block exits.

    Raises ServerError if the cloud cannot start; if the port is in use, the error names the process that uses it.
    """
    program = program or Ministack()
    if port is not None:
        check_free(port, program.addresses)
    contained = "".join(f", and at {each} for containers" for each in program.addresses if each != LOOPBACK)
    with (
        running(program, folder=Path(sys.prefix), port=port) as server,
        contextlib.closing(
            Cloud(f"http://{LOOPBACK}:{server.port}", f"in its own process{contained}", server)
        ) as cloud,
    ):
        yield cloud


def check_free(port: int, addresses: Iterable[str]) -> None:
    """Raise ServerError if the port is in use or not permitted: the server's own message would not name the port."""
    for address in addresses:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
            try:
                probe.bind((address, port))
            except OSError as error:
                raise ServerError(
                    f"port {port} cannot be used at {address}: {error.strerror}{_holder(port)}. Stop the program "
                    "that uses it, or choose another port"
                ) from None


def _holder(port: int) -> str:
    """The process that listens on a port, in parentheses; empty if it cannot be determined."""
    cloud = ["a local cloud"] if is_ministack(f"http://{LOOPBACK}:{port}") else []
    lsof, process = shutil.which("lsof"), list[str]()
    if lsof is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            asked = [lsof, "-nP", f"-iTCP:{port}", "-sTCP:LISTEN", "-Fpc"]
            found = subprocess.run(asked, capture_output=True, text=True, timeout=LSOF_SECONDS, check=False).stdout
            fields = {line[:1]: line[1:] for line in found.splitlines()}
            process = [f"process {fields['p']}, {fields['c']}"] if {"p", "c"} <= {*fields} else []
    told = ", ".join([*cloud, *process])
    return told and f" ({told})"
