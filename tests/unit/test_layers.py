"""Every module stands in a layer, imports point one way, and `lint-imports` refuses the rest."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "src" / "idempotent_receiver"

CONTRACTS: list[dict[str, Any]] = [
    contract
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    if contract["type"] == "layers"
]


def names(layer: str) -> list[str]:
    """The modules of a layer."""
    return re.findall(r"\w+", layer)


def file_of(copy: Path, module: str) -> Path:
    """Where a module is; a package is where its `__init__` is."""
    path = copy / "src" / Path(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def broken(copy: Path) -> set[str]:
    """The names of the contracts that `lint-imports` finds broken."""
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=copy,
        env={"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": str(copy / "src"), "COLUMNS": "300"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    found = set(re.findall(r"^(.+) BROKEN", done.stdout, re.MULTILINE))
    assert (done.returncode == 0) == (not found), done.stdout + done.stderr
    return found


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the library and of its contracts."""
    shutil.copytree(LIBRARY, tmp_path / "src" / "idempotent_receiver", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_every_package_has_its_layers_and_leaves_no_module_out() -> None:
    """The library and each package in it; a package of one module has nothing to order."""
    packages = {file.parent: 0 for file in LIBRARY.rglob("__init__.py")}
    for file in LIBRARY.rglob("*.py"):
        above = file.parent.parent if file.name == "__init__.py" else file.parent
        packages[above] = packages.get(above, 0) + 1
    wanted = {
        ".".join(package.relative_to(ROOT / "src").parts)
        for package, modules in packages.items()
        if modules > 1 and package.is_relative_to(LIBRARY)
    }

    exhaustive = {container for one in CONTRACTS if one.get("exhaustive") for container in one["containers"]}
    assert exhaustive == wanted
    assert not any(one.get("ignore_imports") for one in CONTRACTS), "no import runs upwards, not even for a type"


def test_an_import_from_the_bottom_to_the_top_is_refused(copy: Path) -> None:
    """In every package, and a copy without one passes."""
    assert broken(copy) == set()
    for contract in CONTRACTS:
        (container,) = contract["containers"]
        (top, *_), (*_, bottom) = names(contract["layers"][0]), names(contract["layers"][-1])
        with file_of(copy, f"{container}.{bottom}").open("a") as file:
            file.write(f"\nfrom {container} import {top}\n")

    assert broken(copy) >= {contract["name"] for contract in CONTRACTS}


def test_a_module_that_stands_in_no_layer_is_refused(copy: Path) -> None:
    """Also when it imports nothing."""
    for contract in CONTRACTS:
        (container,) = contract["containers"]
        file_of(copy, f"{container}.utils").write_text('"""A module that nobody has found a place for."""\n')

    assert broken(copy) == {contract["name"] for contract in CONTRACTS}
