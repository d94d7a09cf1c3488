"""Where the operator's machine is."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The operator's machine is nine hours ahead of UTC."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "XYZ-9")
        time.tzset()
        yield
    time.tzset()
