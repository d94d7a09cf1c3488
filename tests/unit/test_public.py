"""The public interface: exactly these names."""

from __future__ import annotations

import inspect

import idempotent_receiver


def test_all_lists_what_is_there() -> None:
    """Sorted, complete, and importable."""
    public = {
        name
        for name, value in vars(idempotent_receiver).items()
        if not name.startswith("_") and not inspect.ismodule(value) and name not in idempotent_receiver._LAZY
    }

    assert set(idempotent_receiver.__all__) == public | set(idempotent_receiver._LAZY)
    assert len(set(idempotent_receiver.__all__)) == len(idempotent_receiver.__all__)


def test_every_public_name_has_a_docstring() -> None:
    """Functions, classes and errors alike."""
    for name in idempotent_receiver.__all__:
        assert inspect.getdoc(getattr(idempotent_receiver, name)), f"{name} has no docstring"
