"""Checks, before a build instead of after it, whether `sam deploy` will find a region and credentials.

SAM's own Python runs it, so that it looks where SAM would look: samconfig's region and profile for the environment,
then the caller's environment and files. It does not ask AWS.
"""

from __future__ import annotations

import signal
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import boto3
from botocore.exceptions import BotoCoreError

if TYPE_CHECKING:
    from types import FrameType

PATIENCE_SECONDS = 60
"""How long a program or a service that hands out credentials may take."""

REGION = "No region: set AWS_REGION, name a profile that has one with AWS_PROFILE, or run `aws configure`."
CREDENTIALS = (
    "No credentials: run `aws configure` (or `aws sso login`), or name a profile that has them with AWS_PROFILE."
)


def missing(profile: str | None, region: str | None) -> list[str]:
    """Return what to say about a region and credentials that are missing."""
    try:
        session = boto3.Session(profile_name=profile, region_name=region)
        found = {REGION: session.region_name, CREDENTIALS: session.get_credentials()}
    except BotoCoreError as error:
        return [f"No credentials: {error}. Name a profile that is there with AWS_PROFILE, or run `aws configure`."]
    except (OSError, ValueError) as error:  # botocore passes these on
        return [f"No credentials: the profile's credential_process could not be run or understood: {error}."]
    return [remedy for remedy, value in found.items() if not value]


def settings(samconfig: Path, environment: str) -> dict[str, Any]:
    """Return what `sam deploy` takes from samconfig: the settings of all commands, overridden by its own."""
    tables = tomllib.loads(samconfig.read_text())[environment]
    return {
        name: value
        for table in ("global", "deploy")
        for name, value in tables.get(table, {}).get("parameters", {}).items()
    }


def main(samconfig: str, environment: str) -> int:
    said = settings(Path(samconfig), environment)
    signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(PATIENCE_SECONDS)
    remedies = missing(said.get("profile"), said.get("region"))
    print(*remedies, sep="\n", end="\n" if remedies else "", file=sys.stderr)
    return 1 if remedies else 0


def _give_up(_number: int, _frame: FrameType | None) -> NoReturn:
    print(f"Nobody handed out credentials within {PATIENCE_SECONDS} seconds. {CREDENTIALS}", file=sys.stderr)
    sys.exit(1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
