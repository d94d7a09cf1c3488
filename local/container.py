"""The function in Lambda's own image, by `sam local invoke`, where a container engine answers."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from local.cloud import ACCOUNT, LOOPBACK, REGION, ROOT
from local.emulator import MACHINES, SAM

if TYPE_CHECKING:
    from collections.abc import Mapping

ENGINE_SECONDS = 10.0


@dataclass(frozen=True)
class Engine:
    """How a container gets out to this machine."""

    cloud_address: str
    """Where a server on this machine must listen, to be found."""
    host: str
    """By what name a container finds it."""


def engine() -> Engine | None:
    """Return the container engine, or None if there is none that answers."""
    if shutil.which("docker") is None:
        return None
    try:
        asked = subprocess.run(
            ["docker", "network", "inspect", "bridge", "--format", "{{(index .IPAM.Config 0).Gateway}}"],
            capture_output=True,
            text=True,
            timeout=ENGINE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    if asked.returncode != 0:
        return None
    gateway = asked.stdout.strip()
    # Elsewhere the engine lives in a virtual machine, with a name in it that leads to our loopback.
    return Engine(gateway, gateway) if sys.platform == "linux" else Engine(LOOPBACK, "host.docker.internal")


def invoke(name: str, event: Path, environment: Mapping[str, str]) -> Any:
    """Build for this machine's architecture, run the function once, and return its parsed answer."""
    with tempfile.TemporaryDirectory(prefix="local-invoke-") as folder:
        settings = Path(folder) / "env.json"
        settings.write_text(json.dumps({name: dict(environment)}))
        build = Path(folder) / "build"
        _sam("build", "--build-dir", str(build))
        printed = _sam(
            *("local", "invoke", name, "--template", str(build / "template.yaml")),
            *("--event", str(event.resolve()), "--env-vars", str(settings)),
        )
    return last_answer(printed)


def last_answer(printed: str) -> Any:
    """Return what the function answered: SAM's status is 0 even for one that failed, and its answer comes last."""
    return json.loads(printed.strip().splitlines()[-1])


def _sam(*arguments: str) -> str:
    # Emulating another architecture takes minutes, where it works at all.
    architecture = MACHINES[platform.machine().lower()]
    ran = subprocess.run(
        [str(SAM / "bin" / "sam"), *arguments, "--parameter-overrides", f"Architecture={architecture}"],
        cwd=ROOT,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
            "AWS_ACCESS_KEY_ID": ACCOUNT,
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": REGION,
            "SAM_CLI_TELEMETRY": "0",
        },
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return ran.stdout
