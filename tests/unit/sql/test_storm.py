"""Workers that are killed and stopped, and messages that two of them have at once: every effect is there once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.sql.storm import storm

if TYPE_CHECKING:
    from tests.unit.sql.bank import Bank

SIZES = [
    pytest.param(60, 6, id="short"),
    pytest.param(400, 40, id="long", marks=pytest.mark.nightly),
]


@pytest.mark.parametrize(("messages", "kills"), SIZES)
def test_every_effect_is_there_once(bank: Bank, messages: int, kills: int) -> None:
    """On each database, at its usual isolation level."""
    options: dict[str, Any] = {}
    concurrency = 4
    if bank.engine.dialect.name == "sqlite":
        options, concurrency, messages = {"connect_args": {"timeout": 30}}, 1, messages // 3
    blown = storm(bank, messages=messages, kills=kills, options=options, concurrency=concurrency)

    blown.blow()

    blown.judge()
    assert blown.killed > 0


@pytest.mark.parametrize(("messages", "kills"), SIZES)
def test_every_effect_is_there_once_under_serializable(on_server: Bank, messages: int, kills: int) -> None:
    blown = storm(on_server, messages=messages // 2, kills=kills, options={"isolation_level": "SERIALIZABLE"})

    blown.blow()

    blown.judge()
