"""Where a new project gets this library: the package index, or the checkout or wheel that this copy was
installed from.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from idempotent_receiver.operations.account import UsageError

LIBRARY_NAME = "idempotent-receiver"
EXTRAS = "cli,local,testing"
VENDOR = "vendor"
BUILD_SECONDS = 300


@dataclass(frozen=True, slots=True)
class LibrarySource:
    """How a project requires the library: `plain` for deployment, `full` for development."""

    plain: str
    full: str
    wheel: Path | None = None
    """The wheel to copy into the project, if no package index has it."""


def source(folder: Path) -> LibrarySource:
    """The source of the running library. A checkout's wheel is built in `folder`. Raises UsageError on failure."""
    try:
        installed = distribution(LIBRARY_NAME)
    except PackageNotFoundError:
        raise UsageError(f"{LIBRARY_NAME} is importable but not installed: install it with pip or uv") from None
    origin = json.loads(installed.read_text("direct_url.json") or "null")
    if origin is None:
        release = ".".join(installed.version.split(".")[:2])
        return LibrarySource(f"{LIBRARY_NAME}~={release}", f"{LIBRARY_NAME}[{EXTRAS}]~={release}")
    if "vcs_info" in origin:
        where = f"{origin['vcs_info']['vcs']}+{origin['url']}@{origin['vcs_info']['commit_id']}"
        return LibrarySource(f"{LIBRARY_NAME} @ {where}", f"{LIBRARY_NAME}[{EXTRAS}] @ {where}")
    if urlsplit(origin["url"]).scheme != "file":
        return LibrarySource(f"{LIBRARY_NAME} @ {origin['url']}", f"{LIBRARY_NAME}[{EXTRAS}] @ {origin['url']}")
    wheel = _wheel(origin, folder)
    path = f"./{VENDOR}/{wheel.name}"
    return LibrarySource(path, f"{path}[{EXTRAS}]", wheel)


def _wheel(origin: dict[str, Any], folder: Path) -> Path:
    path = Path(url2pathname(urlsplit(origin["url"]).path))
    if not path.exists():
        raise UsageError(f"{LIBRARY_NAME} was installed from {path}, which no longer exists: reinstall it")
    return path if path.suffix == ".whl" else _built(path, folder)


def _built(checkout: Path, folder: Path) -> Path:
    """Build the wheel with pip from a new venv: a uv environment has no pip."""
    with tempfile.TemporaryDirectory() as tools:
        python = Path(tools, "bin", "python")
        _run(sys.executable, "-m", "venv", tools)
        _run(python, "-m", "pip", "wheel", "--no-deps", "--disable-pip-version-check", "--wheel-dir", folder, checkout)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _run(*command: str | Path) -> None:
    arguments = [str(each) for each in command]
    try:
        subprocess.run(arguments, capture_output=True, text=True, timeout=BUILD_SECONDS, check=True)  # noqa: S603  # ours
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"building the checkout's wheel took more than {BUILD_SECONDS} s: check that the package index is reachable"
        ) from None
    except subprocess.CalledProcessError as error:
        said = " ".join((error.stderr or error.stdout or "").strip().splitlines()[-3:])
        raise UsageError(f"the checkout's wheel could not be built: {said}") from None


def vendor(wheel: Path, project: Path) -> None:
    """Copy the wheel into the project."""
    (project / VENDOR).mkdir()
    shutil.copy(wheel, project / VENDOR)
