"""Checks before a build, rather than after it, whether `sam deploy` will find a region and credentials.

SAM's own Python runs it, so that it looks where SAM would: samconfig's region and profile for the environment, then the
caller's environment and files. It does not call AWS.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import boto3
from botocore.exceptions import BotoCoreError

REGION = "No region: set AWS_REGION, name a profile that has one with AWS_PROFILE, or run `aws configure`."
CREDENTIALS = (
    "No credentials: run `aws configure` (or `aws sso login`), or name a profile that has them with AWS_PROFILE."
)


def missing(profile: str | None, region: str | None) -> list[str]:
    """Return messages about a missing region or missing credentials."""
    try:
        session = boto3.Session(profile_name=profile, region_name=region)
        found = {REGION: session.region_name, CREDENTIALS: session.get_credentials()}
    except BotoCoreError as error:
        return [f"No credentials: {error}. Name an existing profile with AWS_PROFILE, or run `aws configure`."]
    except (OSError, ValueError) as error:  # botocore passes these on
        return [f"No credentials: the profile's credential_process could not be run or understood: {error}."]
    return [remedy for remedy, value in found.items() if not value]


def main(samconfig: str, environment: str) -> int:
    tables = tomllib.loads(Path(samconfig).read_text())[environment]
    # `sam deploy` uses the settings of all commands there, overridden by its own.
    said = {**tables.get("global", {}).get("parameters", {}), **tables.get("deploy", {}).get("parameters", {})}
    remedies = missing(said.get("profile"), said.get("region"))
    sys.stderr.writelines(f"{remedy}\n" for remedy in remedies)
    return 1 if remedies else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
