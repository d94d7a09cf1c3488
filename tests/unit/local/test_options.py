"""What the runs take from the environment, and what they lay over the code folder."""

from __future__ import annotations

import io
import json
import zipfile
from typing import TYPE_CHECKING

import pytest

from idempotent_receiver.local.deployment import zipped
from local.program import Options, options_of
from local.run import without_claims_by
from local.workload import deployment
from local.workload.deployment import overlay_of

if TYPE_CHECKING:
    from pathlib import Path


def test_the_defaults() -> None:
    assert options_of({}) == Options(number=500, seed=1, protected=True, stack=None)
    assert options_of({"N": "", "STACK": "", "PROTECTION": ""}) == options_of({})


def test_what_is_asked_for() -> None:
    environment = {"N": "60", "SEED": "7", "PROTECTION": "off"}
    assert options_of(environment) == Options(number=60, seed=7, protected=False, stack=None)
    assert options_of({"STACK": "payments"}).stack == "payments"


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({"N": "many"}, "N is a whole number"),
        ({"SEED": "-1"}, "SEED is a whole number"),
        ({"PROTECTION": "maybe"}, "PROTECTION is on or off"),
        ({"PROTECTION": "off", "STACK": "payments"}, "leave out STACK"),
    ],
)
def test_what_makes_no_sense_is_refused(environment: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        options_of(environment)


def build(folder: Path, *more: str) -> Path:
    """A code folder with sources and their bytecode, as the build makes it."""
    for name in ("app/consumer.py", "app/ledger.py", "boto3/__init__.py", *more):
        source = folder / name
        source.parent.mkdir(exist_ok=True, parents=True)
        source.write_text(f"# {name}")
        cache = source.parent / "__pycache__"
        cache.mkdir(exist_ok=True)
        (cache / f"{source.stem}.cpython-313.pyc").write_bytes(b"bytecode")
    return folder


def test_the_shipped_root_is_kept_beside_the_one_that_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wirings = ("app/steps/wiring.py", "app/workflow/wiring.py")
    monkeypatch.setattr(deployment, "HOST_BUILD", build(tmp_path, *wirings))
    overlay = overlay_of(1234, protected=True)
    assert overlay["app/shipped.py"] == b"# app/consumer.py"
    assert b"app.shipped" in overlay["app/consumer.py"]
    assert overlay["app/steps/shipped_wiring.py"] == b"# app/steps/wiring.py"
    assert b"app.workflow.shipped_wiring" in overlay["app/workflow/wiring.py"]
    assert "app/workflow/start.py" not in overlay
    assert json.loads(overlay["local/overlay/settings.json"]) == {
        "host": "127.0.0.1",
        "port": 1234,
        "protection": True,
    }


def test_an_overlaid_file_is_not_silenced_by_the_bytecode_of_what_it_replaces(tmp_path: Path) -> None:
    """The build's bytecode is trusted without a look at its source."""
    archive = zipfile.ZipFile(io.BytesIO(zipped(build(tmp_path), {"app/consumer.py": b"# ours"})))
    assert archive.read("app/consumer.py") == b"# ours"
    assert sorted(archive.namelist()) == [
        "app/__pycache__/ledger.cpython-313.pyc",
        "app/consumer.py",
        "app/ledger.py",
    ]


@pytest.mark.parametrize("said", [{}, {"EFFECTS": ""}, {"EFFECTS": "any"}, {"STACK": "payments"}])
def test_a_run_claims_unless_it_is_told_not_to(said: dict[str, str]) -> None:
    assert without_claims_by(said, options_of(said)) is False
    assert without_claims_by({"EFFECTS": "transaction"}, options_of({})) is True


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({"EFFECTS": "transactions"}, "EFFECTS is any or transaction"),
        ({"EFFECTS": "transaction", "STACK": "payments"}, "leave out STACK"),
        ({"EFFECTS": "transaction", "PROTECTION": "off"}, "leave out STACK and PROTECTION"),
    ],
)
def test_effects_that_a_run_cannot_have_are_refused(environment: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        without_claims_by(environment, options_of(environment))
