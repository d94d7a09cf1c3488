"""Which tests must share a process where several run them (`--dist loadgroup`): those that share a server."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent

GROUPS = {
    "e2e/test_run.py": "run",  # it brings clouds of its own
    "e2e/test_sandbox.py": "run",  # likewise
    "e2e": "cloud",  # one cloud, one deployment, and one judgement about all calls that were recorded
    "contract": "engines",
}
"""By file or folder, the first that fits; other tests go to whichever process is free."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put each test into its group."""
    for item in items:
        path = item.path.relative_to(TESTS).as_posix()
        for prefix, group in GROUPS.items():
            if path == prefix or path.startswith(f"{prefix}/"):
                item.add_marker(pytest.mark.xdist_group(group))
                break
