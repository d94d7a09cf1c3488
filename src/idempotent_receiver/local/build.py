"""Builds a function's code for this machine: with the project's Makefile, or from requirements.txt and the code folder.

Every build has its own folder, never SAM's build folder, which `sam deploy` would deploy.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from idempotent_receiver.local.deployment import DeployError, Target

LEFT_OUT = shutil.ignore_patterns("__pycache__", ".*", "venv", "node_modules")
LEFT_OUT_BY_SAM = shutil.ignore_patterns(".aws-sam", ".git")
LONGEST_BUILD_SECONDS = 300
SAID_LINES = 12
HOST_BUILD = {"BUILD_FOR": "host", "PYTHON": sys.executable}
"""Variables that tell a Makefile which machine and Python to build for."""
NOT_FOR_HOST = (
    "the target {target} built for another machine. When BUILD_FOR is host, it must install packages for $(PYTHON), "
    "without --platform or --python-version"
)


def build(code: Path, folder: Path, project: Path) -> Path:
    """Build the code in the folder `code` once, into its own subfolder of `folder`; return the path.

    requirements.txt is next to the code or, if shared by all functions, in the project's folder.

    Raises DeployError, with the remedy, on failure.
    """
    target = folder / sha256(str(code.resolve()).encode()).hexdigest()[:16]
    if target.exists():
        return target
    _require_code(code)
    target.mkdir(parents=True)
    found = (each / "requirements.txt" for each in (code, project) if (each / "requirements.txt").is_file())
    if requirements := next(found, None):
        command = [*_installer(), "--quiet", "--target", str(target), "-r", requirements.name]
        # requirements.txt may name a wheel in its own folder.
        _run(
            command,
            requirements.parent,
            f"{requirements} could not be installed: correct it, or check the package index",
        )
    shutil.copytree(code, target, ignore=LEFT_OUT, dirs_exist_ok=True)
    return target


def build_by_make(target: Target, folder: Path) -> Path:
    """Build a function once for this machine, as `sam build` would, into a subfolder of `folder`; return the path.

    Raises DeployError, with the remedy, on failure.
    """
    artifacts, name = (folder / target.function).resolve(), f"build-{target.function}"
    if artifacts.exists():
        return artifacts
    _require_code(target.code)
    makefile = target.context.resolve() / "Makefile"
    if not makefile.is_file():
        raise DeployError(
            f"{target.function} should be built by a Makefile, but {makefile} does not exist: correct ContextPath"
        )
    artifacts.mkdir(parents=True)
    # Do not pass on an outer make's variables.
    inherited = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    _run(
        ["make", "--makefile", str(makefile), name],
        _working_folder(target, folder),
        f"`make {name}` failed ({makefile})",
        {**inherited, **HOST_BUILD, "ARTIFACTS_DIR": str(artifacts)},
    )
    if not any(artifacts.iterdir()):
        raise DeployError(f"`make {name}` left $(ARTIFACTS_DIR) empty: it must put the code and its packages there")
    if _is_foreign(artifacts):
        raise DeployError(NOT_FOR_HOST.format(target=name))
    return artifacts


def _working_folder(target: Target, folder: Path) -> Path:
    """The folder where SAM runs make: the one that the template names or, if that is inside the code, a copy."""
    code, working = target.code.resolve(), (target.working or target.code).resolve()
    if not working.is_relative_to(code):
        return working
    copy = folder / f"{target.function}.source"
    shutil.copytree(code, copy, ignore=LEFT_OUT_BY_SAM, symlinks=True)
    return copy / working.relative_to(code)


def _is_foreign(built: Path) -> bool:
    """Whether all compiled modules in the build are for another Python or processor."""
    compiled, suffix = [each.name for each in built.rglob("*.cpython-*.so")], sysconfig.get_config_var("EXT_SUFFIX")
    return bool(compiled) and not any(each.endswith(suffix) for each in compiled)


def _require_code(code: Path) -> None:
    if not code.is_dir():
        raise DeployError(f"the template's code folder {code} does not exist: correct CodeUri")


def _run(command: Sequence[str], folder: Path, what: str, environment: Mapping[str, str] | None = None) -> None:
    """Run a build command quietly. Raises DeployError with the end of its output."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LONGEST_BUILD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise DeployError(
            f"{what}: it took longer than {LONGEST_BUILD_SECONDS} s. Check that the package index is reachable."
        ) from None
    except OSError as error:
        raise DeployError(f"{what}: {error}") from None
    if done.returncode != 0:
        said = "\n".join(done.stdout.strip().splitlines()[-SAID_LINES:])
        raise DeployError(f"{what}.\n{said}")


def _installer() -> list[str]:
    """The package installer for this interpreter: pip, or uv if a uv environment has no pip."""
    if _has_pip():
        # The function does not run in pip's environment, so conflicts with it are irrelevant.
        quiet = ["--disable-pip-version-check", "--no-warn-conflicts", "--no-input"]
        return [sys.executable, "-m", "pip", "install", *quiet]
    uv = shutil.which("uv")
    if uv is None:
        raise DeployError(f"{sys.executable} has no pip: run `{sys.executable} -m ensurepip`")
    return [uv, "pip", "install", "--python", sys.executable]


def _has_pip() -> bool:
    return importlib.util.find_spec("pip") is not None
