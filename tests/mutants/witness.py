"""A pytest plugin: writes down which tests failed by an assertion, and stops once as many as are wanted have.

An error of any other kind is no verdict: a bug that merely breaks the code would look like one that a test has found.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import idempotent_receiver

_seen: dict[str, dict[str, str]] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """See every test's end."""
    report = yield
    if report.when == "call" and call.excinfo is not None and call.excinfo.errisinstance(ASSERTIONS):
        why = str(call.excinfo.value).splitlines()[:1]
        _seen.setdefault(item.nodeid.partition("[")[0], {"test": item.name, "why": "".join(why)})
        Path(os.environ["MUTANT_VERDICT"]).write_text(json.dumps(_seen), encoding="utf-8")
        if len(_seen) == int(os.environ["MUTANT_WITNESSES"]):
            item.session.shouldstop = "enough tests have seen the bug"
    return report


def pytest_sessionstart() -> None:
    """The copy is what is tested, and not the checkout."""
    found = Path(idempotent_receiver.__file__)
    if not found.is_relative_to(os.environ["MUTANT_SOURCE"]):
        pytest.exit(f"{found} is not the copy", returncode=99)


ASSERTIONS = (AssertionError, pytest.fail.Exception)
