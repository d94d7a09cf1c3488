"""Every module stands in a layer of a contract; `lint-imports` refuses what runs against it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "src" / "idempotent_receiver"

CONTRACTS: list[dict[str, Any]] = [
    contract
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    if contract["type"] == "layers"
]


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
