"""A pytest plugin: stops at the first test whose assertion fails, and writes down which that was.

An error of any other kind is no verdict: a bug that merely breaks the code would look like one that a test has found.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import idempotent_receiver


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """See every test's end."""
    report = yield
    if report.when == "call" and call.excinfo is not None and call.excinfo.errisinstance(ASSERTIONS):
        why = str(call.excinfo.value).splitlines()[:1]
        verdict = {"test": item.name, "why": "".join(why)}
        Path(os.environ["MUTANT_VERDICT"]).write_text(json.dumps(verdict), encoding="utf-8")
        item.session.shouldstop = "a test has seen the bug"
    return report


def pytest_sessionstart() -> None:
    """The copy is what is tested, and not the checkout."""
    found = Path(idempotent_receiver.__file__)
    if not found.is_relative_to(os.environ["MUTANT_SOURCE"]):
        pytest.exit(f"{found} is not the copy", returncode=99)


ASSERTIONS = (AssertionError, pytest.fail.Exception)
