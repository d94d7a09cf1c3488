"""What holds for all tests: how many examples hypothesis tries, how a scenario's tests are selected, and which tests
must share a process where several run them (`--dist loadgroup`): those that share a server.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

TESTS = Path(__file__).parent

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
# The same examples each time, so that a red test is red for everybody; and as they come, for making them small takes
# minutes, which `make fuzz` has.
settings.register_profile(
    "bounded",
    max_examples=200,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    database=None,
    deadline=None,
    suppress_health_check=SLOW,
)
settings.register_profile(
    "long", max_examples=int(os.environ.get("EXAMPLES", "5000")), deadline=None, suppress_health_check=SLOW
)
settings.load_profile("long" if "EXAMPLES" in os.environ else "bounded")

GROUPS = {
    "e2e/test_run.py": "run",  # it brings clouds of its own
    "e2e/test_sandbox.py": "run",  # likewise
    "e2e/test_workflow_run.py": "run",
    "e2e": "cloud",  # one cloud, one deployment, and one judgement about all calls that were recorded
    "contract": "engines",
}
"""By file or folder, the first that fits; other tests go to whichever process is free."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let `-k S17` select the tests of a scenario."""
    for mark in item.iter_markers("scenario"):
        item.extra_keyword_matches.update(mark.args)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put each test into its group, before xdist reads the groups."""
    for item in items:
        path = item.path.relative_to(TESTS).as_posix()
        for prefix, group in GROUPS.items():
            if path == prefix or path.startswith(f"{prefix}/"):
                item.add_marker(pytest.mark.xdist_group(group))
                break
