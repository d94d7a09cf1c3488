"""`make deploy` says what is missing to reach AWS before it builds, and finds what SAM would find."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from harness.cloud import ROOT

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE_SECONDS = 60

KEYS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret"}
CONFIGURED = "[profile books]\nregion = eu-west-1\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = secret\n"


def environment(home: Path, **given: str) -> dict[str, str]:
    """That of somebody without settings for AWS, and what is given."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "TMPDIR": str(home),
        "AWS_EC2_METADATA_DISABLED": "true",  # the machine of the tests may have a role
        **given,
    }


def asked(home: Path, samconfig: str = "", **given: str) -> subprocess.CompletedProcess[str]:
    """What is said of a region and credentials, under this samconfig for the environment `default`."""
    config = home / "samconfig.toml"
    config.write_text(f"[default.global.parameters]\nstack_name = 'a'\n{samconfig}\n")
    return subprocess.run(
        [ROOT / ".tools/sam/bin/python", "-m", "harness.sign_in", config, "default"],
        cwd=ROOT,
        env=environment(home, **given),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def deployed(home: Path, *said: str, **given: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "deploy", *said],
        cwd=ROOT,
        env=environment(home, **given),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


@pytest.mark.parametrize("workflow", ["", "WORKFLOW=1"])
def test_without_region_and_credentials_nothing_is_built(tmp_path: Path, workflow: str) -> None:
    told = deployed(tmp_path, *workflow.split())
    assert told.returncode != 0
    assert "No region: set AWS_REGION" in told.stderr
    assert "No credentials: run `aws configure`" in told.stderr
    assert "AWS_PROFILE" in told.stderr
    assert "sam build" not in told.stdout


@pytest.mark.parametrize(
    ("samconfig", "given"),
    [
        ("", {**KEYS, "AWS_DEFAULT_REGION": "us-east-1"}),
        ('region = "us-east-1"', KEYS),
        ('[default.deploy.parameters]\nregion = "us-east-1"', KEYS),
        ("", {"AWS_PROFILE": "books"}),
        ('profile = "books"', {}),
    ],
)
def test_it_is_found_where_sam_finds_it(tmp_path: Path, samconfig: str, given: dict[str, str]) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text(CONFIGURED)
    told = asked(tmp_path, samconfig, **given)
    assert (told.returncode, told.stderr) == (0, "")


def test_a_profile_that_is_not_there_is_named(tmp_path: Path) -> None:
    told = asked(tmp_path, 'profile = "nobody"', AWS_DEFAULT_REGION="us-east-1")
    assert told.returncode == 1
    assert "nobody" in told.stderr
    assert "AWS_PROFILE" in told.stderr
    assert "Traceback" not in told.stderr


def test_the_region_that_other_sdks_read_is_meant_for_sam_too(tmp_path: Path) -> None:
    """boto3 reads AWS_DEFAULT_REGION alone."""
    told = deployed(tmp_path, AWS_REGION="eu-west-1")
    assert "No credentials: " in told.stderr
    assert "No region: " not in told.stderr
