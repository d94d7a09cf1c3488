"""The package as users get it: what is in the wheel, and that pip installs it alone."""

from __future__ import annotations

import json
import re
import sys
import tomllib
import zipfile
from dataclasses import dataclass
from email import message_from_bytes
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from harness.cloud import ROOT
from tests.e2e.making import interpreter, library_files, run

if TYPE_CHECKING:
    from email.message import Message

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSIONS = [line.split(" :: ")[-1] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
HOME_PAGE = "https://example.com/receiver"
DOCUMENTATION = f"{HOME_PAGE}/tree/v{PROJECT['version']}/docs"
EXTRAS_ONLY = ["greenlet", "ministack", "pytest", "rich", "samtranslator", "typer"]
"""What comes with an extra, and with nothing else."""

PIP = (ROOT / ".tools/uv/bin/python", "-m", "pip")


@dataclass(frozen=True)
class Dist:
    folder: Path
    wheel: Path
    sdist: Path


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Dist:
    """What the release workflow builds. twine refuses a README that PyPI cannot render."""
    folder = tmp_path_factory.mktemp("package") / "a dist"
    made = run("make", "--silent", "dist", f"DIST={folder}", f"HOME_PAGE={HOME_PAGE}")
    assert made.stdout.count("PASSED") == 2
    wheel, sdist = sorted(folder.iterdir(), key=lambda path: path.suffix, reverse=True)
    return Dist(folder, wheel, sdist)


@pytest.fixture(scope="session")
def metadata(dist: Dist) -> Message:
    with zipfile.ZipFile(dist.wheel) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_bytes(wheel.read(name))


def install(python: str, folder: Path, wanted: str) -> Path:
    """The interpreter of a new environment, in which pip has installed nothing else."""
    run(python, "-m", "venv", "--without-pip", folder)
    run(*PIP, "--python", folder / "bin" / "python", "install", "--quiet", "--no-compile", wanted)
    return folder / "bin" / "python"


@pytest.fixture(scope="session", params=VERSIONS)
def alone(request: pytest.FixtureRequest, dist: Dist, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment without an extra."""
    python = interpreter(f"python{request.param}")
    if python is None:
        pytest.skip(f"no Python {request.param} runs here: nothing was installed for it")
    return install(python, tmp_path_factory.mktemp("alone") / "venv", str(dist.wheel))


def test_the_wheel_is_the_library_and_nothing_else(dist: Dist) -> None:
    """No file of the example or the tests, and every file of the library, `py.typed` among them."""
    with zipfile.ZipFile(dist.wheel) as wheel:
        names = {name for name in wheel.namelist() if not name.endswith("/")}
    about = {name for name in names if name.split("/")[0].endswith(".dist-info")}
    assert names - about == library_files(ROOT / "src")
    assert "idempotent_receiver/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in about)


def test_the_sdist_builds_the_same_wheel(dist: Dist, tmp_path: Path) -> None:
    """By pip, which fetches the build backend as users' machines do. Only the backend's own version may differ."""
    run(*PIP, "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, dist.sdist)
    (again,) = tmp_path.glob("*.whl")
    assert again.name == dist.wheel.name
    assert contents(again) == contents(dist.wheel)


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as unpacked:
        names = [name for name in unpacked.namelist() if not name.endswith((".dist-info/WHEEL", ".dist-info/RECORD"))]
        return {name: unpacked.read(name) for name in names}


def test_pypi_knows_every_classifier(metadata: Message) -> None:
    """PyPI refuses an upload with one that it does not know, and twine does not check them."""
    known = run(ROOT / ".tools/publish/bin/python", "-m", "trove_classifiers").stdout.splitlines()
    told = metadata.get_all("Classifier", [])
    assert told
    assert set(told) <= set(known)


def test_links_in_pypis_copy_of_the_readme_are_absolute(metadata: Message) -> None:
    """A relative link or image leads nowhere there; each is the repository's, at the tag of this version."""
    page = metadata.get_payload()
    links = re.findall(r"\]\(([^)\s]+)\)|(?:href|src)=\"([^\"]+)\"", str(page))
    targets = ["".join(each) for each in links]
    assert f"{HOME_PAGE}/blob/v{PROJECT['version']}/LICENSE" in targets
    assert [target for target in targets if not target.startswith("https://")] == []
    assert metadata.get_all("Project-URL") == [
        f"Documentation, {DOCUMENTATION}",
        f"Repository, {HOME_PAGE}",
    ]


def test_the_public_checks_run_on_every_python_that_the_package_names() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    (job,) = workflow["jobs"].values()
    assert job["strategy"]["matrix"]["python"] == VERSIONS
    assert job["steps"][-1] == {"run": ".ci/run", "env": {"PYTHON": "python${{ matrix.python }}"}}
    assert PROJECT["requires-python"] == f">={VERSIONS[0]}"


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a user writes who has installed the package alone."""
    path = tmp_path_factory.mktemp("program") / "program.py"
    path.write_text(PROGRAM)
    return path


PROGRAM = """
from idempotent_receiver import MemoryStore, Message, Transaction, sqs_consumer
from pydantic import BaseModel


class Transfer(BaseModel):
    transfer_id: str


store = MemoryStore(tables={"transfers": "transfer_id"})


@sqs_consumer(store)
def lambda_handler(transfer: Transfer, message: Message, tx: Transaction) -> None:
    tx.put(TableName="transfers", Item={"transfer_id": transfer.transfer_id, "attempt": message.attempt})
"""

TWICE = f"""
import importlib.util
import sys
import idempotent_receiver

for name in idempotent_receiver.__all__:
    getattr(idempotent_receiver, name)
assert [each for each in {EXTRAS_ONLY} if importlib.util.find_spec(each)] == []
sys.path.append(sys.argv[1])
import program


class Context:
    aws_request_id, function_name = "1", "alone"
    get_remaining_time_in_millis = staticmethod(lambda: 60_000)


event = {{"Records": [{{"messageId": "m-1", "body": '{{"transfer_id": "t-1"}}'}}]}}
answers = [program.lambda_handler(event, Context()) for _ in range(2)]
assert answers == [{{"batchItemFailures": []}}] * 2, answers
print(len(program.store.tables["transfers"].items), "transfer")
"""


def test_it_installs_alone_and_needs_no_extra(alone: Path, program: Path, tmp_path: Path) -> None:
    """Every public name is there without the extras, and a message that is delivered twice takes effect once."""
    done = run(alone, "-I", "-c", TWICE, program.parent, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "1 transfer"


def test_without_its_extra_the_command_says_which_to_install(alone: Path, tmp_path: Path) -> None:
    for command in ([alone.parent / "receiver"], [alone, "-m", "idempotent_receiver"]):
        done = run(*command, "--version", cwd=tmp_path, status=2)
        assert done.stdout == ""
        assert "pip install 'idempotent-receiver[cli]'" in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_with_its_extra_the_command_runs(dist: Dist, tmp_path: Path) -> None:
    extras = install(sys.executable, tmp_path / "venv", f"{dist.wheel}[cli,testing]")
    for command in ([extras.parent / "receiver"], [extras, "-m", "idempotent_receiver"]):
        assert run(*command, "--version", cwd=tmp_path).stdout == f"receiver {PROJECT['version']}\n"
        assert f"Documentation: {DOCUMENTATION}" in run(*command, "--help", cwd=tmp_path).stdout
    assert "redrive" in run(extras.parent / "receiver", "dlq", "--help", cwd=tmp_path).stdout


def test_the_extras_can_be_installed_together(dist: Dist, tmp_path: Path) -> None:
    """Ministack pins botocore, and what expands SAM's resources keeps pydantic back: there are versions for all."""
    report, every = tmp_path / "report.json", ",".join(PROJECT["optional-dependencies"])
    run(*PIP, "install", "--quiet", "--dry-run", "--ignore-installed", "--report", report, f"{dist.wheel}[{every}]")
    chosen = {each["metadata"]["name"].lower() for each in json.loads(report.read_text())["install"]}
    assert chosen >= {"ministack", "aws-sam-translator", "typer", "rich", "greenlet", "pytest"}


def test_a_users_program_is_checked_against_the_wheels_types(alone: Path, program: Path, tmp_path: Path) -> None:
    """By mypy --strict, which takes no types from a package without `py.typed`."""
    mypy = (sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={tmp_path}")
    run(*mypy, "--python-executable", alone, program, cwd=program.parent)
    wrong = tmp_path / "wrong.py"
    wrong.write_text(PROGRAM.replace("sqs_consumer(store)", 'sqs_consumer(store, concurrency="two")'))
    refused = run(*mypy, "--python-executable", alone, wrong, cwd=tmp_path, status=1)
    assert re.search(r'"concurrency".* has incompatible type "str"; expected "int"', refused.stdout), refused.stdout
