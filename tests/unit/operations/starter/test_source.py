"""A new project requires the library from where this one came."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver.operations.account import UsageError
from idempotent_receiver.operations.starter import source as origin

if TYPE_CHECKING:
    from pathlib import Path


def installed(monkeypatch: pytest.MonkeyPatch, direct_url: Any) -> None:
    text = None if direct_url is None else json.dumps(direct_url)
    found = SimpleNamespace(version="1.4.2", read_text=lambda name: {"direct_url.json": text}[name])
    monkeypatch.setattr(origin, "distribution", lambda name: found)


def test_from_an_index_a_project_requires_the_release(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed(monkeypatch, None)
    told = origin.source(tmp_path)
    assert (told.plain, told.wheel) == ("idempotent-receiver~=1.4", None)
    assert told.full == "idempotent-receiver[cli,local,testing]~=1.4"


def test_from_a_repository_it_requires_the_same_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commit = {"vcs": "git", "commit_id": "0f1e2d"}
    installed(monkeypatch, {"url": "https://example.com/receiver.git", "vcs_info": commit})
    assert origin.source(tmp_path).plain == "idempotent-receiver @ git+https://example.com/receiver.git@0f1e2d"


def test_from_a_wheel_it_carries_that_wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wheel = tmp_path / "a folder" / "idempotent_receiver-1.4.2-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.write_bytes(b"wheel")
    installed(monkeypatch, {"url": wheel.as_uri(), "archive_info": {}})
    told = origin.source(tmp_path)
    assert (told.plain, told.wheel) == (f"./vendor/{wheel.name}", wheel)
    origin.vendor(wheel, tmp_path)
    assert (tmp_path / "vendor" / wheel.name).read_bytes() == b"wheel"


def test_what_it_was_installed_from_must_still_be_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed(monkeypatch, {"url": (tmp_path / "gone").as_uri(), "dir_info": {"editable": True}})
    with pytest.raises(UsageError, match="which no longer exists: reinstall it"):
        origin.source(tmp_path)


def test_a_checkout_that_does_not_build_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installed(monkeypatch, {"url": tmp_path.as_uri(), "dir_info": {}})
    with pytest.raises(UsageError, match=r"the checkout's wheel could not be built: .*pyproject.toml"):
        origin.source(tmp_path / "wheel")
