"""Whether `sam deploy` will know which region and whose credentials, asked before a build instead of after it.

Run by SAM's own Python, so that it finds what SAM finds, where SAM would look: samconfig's region and profile for the
environment, then the caller's environment and files. AWS itself is not asked.
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
"""For a program or a service that hands out credentials."""

REGION = "No region: set AWS_REGION, name a profile that has one with AWS_PROFILE, or run `aws configure`."
CREDENTIALS = (
    "No credentials: run `aws configure` (or `aws sso login`), or name a profile that has them with AWS_PROFILE."
)


def missing(profile: str | None, region: str | None) -> list[str]:
    """Return what there is to say about a region and credentials that are not to be found."""
    try:
        session = boto3.Session(profile_name=profile, region_name=region)
        found = {REGION: session.region_name, CREDENTIALS: session.get_credentials()}
    except BotoCoreError as error:
        return [f"No credentials: {error}. Name a profile that is there with AWS_PROFILE, or run `aws configure`."]
    except (OSError, ValueError) as error:  # botocore passes these on
        return [f"No credentials: the profile's credential_process could not be run or understood: {error}."]
    return [remedy for remedy, value in found.items() if not value]


def settings(samconfig: Path, environment: str) -> dict[str, Any]:
    """Return what `sam deploy` takes from samconfig: what is said for all commands, and over it what is said for it."""
    tables = tomllib.loads(samconfig.read_text())[environment]
    return {
        name: value
        for table in ("global", "deploy")
        for name, value in tables.get(table, {}).get("parameters", {}).items()
    }


def main(samconfig: str, environment: str) -> int:
    """Say what is missing, if anything is; return the exit status."""
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
