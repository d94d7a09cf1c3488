"""A function's code, built for this machine: its folder, with what its requirements.txt names."""

import importlib.util
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

from idempotent_receiver.local.deployment import DeployError

LEFT_OUT = shutil.ignore_patterns("__pycache__", ".*", "venv", "node_modules")
PIP_SECONDS = 300
SAID_LINES = 12


def build(code: Path, folder: Path, project: Path) -> Path:
    """Build what this CodeUri names into a folder of its own below this one, once; return where.

    The requirements are beside the code or, for all functions of the project, in its folder.

    Raises DeployError, with the remedy, where that cannot be done.
    """
    target = folder / sha256(str(code.resolve()).encode()).hexdigest()[:16]
    if target.exists():
        return target
    if not code.is_dir():
        raise DeployError(f"the template names code at {code}, and there is no such folder: correct CodeUri")
    target.mkdir(parents=True)
    found = (each / "requirements.txt" for each in (code, project) if (each / "requirements.txt").is_file())
    if requirements := next(found, None):
        _install(requirements, target)
    shutil.copytree(code, target, ignore=LEFT_OUT, dirs_exist_ok=True)
    return target


def _install(requirements: Path, target: Path) -> None:
    command = [*_installer(), "--quiet", "--target", str(target), "-r", requirements.name]
    try:
        done = subprocess.run(
            command,
            cwd=requirements.parent,  # it may name a wheel beside it
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PIP_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise DeployError(
            f"{requirements} was not installed within {PIP_SECONDS} s: is the package index there?"
        ) from None
    if done.returncode != 0:
        said = "\n".join(done.stderr.strip().splitlines()[-SAID_LINES:])
        raise DeployError(f"{requirements} could not be installed: correct it, or see to the package index.\n{said}")


def _installer() -> list[str]:
    """What installs packages for this interpreter: pip, or uv where an environment of uv's has no pip."""
    if _has_pip():
        return [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    uv = shutil.which("uv")
    if uv is None:
        raise DeployError(f"{sys.executable} has no pip: run `{sys.executable} -m ensurepip`")
    return [uv, "pip", "install", "--python", sys.executable]


def _has_pip() -> bool:
    return importlib.util.find_spec("pip") is not None
