"""A pytest plugin: records which tests failed by an assertion, and stops once there are as many as are wanted.

An error of any other kind does not count: a bug that merely breaks the code would look like one that a test has found.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

ASSERTIONS = (AssertionError, pytest.fail.Exception)

_failed: dict[str, dict[str, str]] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """Look at how each test ended."""
    report = yield
    if report.when == "call" and call.excinfo is not None and call.excinfo.errisinstance(ASSERTIONS):
        why = str(call.excinfo.value).splitlines()[:1]
        _failed.setdefault(item.nodeid.partition("[")[0], {"test": item.name, "why": "".join(why)})
        Path(os.environ["MUTANT_FAILURES"]).write_text(json.dumps(_failed), encoding="utf-8")
        if len(_failed) == int(os.environ["MUTANT_FAILURES_WANTED"]):
            item.session.shouldstop = "enough tests have failed"
    return report


def pytest_sessionstart() -> None:
    """Make sure that the copy is tested, and not the checkout."""
    import idempotent_receiver  # noqa: PLC0415  # pytest warns of what is imported before its plugins

    found = Path(idempotent_receiver.__file__)
    if not found.is_relative_to(os.environ["MUTANT_SOURCE"]):
        pytest.exit(f"{found} is not the copy", returncode=99)
