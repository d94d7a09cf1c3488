"""Each example, made as examples/README.md says, passes `make local`: its messages take effect once, workers killed."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.e2e.test_starter import Project, environment, run, started, venv, wheel
from tests.examples import EXAMPLES, NAMES, PATCH, command_of

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["environment", "venv", "wheel"]
"""The fixtures of a project that `receiver init` makes."""

SEVERAL = {"orders": "Consumer"}
"""Of several consumers, the one to which the events go."""
REFUSES = {"bookings", "signups", "subscriptions"}
"""What is in both files of events is refused the second time."""


@pytest.fixture(scope="module")
def with_sql(venv: Path) -> Path:
    """The same environment, with what --sql requires."""
    run(venv / "bin/python", "-m", "pip", "install", "--quiet", "sqlalchemy>=2.0.40", "psycopg[binary]")
    return venv


@pytest.mark.parametrize("name", NAMES)
def test_its_messages_take_effect_once_whatever_is_killed(
    name: str, with_sql: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    _, _, _, *options = command_of(name)
    project = started(tmp_path, with_sql, environment, name, *options)
    shutil.copytree(EXAMPLES / name, project.folder, dirs_exist_ok=True)
    run("patch", "-p1", "-i", PATCH, cwd=project.folder)
    without_cloud = {name: value for name, value in environment.items() if not name.startswith("AWS_")}
    arguments = [f"--function {SEVERAL[name]}"] if name in SEVERAL else []
    told = Project(project.folder, without_cloud).make("local", f"ARGS={' '.join(arguments)}")
    assert re.search(rf"messages: \d once{', 1 dead letter' * (name in REFUSES)}\n", told), told
    assert "workers killed: before recording the result; before responding" in told
