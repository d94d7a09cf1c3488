"""The consumer's composition root: what it makes of its environment."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from idempotent_receiver.sqs.consumer import Consumer

ENVIRONMENT = {
    "RECORDS_TABLE": "records",
    "ACCOUNTS_TABLE": "accounts",
    "ENTRIES_TABLE": "entries",
    "AWS_DEFAULT_REGION": "us-east-1",
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("EFFECTS", raising=False)
    yield
    sys.modules.pop("app.consumer", None)


def started() -> Consumer:
    """The handler of a process that has just started."""
    sys.modules.pop("app.consumer", None)
    handler: Consumer = importlib.import_module("app.consumer").lambda_handler
    return handler


@pytest.mark.parametrize(("set_to", "effects"), [(None, "any"), ("", "any"), ("any", "any"), ("transaction",) * 2])
def test_unless_its_variable_says_otherwise_every_message_is_claimed(
    monkeypatch: pytest.MonkeyPatch, set_to: str | None, effects: str
) -> None:
    if set_to is not None:
        monkeypatch.setenv("EFFECTS", set_to)
    assert started().options.effects == effects


@pytest.mark.parametrize("misspelt", ["Transaction", "transaction ", "on", "true"])
def test_a_value_that_says_nothing_ends_the_start_with_what_may_be_said(
    monkeypatch: pytest.MonkeyPatch, misspelt: str
) -> None:
    monkeypatch.setenv("EFFECTS", misspelt)
    with pytest.raises(ValueError, match="effects must be 'any', or 'transaction'"):
        started()
