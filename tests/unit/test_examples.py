"""Each example is a project of `receiver init` that passes its own tests, and reads as users' code should."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.examples import EXAMPLES, NAMES, PATCH, command_of, composed
from tests.starter import made
from tests.unit.templates.test_edits import problems

if TYPE_CHECKING:
    from pathlib import Path

README = (EXAMPLES / "README.md").read_text()
TOOL = "refund_tool"
"""The one without a queue, which is no project."""
MOST_LINES = 55
SOURCES = sorted(path for path in EXAMPLES.glob("**/*.py") if "test" not in path.name)
OF_TEMPLATES = """
import json, re
from pathlib import Path
from idempotent_receiver.operations.description import Description, description_in
from {name}.handler import lambda_handler

def test_the_template_says_what_the_code_says():
    template = (Path(__file__).parents[1] / "template.yaml").read_text()
    code = Description.of(lambda_handler).document()
    output = re.findall(r"\\n  ConsumerDescription: \\{{Value: (?:!Sub )?'(.*)'\\}}", template)[0]
    assert description_in(output.replace("${{Effects}}", code["effects"])).document() == code
"""


def run(*command: str, cwd: Path, **variables: str) -> None:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PYTEST"))}
    done = subprocess.run(command, cwd=cwd, env=own | variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all of them."""
    folder = tmp_path_factory.mktemp("examples")
    for name in NAMES:
        composed(name, folder)
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_its_own_tests_pass_and_its_template_says_what_its_code_says(name: str, tmp_path: Path) -> None:
    project = composed(name, tmp_path)
    (project / "tests/test_template.py").write_text(OF_TEMPLATES.format(name=name))
    run(sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", cwd=project)


@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
def test_its_template_is_clean_and_its_patch_fits_to_the_line(name: str, tmp_path: Path) -> None:
    """Else `patch` leaves a copy of what it found elsewhere."""
    project = composed(name, tmp_path)
    assert problems((project / "template.yaml").read_text(), tmp_path, informational=False) == []
    assert not list(project.rglob("*.orig"))


def test_the_tools_own_tests_pass() -> None:
    quietly = ["-q", "-c", os.devnull, "--rootdir", ".", "-p", "no:cacheprovider"]
    run(sys.executable, "-m", "pytest", *quietly, cwd=EXAMPLES / TOOL, PYTHONDONTWRITEBYTECODE="1")


def test_their_types_agree(projects: Path) -> None:
    """As a user's own run of mypy would see them."""
    sources = [str(projects / name / "src") for name in NAMES]
    files = [str(path) for source in sources for path in sorted((projects / source).rglob("*.py"))]
    options = ["--config-file=", "--explicit-package-bases", f"--cache-dir={projects / '.mypy_cache'}"]
    run(
        *(sys.executable, "-m", "mypy", *options, *files, str(EXAMPLES / TOOL / f"{TOOL}.py")),
        cwd=projects,
        MYPYPATH=os.pathsep.join(sources),
    )


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_its_code_is_read_in_one_go(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= MOST_LINES
    assert text.startswith('"""'), "it says first what it does"
    assert not re.findall(r"(?i)\b(?:foo|bar|baz|spam|hello|my_?\w+|todo)\b", text)


def test_only_reserved_names_and_numbers_are_used() -> None:
    """example.com and 123456789012 belong to nobody."""
    for path in (each for each in EXAMPLES.rglob("*") if each.suffix in (".py", ".json", ".patch", ".md")):
        text = path.read_text()
        assert set(re.findall(r"\b\d{12}\b(?!\d)", text)) - {"123456789012"} <= set(re.findall(r"-(\d{12})\b", text))
        assert set(re.findall(r"[\w.]+@([\w.]+\w)", text)) <= {"example.com"}


def test_the_page_has_each_example_and_the_command_that_makes_it() -> None:
    rows = dict(re.findall(r"(?m)^\| \[(\w+)\]\([\w./]+\) \| .+ \| (?:`(.*)` )?\|$", README))
    assert rows == {**{name: " ".join(command_of(name)) for name in NAMES}, TOOL: ""}


def test_the_page_makes_a_project_as_these_tests_do() -> None:
    (typed,) = re.findall(r"(?ms)^```sh\n(.*?)^```$", README)
    first, second = typed.splitlines()
    assert first.split() == command_of("uploads")
    assert second == f'cp -R "$CHECKOUT/examples/uploads/." uploads && patch -d uploads -p1 -i {PATCH}'


@pytest.mark.parametrize("name", NAMES)
def test_it_repeats_nothing_that_its_command_writes(name: str) -> None:
    """Such a copy would drift."""
    written = made("plain")
    ours = {str(path.relative_to(EXAMPLES / name)) for path in (EXAMPLES / name).rglob("*") if path.is_file()}
    assert not {path for path in ours & {*written} if (EXAMPLES / name / path).read_text() == written[path]}
    own = {PATCH, "tests/test_handler.py", "events/order.json", "events/orders.json"}
    assert {path for path in ours - own if not path.startswith(f"src/{name}/")} == set()
