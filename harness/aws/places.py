"""Where a trial takes place: on AWS, or on the local cloud. A stack is there for the block, and nothing of it after.

Each yields the environment that a program needs to find it.
"""

from __future__ import annotations

import contextlib
import subprocess
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from harness.caller import Account
from harness.cloud import ROOT, embedded_cloud
from harness.deploy import deploy
from harness.removal import delete_bucket, delete_stack, left_of
from harness.workload.deployment import PARAMETERS
from harness.workload.driver import until
from idempotent_receiver.local.deployment import DeployError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from harness.aws.steps import Results
    from idempotent_receiver.local.deployment import Clients

SAM = ROOT / ".tools" / "sam" / "bin" / "sam"
FOLDER = ROOT / ".build" / "aws"
LISTED_SECONDS = 120.0


@contextlib.contextmanager
def on_local_cloud(name: str, results: Results) -> Iterator[Mapping[str, str]]:
    with embedded_cloud() as cloud, _removed(cloud, name, results):
        deploy(cloud, name=name, parameters=PARAMETERS)
        yield cloud.environment


@contextlib.contextmanager
def on_aws(name: str, region: str, results: Results) -> Iterator[Mapping[str, str]]:
    account, code = Account(), f"{name}-code-{region}"
    s3 = account.client("s3")
    with _removed(account, name, results):
        elsewhere = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
        s3.create_bucket(Bucket=code, **elsewhere)
        with contextlib.ExitStack() as cleared:
            cleared.callback(delete_bucket, s3, code)
            _deploy(name, code, PARAMETERS)
            yield {"AWS_REGION": region, "AWS_DEFAULT_REGION": region}


def _deploy(name: str, bucket: str, parameters: Mapping[str, str]) -> None:
    """`sam build` and `sam deploy`, without samconfig.toml, which is for stacks that stay."""
    given = ["--parameter-overrides", *(f"{key}={value}" for key, value in parameters.items())]
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "samconfig.toml").write_text("version = 0.1\n")
    config, build = ["--config-file", str(FOLDER / "samconfig.toml")], FOLDER / "build"
    _sam("build", *config, "--build-dir", str(build), *given)
    where = ["--template-file", str(build / "template.yaml"), "--stack-name", name, "--s3-bucket", bucket]
    quietly = [
        "--no-confirm-changeset",
        "--no-progressbar",
        "--capabilities",
        "CAPABILITY_IAM",
        "CAPABILITY_AUTO_EXPAND",
    ]
    _sam("deploy", *config, *where, *quietly, *given)


def _sam(*arguments: str) -> None:
    if subprocess.run([SAM, *arguments], cwd=ROOT, check=False).returncode:
        raise DeployError(f"`sam {arguments[0]}` failed; it says above why")


@contextlib.contextmanager
def _removed(clients: Clients, name: str, results: Results) -> Iterator[None]:
    """Remove the stack of this name after the block, however it ends, and say what is left all the same."""
    try:
        yield
    finally:
        left = []
        try:
            with contextlib.suppress(ClientError):  # there is none, if it was not made
                delete_stack(clients, name)
        except BotoCoreError as error:
            left += [f"stack {name}: {error}"]
        try:
            # What was deleted is listed for up to a minute.
            until(lambda: not list(left_of(clients, name)), LISTED_SECONDS)
            left += left_of(clients, name)
        except (BotoCoreError, ClientError) as error:
            left += [f"perhaps what is named {name}: {error}"]
        results.checks["removal"] = f"failed: left {', '.join(left)}" if left else "passed"
