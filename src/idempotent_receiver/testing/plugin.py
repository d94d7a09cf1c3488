"""A pytest plugin with the `calls` fixture, available when the `[testing]` extra is installed."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from idempotent_receiver.testing.calls import Calls


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> "Calls":
    """Fakes for the functions that a handler calls. `calls.replace(module, "function", key="parameter")` installs a
    fake until the test ends; `calls.made` lists the calls.
    """
    # Imported here because most tests in a project do not need it.
    from idempotent_receiver.testing.calls import Calls  # noqa: PLC0415

    return Calls(monkeypatch.setattr)
