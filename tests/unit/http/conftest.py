"""What the tests of the way in for HTTP share."""

from __future__ import annotations

import pytest

from tests.unit.http.api import Api


@pytest.fixture
def api() -> Api:
    """A wrapped handler without options."""
    return Api()
