"""The function in Lambda's own image, by `sam local invoke`, where a container engine answers."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from local.cloud import ACCOUNT, LOOPBACK, REGION, ROOT
from local.emulator import SAM

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from local.cloud import Cloud
    from local.deploy import Stack

ENGINE_SECONDS = 10.0
HOST = "host.docker.internal"
"""By what name a container finds this machine. Docker Desktop knows it; elsewhere `add_host` in samconfig.toml does."""
SAM_BINARY = SAM / "bin" / "sam"
SAMCONFIG = ROOT / "samconfig.toml"


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


class NoAnswer(Exception):
    """The function was not run in a container, or did not answer; the message says by which command."""


def invoke(name: str, event: Path, variables: Mapping[str, str]) -> Any:
    """Build for this machine's architecture, run the function once, and return its parsed answer. Raises NoAnswer."""
    with tempfile.TemporaryDirectory(prefix="local-invoke-") as folder:
        settings, build = Path(folder) / "env.json", Path(folder) / "build"
        settings.write_text(json.dumps({name: dict(variables)}))
        _build(build)
        printed = _run(
            *(str(SAM_BINARY), "local", "invoke", name, "--template", str(build / "template.yaml")),
            *("--event", str(event.resolve()), "--env-vars", str(settings), "--config-file", str(SAMCONFIG)),
        )
    return answer_of(printed)


def answer_of(printed: str) -> Any:
    """Return what the function answered: SAM's status is 0 even for one that failed, and its answer comes last."""
    try:
        return json.loads(printed.strip().splitlines()[-1])
    except (IndexError, ValueError):
        raise NoAnswer("`sam local invoke` printed no answer") from None


def _build(folder: Path) -> None:
    _run("make", "--silent", "sam-local", f"SAM_BUILD={folder}")


def _run(*command: str) -> str:
    ran = subprocess.run(
        command,
        cwd=ROOT,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "MAKE", "MFLAGS"))},
            "AWS_ACCESS_KEY_ID": ACCOUNT,
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": REGION,
            "SAM_CLI_TELEMETRY": "0",
        },
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if ran.returncode != 0:
        said = " ".join(word for word in (Path(command[0]).name, *command[1:3]) if not word.startswith("-"))
        raise NoAnswer(f"`{said}` ended with status {ran.returncode}")
    return ran.stdout
