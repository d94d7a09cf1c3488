"""What a cold start costs: the CPU of importing a function and making its first client, in a fresh interpreter.

On Lambda's Python 3.13, from packages that are built as they are deployed, bytecode and all: our artifact, and one of
Powertools that is packed by the same commands. Both find the AWS SDK where Lambda's runtime has it, outside of them.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.endpoint import ROOT
from benchmarks.measure import MeasurementError, Spread

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BUILD = ROOT / ".build"
ARCHITECTURE = {"x86_64": "x86_64", "AMD64": "x86_64", "aarch64": "arm64", "arm64": "arm64"}

PAIRS = {"a plain body, one client": "plain", "the deployed application": "deployed"}
PACKAGES = {"ours": "python3.13-{architecture}", "powertools": "peer-python3.13-{architecture}/packages"}

PROBE = """
import sys, time
before = time.process_time()
module = __import__(sys.argv[1])
module.start()
print((time.process_time() - before) * 1000)
"""


def cold_starts(python313: str, repeats: int) -> dict[str, dict[str, Spread]]:
    """CPU milliseconds of each pair, in turns."""
    found: dict[str, dict[str, list[float]]] = {pair: {subject: [] for subject in PACKAGES} for pair in PAIRS}
    with tempfile.TemporaryDirectory() as folder:
        functions = _compiled(Path(folder), python313)
        for number in range(repeats + 1):
            for pair, subject in _all():
                milliseconds = _start(python313, functions, f"{subject}_{PAIRS[pair]}", _packages(subject))
                if number:  # the first of each only brings the files into memory
                    found[pair][subject].append(milliseconds)
    return {pair: {subject: Spread.of(values) for subject, values in both.items()} for pair, both in found.items()}


def find_python313() -> str | None:
    """A Python 3.13 that runs here; None where there is none, or where nothing is built for this machine."""
    candidates = [os.environ.get("PYTHON_313", ""), shutil.which("python3.13") or ""]
    for candidate in filter(None, candidates):
        code = "import sys; sys.exit(sys.version_info[:2] != (3, 13))"
        if subprocess.run([candidate, "-c", code], capture_output=True, check=False).returncode == 0:
            return candidate
    return None


def _all() -> Iterator[tuple[str, str]]:
    return ((pair, subject) for pair in PAIRS for subject in PACKAGES)


def _packages(subject: str) -> Path:
    return BUILD / PACKAGES[subject].format(architecture=ARCHITECTURE[platform.machine()])


def _compiled(folder: Path, python313: str) -> Path:
    """The functions with their bytecode, as they would be packed; with them the model that the peer validates by."""
    shutil.copytree(ROOT / "benchmarks" / "cold", folder, dirs_exist_ok=True)
    (folder / "model" / "app").mkdir(parents=True)
    for name in ("__init__.py", "transfers.py"):
        shutil.copy(ROOT / "src" / "app" / name, folder / "model" / "app" / name)
    options = ["-q", "--invalidation-mode", "unchecked-hash"]
    subprocess.run([python313, "-m", "compileall", *options, str(folder)], check=True)
    return folder


def _start(python313: str, functions: Path, module: str, packages: Path) -> float:
    runtime = BUILD / f"peer-python3.13-{ARCHITECTURE[platform.machine()]}" / "runtime"
    path = [functions, packages, *([] if module.startswith("ours") else [functions / "model"]), runtime]
    done = subprocess.run(
        [python313, "-c", PROBE, module],
        env=_environment(os.pathsep.join(map(str, path))),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode != 0:
        raise MeasurementError(f"{module} did not start:\n{done.stderr[-2000:]}")
    milliseconds: float = json.loads(done.stdout.splitlines()[-1])
    return milliseconds


def _environment(path: str) -> Mapping[str, str]:
    return {
        "PATH": os.defpath,
        "PYTHONPATH": path,
        "PYTHONDONTWRITEBYTECODE": "1",
        "AWS_ACCESS_KEY_ID": "benchmark",
        "AWS_SECRET_ACCESS_KEY": "unchecked",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_REGION": "us-east-1",
        "AWS_LAMBDA_FUNCTION_NAME": "consumer",
        "POWERTOOLS_SERVICE_NAME": "cold",
        "POWERTOOLS_METRICS_NAMESPACE": "Cold",
        "RECORDS_TABLE": "records",
        "ACCOUNTS_TABLE": "accounts",
        "ENTRIES_TABLE": "entries",
    }
