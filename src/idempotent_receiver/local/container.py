"""How containers on this machine, such as those started by `sam local`, reach a server on it."""

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
"""The host name by which containers reach this machine. Docker Desktop provides it; elsewhere, use `add_host` in
samconfig.toml.
"""


def engine() -> str | None:
    """The address on which a server must listen so that containers can reach it at `HOST`; None if no container engine
    responds.
    """
    if shutil.which("docker") is None:
        return None
    command = ["docker", "network", "inspect", "bridge", "--format", "{{json .IPAM.Config}}"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=ENGINE_SECONDS, check=True)
    except subprocess.SubprocessError:
        return None
    # If we cannot listen at any gateway, the engine runs in a virtual machine, where `HOST` resolves to our loopback
    # address.
    return next(filter(_is_here, _gateways(json.loads(asked.stdout) or [])), LOOPBACK)


def _gateways(configurations: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """The addresses at which the network's containers reach this machine. A new engine's network has a gateway but does
    not list it.
    """
    for each in configurations:
        subnet = ipaddress.ip_network(each["Subnet"])
        if subnet.version == 4:
            yield each.get("Gateway") or str(next(subnet.hosts()))


def _is_here(address: str) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.bind((address, 0))
        return True
    return False
