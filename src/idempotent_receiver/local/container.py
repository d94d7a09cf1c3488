"""How containers of this machine, such as those of `sam local`, find a server that runs on it."""

import contextlib
import ipaddress
import json
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence

ENGINE_SECONDS = 10.0
LOOPBACK = "127.0.0.1"
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
