"""Audits dependencies: `python -m harness.audit` checks their licences and looks up known vulnerabilities.

Licences come from the installed packages, without network access. OSV is asked about all pinned packages in one
request; if it cannot be reached, the audit says so and does not fail.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
import tomllib
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OURS = "idempotent-receiver"
OSV = "https://api.osv.dev/v1/querybatch"
OSV_SECONDS = 15

PERMISSIVE = frozenset(
    {"MIT", "MIT-0", "Apache-2.0", "BSD", "BSD-2-Clause", "BSD-3-Clause", "ISC", "PSF-2.0", "CNRI-Python"}
)
"""Accepted licences for packages that we deploy or that our users must install."""

FOR_DEVELOPMENT = PERMISSIVE | {"LGPL-3.0-only", "LGPL", "MPL-2.0", "ZPL-2.1"}
"""Also accepted for packages that only run here, because we distribute none of them: licences with conditions for
changed copies, and for what is linked with them.
"""

CLASSIFIED = {
    "MIT License": "MIT",
    "MIT No Attribution License (MIT-0)": "MIT-0",
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "GNU Library or Lesser General Public License (LGPL)": "LGPL",
    "ISC License (ISCL)": "ISC",
    "Python Software Foundation License": "PSF-2.0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
"""Licences by their names in PyPI's older classifiers, and in packages without one."""

OLD = frozenset({"localstack.txt"})
"""Tools that we need in an old version, whose vulnerabilities are known. They only run in tests, on loopback."""

EXEMPT: dict[str, str] = {}
"""Known vulnerabilities that do not affect us, by id, each with its reason."""


@dataclass(frozen=True, order=True)
class Package:
    name: str
    version: str


def licence_of(metadata: Any) -> str:
    """A package's licence as an expression, or as the package states it."""
    if metadata.get("License-Expression"):
        return str(metadata["License-Expression"])
    classes = [each.split(" :: ")[-1] for each in metadata.get_all("Classifier", []) if each.startswith("License ::")]
    known = [CLASSIFIED.get(each, each) for each in classes if each != "OSI Approved"]
    said = str(metadata.get("License") or "no licence named")
    return " AND ".join(known) or CLASSIFIED.get(said, said)


def allowed(expression: str, licences: frozenset[str]) -> bool:
    """Whether an expression can be satisfied: one side of each OR, and both of each AND."""
    return any(all(part.strip(" ()") in licences for part in side.split(" AND ")) for side in expression.split(" OR "))


def passed_on(lock: dict[str, Any]) -> set[str]:
    """The names of our library's dependencies, including those of its command line, recursively."""
    packages = {each["name"]: each for each in lock["package"]}
    needed: set[str] = set()
    waiting = [OURS]
    while waiting:
        package = packages[waiting.pop()]
        extras = package.get("optional-dependencies", {}) if package["name"] == OURS else {}
        for each in [*package.get("dependencies", []), *(one for extra in extras.values() for one in extra)]:
            if each["name"] not in needed:
                needed.add(each["name"])
                waiting.append(each["name"])
    return needed


def bad_licences(lock: dict[str, Any]) -> list[str]:
    """A line for each installed package whose licence is not on its list."""
    ours = passed_on(lock)
    found = []
    for each in importlib.metadata.distributions():
        name, licence = _normal(each.name), licence_of(each.metadata)
        if name != OURS and not allowed(licence, PERMISSIVE if name in ours else FOR_DEVELOPMENT):
            found.append(f"{name} {each.version}: {licence}")
    return sorted(found)


def pinned(lock: dict[str, Any], requirements: list[Path]) -> list[Package]:
    """Every pinned package, of this project or of a tool's environment."""
    found = {Package(each["name"], each["version"]) for each in lock["package"] if "registry" in each["source"]}
    for path in requirements:
        pins = re.findall(r"(?m)^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^\s;\\]+)", path.read_text())
        found |= {Package(_normal(name), version) for name, version in pins}
    return sorted(found)


def vulnerabilities(packages: list[Package], url: str = OSV) -> list[str]:
    """A line for each known vulnerability. Raises OSError if the database cannot be reached."""
    queries = [{"package": {"name": each.name, "ecosystem": "PyPI"}, "version": each.version} for each in packages]
    request = urllib.request.Request(
        url, json.dumps({"queries": queries}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=OSV_SECONDS) as response:
        results = json.load(response)["results"]
    return [
        f"{package.name} {package.version}: {each['id']}"
        for package, result in zip(packages, results, strict=True)
        for each in result.get("vulns", [])
        if each["id"] not in EXEMPT
    ]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main(url: str = OSV) -> int:
    """Run both checks and print the findings; returns the exit status."""
    lock = tomllib.loads((ROOT / "uv.lock").read_text())
    tools = sorted(path for path in (ROOT / "tools").glob("*.txt") if path.name not in OLD)
    packages = pinned(lock, tools)
    bad = [f"licence not on the list: {each}" for each in bad_licences(lock)]
    try:
        bad += [f"known vulnerability: {each}" for each in vulnerabilities(packages, url)]
        told = "known vulnerabilities were looked up"
    except (OSError, ValueError, KeyError) as error:
        reason = getattr(error, "reason", None) or error
        sys.stdout.write(f"NOT CHECKED for known vulnerabilities: {url} could not be reached ({reason})\n")
        told = "known vulnerabilities were NOT looked up"
    sys.stdout.write("".join(f"{each}\n" for each in bad))
    sys.stdout.write(f"licences were checked; {told}, for {len(packages)} pinned packages\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
