"""Untrusted text as it is shown: nothing in it can control or mislead a terminal."""

from __future__ import annotations

import pytest

from idempotent_receiver.operations.text import escaped


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (None, ""),
        ("é\n\u00a0\U0001f600", "é\n\u00a0\U0001f600"),
        ("\t\x1b[2J", r"\u0009\u001b[2J"),
        ("a\uffffb", r"a\uffffb"),
        ("a\U000e0001b", r"a\U000e0001b"),
    ],
)
def test_what_cannot_be_printed_has_its_number_in_as_many_digits_as_it_needs(text: object, shown: str) -> None:
    assert escaped(text) == shown
