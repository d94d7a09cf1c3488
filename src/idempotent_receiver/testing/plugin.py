"""A pytest plugin, available wherever the extra `[testing]` is installed: the fixture `calls`."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from idempotent_receiver.testing.calls import Calls


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> "Calls":
    """Fakes of what a handler calls. `calls.replace(module, "function", key="parameter")` installs one until the test
    ends; `calls.made` lists the calls.
    """
    # Imported here because most of a project's tests do not need it.
    from idempotent_receiver.testing.calls import Calls  # noqa: PLC0415

    return Calls(monkeypatch.setattr)
