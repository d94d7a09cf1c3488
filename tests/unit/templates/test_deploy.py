"""What `make deploy` hands to SAM: samconfig's parameters, and what a function runs on."""

from __future__ import annotations

import os
import subprocess
import tomllib
from typing import TYPE_CHECKING

import pytest

from harness.cloud import ROOT
from tests.template import TEMPLATE, load

if TYPE_CHECKING:
    from pathlib import Path

ON = ["Runtime=python3.13", "Architecture=arm64"]
"""What functions run on by default, as a deployment is told."""
ON_X86 = ["Runtime=python3.13", "Architecture=x86_64"]


def dry_run(said: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    chosen = ("MAKEFLAGS", "RUNTIME", "ARCHITECTURE", "WORKFLOW")
    environment = {name: value for name, value in os.environ.items() if name not in chosen}
    asked = ["make", "--dry-run", "deploy", *said.split()]
    return subprocess.run(asked, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def told(said: str = "", folder: Path = ROOT) -> tuple[list[str], list[str]]:
    """The parameters that `make deploy` would hand to `sam build` and to `sam deploy`."""
    lines = dry_run(said, folder).stdout.splitlines()
    (build,), (deploy,) = ([line for line in lines if command in line] for command in ("sam build", "sam deploy"))
    built, deployed = (
        line.partition("--parameter-overrides ")[2].removesuffix(" && \\").split() for line in (build, deploy)
    )
    return built, deployed


@pytest.mark.parametrize(
    ("said", "passed"),
    [
        ("", ["LogRetentionDays=7", *ON]),
        ("RUNTIME=python3.14", ["LogRetentionDays=7", "Runtime=python3.14", "Architecture=arm64"]),
        ("ARCHITECTURE=arm64 ENV=prod", ["LogRetentionDays=90", "MaximumConcurrency=50", *ON]),
        ("WORKFLOW=1 ARCHITECTURE=x86_64", ["LogRetentionDays=7", *ON_X86, "$consumers"]),
    ],
)
def test_a_deployments_parameters_are_added_to_samconfigs(said: str, passed: list[str]) -> None:
    """On their own they would replace them. It is built as it is deployed."""
    assert told(said) == ([each for each in passed if each != "$consumers"], passed)


@pytest.mark.parametrize("before_it", ["", "[default.deploy.parameters]\n"], ids=["for all", "for deploy alone"])
def test_what_samconfig_says_a_function_runs_on_is_built_and_deployed(tmp_path: Path, before_it: str) -> None:
    for name in ("Makefile", ".tools", "tools"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "samconfig.toml").write_text(
        f'[default.global.parameters]\n{before_it}parameter_overrides = "Architecture=x86_64 Fifo=true"\n'
    )
    assert told(folder=tmp_path) == (["Fifo=true", *ON_X86], ["Fifo=true", *ON_X86])


@pytest.mark.parametrize("environment", ["default", "staging", "prod"])
@pytest.mark.parametrize("file", ["samconfig.toml", "deploy/samconfig.toml"])
def test_every_environment_names_the_same_runtime_for_build_and_deployment(file: str, environment: str) -> None:
    """A parameter that a deployment omits keeps its old value, whatever was built."""
    tables = tomllib.loads((ROOT / file).read_text())[environment]
    assert set(ON) <= set(tables["global"]["parameters"]["parameter_overrides"])
    others = [each["parameters"] for name, each in tables.items() if not name.startswith(("global", "local_"))]
    assert not [each for each in others if "parameter_overrides" in each]


@pytest.mark.parametrize("path", [TEMPLATE, ROOT / "deploy/workflow.yaml"], ids=lambda path: path.stem)
def test_every_runtime_and_architecture_has_its_makefile(path: Path) -> None:
    """SAM passes a makefile none of a function's parameters; it only chooses the Makefile."""
    template = load(path)
    parameters = template["Parameters"]
    for function in (each for each in template["Resources"].values() if each["Type"] == "AWS::Serverless::Function"):
        folder, *chosen = function["Metadata"]["ContextPath"]["Fn::Sub"].partition("${")
        assert (path.parent / folder).resolve() == ROOT / "platforms"
        assert "".join(chosen) == "${Runtime}-${Architecture}"
    assert {each.parent.name for each in (ROOT / "platforms").glob("*/Makefile")} == {
        f"{runtime}-{architecture}"
        for runtime in parameters["Runtime"]["AllowedValues"]
        for architecture in parameters["Architecture"]["AllowedValues"]
    }
    assert [f"{name}={parameters[name]['Default']}" for name in ("Runtime", "Architecture")] == ON


@pytest.mark.parametrize("workflow", ["", "WORKFLOW=1"])
def test_an_environment_that_samconfig_does_not_have_is_refused_before_anything_is_built(workflow: str) -> None:
    done = dry_run(f"ENV=nowhere {workflow}")
    assert (done.returncode != 0, "sam build" in done.stdout) == (True, False)
    assert "has no table nowhere: ENV is one of default staging prod" in done.stderr
