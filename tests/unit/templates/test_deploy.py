"""`make deploy` is SAM's own two commands; and `sam build` builds for what the template states."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING

import pytest

from harness.cloud import ROOT
from harness.edits import edited, with_values
from tests.e2e.making import ENVIRONMENT, run
from tests.starter import made
from tests.template import TEMPLATE, load

if TYPE_CHECKING:
    from pathlib import Path

CHOSEN = ("RUNTIME", "ARCHITECTURE", "PLATFORM", "BUILD_FOR", "API", "WORKFLOW", "ENV")
SET_UP = [f"--assume-old={name}/.complete" for name in (".venv", ".tools/sam", ".tools/uv")]
ANOTHER = "Another runtime or architecture"
STACKS = {
    "samconfig.toml": TEMPLATE,
    "deploy/api.samconfig.toml": ROOT / "deploy/api.yaml",
    "deploy/workflow.samconfig.toml": ROOT / "deploy/workflow.yaml",
}


def dry_run(*words: str, folder: Path = ROOT, status: int = 0) -> str:
    """What make would run and say."""
    environment = {name: value for name, value in ENVIRONMENT.items() if name not in CHOSEN}
    done = run("make", "--dry-run", *SET_UP, *words, cwd=folder, env=environment, status=status)
    return done.stdout + done.stderr


@pytest.mark.parametrize("said", [[], ["ENV=prod"]], ids=["default", "prod"])
def test_make_deploy_checks_that_you_are_signed_in_builds_and_deploys_and_that_is_all(said: list[str]) -> None:
    environment = "prod" if said else "default"
    config = f"--config-file {ROOT}/samconfig.toml --config-env {environment}"
    assert commands(dry_run("deploy", *said)) == [
        f".tools/sam/bin/python -m harness.sign_in samconfig.toml {environment}",
        f".tools/sam/bin/sam build {config}",
        f".tools/sam/bin/sam deploy {config}",
    ]


@pytest.mark.parametrize(("said", "what"), [("API=1", "api"), ("WORKFLOW=1", "workflow")])
def test_beside_the_consumer_it_also_asks_what_they_share(said: str, what: str) -> None:
    config = f"--config-file {ROOT}/deploy/{what}.samconfig.toml --config-env staging"
    assert commands(dry_run("deploy", said, "ENV=staging")) == [
        f".tools/sam/bin/python -m harness.sign_in deploy/{what}.samconfig.toml staging",
        f"parameters=$(.venv/bin/python -m harness.beside {what} staging) && \\",
        f".tools/sam/bin/sam build {config} && \\",
        f".tools/sam/bin/sam deploy {config} --parameter-overrides $parameters",
    ]


def commands(shown: str) -> list[str]:
    return [line.strip() for line in shown.splitlines() if not line.strip().startswith("#")]


@pytest.mark.parametrize("said", [[], ["API=1"], ["WORKFLOW=1"]], ids=lambda said: said[0] if said else "")
def test_an_environment_that_samconfig_does_not_have_is_refused_before_anything_is_built(said: list[str]) -> None:
    shown = dry_run("deploy", "ENV=nowhere", *said, status=2)
    assert "sam build" not in shown
    assert "has no table nowhere: ENV is one of default staging prod" in shown


@pytest.mark.parametrize("environment", ["default", "staging", "prod"])
@pytest.mark.parametrize("file", STACKS)
def test_samconfigs_settings_are_parameters_of_the_template_that_is_built(file: str, environment: str) -> None:
    tables = tomllib.loads((ROOT / file).read_text())[environment]
    set_here = [each.partition("=")[0] for each in tables["deploy"]["parameters"]["parameter_overrides"]]
    assert set(set_here) <= load(STACKS[file])["Parameters"].keys()
    assert ROOT / tables.get("build", {}).get("parameters", {}).get("template_file", "template.yaml") == STACKS[file]


@pytest.mark.parametrize("path", STACKS.values(), ids=lambda path: path.stem)
def test_every_function_is_built_by_the_makefile_wherever_its_template_is(path: Path) -> None:
    resources = load(path)["Resources"].values()
    built = [each["Metadata"] for each in resources if each["Type"] == "AWS::Serverless::Function"]
    assert built
    for metadata in built:
        assert metadata["BuildMethod"] == "makefile"
        assert {(path.parent / metadata[name]).resolve() for name in ("ContextPath", "WorkingDirectory")} == {ROOT}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder that builds as this one does, for other platforms."""
    for name in ("Makefile", ".tools", "tools", "pyproject.toml", "uv.lock", "src"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "template.yaml").write_text(edited(TEMPLATE.read_text(), ANOTHER))
    (tmp_path / "deploy").mkdir()
    for name, values in {"api": {"Runtime": "python3.14"}, "workflow": {"Architectures": "[x86_64]"}}.items():
        text = (ROOT / f"deploy/{name}.yaml").read_text()
        (tmp_path / f"deploy/{name}.yaml").write_text(with_values(text, **values))
    return tmp_path


def test_what_each_template_states_is_what_its_functions_are_built_for(checkout: Path) -> None:
    """One place says it: a built template does not keep what `sam build` was told."""
    stated = {
        f"build-{name}": platform
        for path, platform in zip(
            STACKS.values(), ("python3.14-x86_64", "python3.14-arm64", "python3.13-x86_64"), strict=True
        )
        for name, each in load(path)["Resources"].items()
        if each["Type"] == "AWS::Serverless::Function"
    }
    shown = dry_run(*stated, "ARTIFACTS_DIR=out", "MAKE=true", folder=checkout)
    assert {target: platform for platform, target in re.findall(r"(?m)PLATFORM=(\S+) (\S+)$", shown)} == stated


def test_packages_are_those_of_the_runtime_and_architecture(checkout: Path) -> None:
    shown = dry_run("build-Consumer", "ARTIFACTS_DIR=out", folder=checkout)
    assert "--python-version 3.14 --python-platform x86_64-manylinux_2_28 --only-binary :all:" in shown
    assert 'echo python3.14-x86_64 > "out/app/built-for"' in shown, "which it compares when it starts"


def test_a_build_for_this_machine_is_for_no_runtime_of_lambdas(checkout: Path) -> None:
    shown = dry_run("build-Consumer", "ARTIFACTS_DIR=out", "BUILD_FOR=host", folder=checkout)
    assert "PLATFORM=host build-Consumer" in shown
    assert not re.search("--python-platform|built-for", shown)


def test_a_runtime_that_cannot_be_built_is_named_with_those_that_can(checkout: Path) -> None:
    text = with_values(TEMPLATE.read_text(), Runtime="python3.9")
    (checkout / "template.yaml").write_text(text)
    shown = dry_run("build-Consumer", "ARTIFACTS_DIR=out", folder=checkout, status=2)
    assert "There is no build for python3.9-arm64: runtime and architecture together are one of python3.13" in shown


@pytest.mark.parametrize(("edits", "version", "machine"), [((), 13, "aarch64"), ((ANOTHER,), 14, "x86_64")])
def test_a_starter_too_is_built_for_what_its_template_states(
    tmp_path: Path, edits: tuple[str, ...], version: int, machine: str
) -> None:
    files = made("plain")
    (tmp_path / "Makefile").write_text(files["Makefile"])
    (tmp_path / "template.yaml").write_text(edited(files["template.yaml"], *edits))
    shown = dry_run("build-Consumer", "ARTIFACTS_DIR=out", folder=tmp_path)
    assert f"--only-binary=:all: --python-version 3.{version} --platform manylinux_2_28_{machine} " in shown
    assert '--target "out" -r requirements.txt' in shown
    here = dry_run("build-Consumer", "ARTIFACTS_DIR=out", "BUILD_FOR=host", folder=tmp_path)
    assert "--platform" not in here


def test_a_starters_make_deploy_is_sams_own_two_commands(tmp_path: Path) -> None:
    for name in ("Makefile", "template.yaml"):
        (tmp_path / name).write_text(made("plain")[name])
    (tmp_path / ".tools/sam").mkdir(parents=True)
    (tmp_path / ".tools/sam/.complete").touch()
    sam = ".tools/sam/bin/python -m samcli"
    assert commands(dry_run("deploy", folder=tmp_path)) == [f"{sam} build", f"{sam} deploy"]
