"""A plugin of pytest's, there wherever the extra `[testing]` is installed: the fixture `calls`."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from idempotent_receiver.testing.calls import Calls


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> "Calls":
    """Fakes of what a handler calls. `calls.replace(module, "function", key="parameter")` puts one in its place until
    the test ends; `calls.made` are the calls.
    """
    # Imported where it is used: most tests of a project do without.
    from idempotent_receiver.testing.calls import Calls  # noqa: PLC0415

    return Calls(monkeypatch.setattr)
