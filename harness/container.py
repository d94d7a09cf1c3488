"""What `sam local` needs to run a deployed function in a container, against a local cloud."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import re
import shutil
import socket
import subprocess
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from harness.cloud import ACCOUNT, LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from harness.cloud import Cloud
    from idempotent_receiver.local.deployment import Stack

ENGINE_SECONDS = 10.0
HOST = "host.docker.internal"
"""By what name a container finds this machine. Docker Desktop knows it; elsewhere `add_host` in samconfig.toml does."""


def engine() -> str | None:
    """Where a server here must listen for containers to find it at `HOST`; None if no container engine answers."""
    if shutil.which("docker") is None:
        return None
    command = ["docker", "network", "inspect", "bridge", "--format", "{{json .IPAM.Config}}"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=ENGINE_SECONDS, check=True)
    except subprocess.SubprocessError:
        return None
    # Where we cannot listen there, the engine lives in a virtual machine, out of which that name leads to loopback.
    return next(filter(_is_here, _gateways(json.loads(asked.stdout) or [])), LOOPBACK)


def _gateways(configurations: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Where the network's containers find this machine. A new engine's network has its gateway, and does not say so."""
    for each in configurations:
        subnet = ipaddress.ip_network(each["Subnet"])
        if subnet.version == 4:
            yield each.get("Gateway") or str(next(subnet.hosts()))


def _is_here(address: str) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.bind((address, 0))
        return True
    return False


def environment(cloud: Cloud, stack: Stack, name: str) -> dict[str, str]:
    """Return the variables of a deployed function, as they must be in a container, where this machine has a name.

    The last is the caller that the API takes its requests to be from: under `sam local`, nobody signs any.
    """
    at = urlsplit(cloud.endpoint_url)
    here = rf"^http://(localhost|127\.0\.0\.1):{at.port}(?=/|$)"
    configuration = cloud.client("lambda").get_function_configuration(FunctionName=stack.resources[name])
    variables = {**configuration["Environment"]["Variables"], "AWS_ENDPOINT_URL": cloud.endpoint_url}
    return {
        **{name: re.sub(here, f"http://{HOST}:{at.port}", value) for name, value in variables.items()},
        **({"LOCAL_CALLER": f"arn:aws:iam::{ACCOUNT}:root"} if name == "Api" else {}),
    }
