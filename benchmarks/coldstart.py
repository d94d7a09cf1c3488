"""The cost of a cold start: the CPU time to import a function and create its first client, in a fresh interpreter.

It is measured on Python 3.13, with packages built as for deployment, bytecode included: our artifact, and one with
Powertools that the same commands have built. Both find the AWS SDK outside the package, as in Lambda's runtime.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from itertools import product
from pathlib import Path

from benchmarks.endpoint import ROOT
from benchmarks.measure import Spread, output_of

BUILD = ROOT / ".build"
HOST = f"python3.13-{platform.machine().replace('aarch64', 'arm64')}"

PAIRS = {"a plain body, one client": "plain", "the deployed application": "deployed"}
PACKAGES = {"ours": BUILD / HOST, "powertools": BUILD / f"peer-{HOST}" / "packages"}

PROBE = """
import sys, time
before = time.process_time()
module = __import__(sys.argv[1])
module.start()
print((time.process_time() - before) * 1000)
"""


def cold_starts(python313: str, repeats: int) -> dict[str, dict[str, Spread]]:
    """CPU milliseconds of both packages for each pair, measured in turns."""
    found: dict[str, dict[str, list[float]]] = {pair: {subject: [] for subject in PACKAGES} for pair in PAIRS}
    with tempfile.TemporaryDirectory() as folder:
        functions = _compiled(Path(folder), python313)
        for number in range(repeats + 1):
            for pair, subject in product(PAIRS, PACKAGES):
                milliseconds = _start(python313, functions, f"{subject}_{PAIRS[pair]}", PACKAGES[subject])
                if number:  # the first start only reads the files into memory
                    found[pair][subject].append(milliseconds)
    return {pair: {subject: Spread.of(values) for subject, values in both.items()} for pair, both in found.items()}


def _compiled(folder: Path, python313: str) -> Path:
    """The functions with their bytecode, and the model with which Powertools validates."""
    shutil.copytree(ROOT / "benchmarks" / "cold", folder, dirs_exist_ok=True)
    (folder / "model" / "app").mkdir(parents=True)
    for name in ("__init__.py", "transfers.py"):
        shutil.copy(ROOT / "src" / "app" / name, folder / "model" / "app" / name)
    options = ["-q", "--invalidation-mode", "unchecked-hash"]
    subprocess.run([python313, "-m", "compileall", *options, str(folder)], check=True)
    return folder


def _start(python313: str, functions: Path, module: str, packages: Path) -> float:
    model = [] if module.startswith("ours") else [functions / "model"]
    path = [functions, packages, *model, BUILD / f"peer-{HOST}" / "runtime"]
    milliseconds = output_of(
        [python313, "-c", PROBE, module],
        PYTHONPATH=os.pathsep.join(map(str, path)),
        PYTHONDONTWRITEBYTECODE="1",
        POWERTOOLS_SERVICE_NAME="cold",
        POWERTOOLS_METRICS_NAMESPACE="Cold",
        RECORDS_TABLE="records",
        ACCOUNTS_TABLE="accounts",
        ENTRIES_TABLE="entries",
    )
    return float(milliseconds.splitlines()[-1])
