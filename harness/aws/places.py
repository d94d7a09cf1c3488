"""Where a trial runs: on AWS or on the local cloud. Everything it creates exists for the block only."""

from __future__ import annotations

import contextlib
import subprocess
from typing import TYPE_CHECKING, Any, Protocol

from botocore.exceptions import ClientError

from harness.aws import role
from harness.aws.update import update
from harness.beside import DEPLOY, deploy_beside, shared
from harness.caller import Account
from harness.cloud import ROOT, embedded_cloud
from harness.deploy import TEMPLATE, deploy
from harness.edits import edited, with_values
from harness.removal import delete_bucket, delete_stack, left_of
from harness.workload.deployment import EDITS, PARAMETERS
from harness.workload.driver import until
from idempotent_receiver.local.deployment import DeployError, describe_function

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from harness.aws.results import Results
    from harness.cloud import Cloud
    from idempotent_receiver.local.deployment import Clients

SAM = ROOT / ".tools" / "sam" / "bin" / "sam"
FOLDER = ROOT / ".build" / "aws"
PROOF = "receiver-proof-"
"""The prefix of every name created."""
VALUES = {"Timeout": 10, "VisibilityTimeout": 80}
"""The visibility timeout: a batch lost for lack of time comes back after it, within the round."""
FIFO = "-fifo"
"""The suffix of a trial's second stack."""
NONE = "DELETE_COMPLETE"
"""The status of a stack that does not exist."""
LISTED_SECONDS = 120.0
UPDATED_SECONDS = 900.0
"""The time for CloudFormation to finish an update in progress."""


class Place(Protocol):
    """An account, or a local cloud instead."""

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment variables that a program needs to find it."""

    def deploy(self, name: str, *edits: str, **parameters: str) -> None:
        """Deploy template.yaml with documented edits, or update it with other parameters."""

    def deploy_api(self, name: str) -> None:
        """Deploy the API of this stack next to it."""


class LocalCloud:
    def __init__(self, cloud: Cloud) -> None:
        self.clients = self._cloud = cloud
        self.environment = cloud.environment

    def deploy(self, name: str, *edits: str, **parameters: str) -> None:
        given = PARAMETERS | parameters
        if _status(self._cloud, name) != NONE:
            update(self._cloud, describe_function(self._cloud, name), **given)
        else:
            deploy(self._cloud, name=name, edits=(*EDITS, *edits), values=VALUES, parameters=given)

    def deploy_api(self, name: str) -> None:
        deploy_beside(self._cloud, describe_function(self._cloud, name), "api")


class Aws:
    """The account in the caller's environment. Code is uploaded to the bucket."""

    def __init__(self, region: str, bucket: str) -> None:
        self.clients = Account()
        self.environment = {"AWS_REGION": region, "AWS_DEFAULT_REGION": region}
        self._bucket = bucket

    def deploy(self, name: str, *edits: str, **parameters: str) -> None:
        text = with_values(edited(TEMPLATE.read_text(), *EDITS, *edits), **VALUES)
        # Next to the original, because of its relative paths.
        template = TEMPLATE.with_name(f".{name}.yaml")
        try:
            template.write_text(text)
            self._deploy(name, template, PARAMETERS | parameters)
        finally:
            template.unlink(missing_ok=True)

    def deploy_api(self, name: str) -> None:
        self._deploy(f"{name}-api", DEPLOY / "api.yaml", shared(describe_function(self.clients, name), "api"))

    def _deploy(self, name: str, template: Path, parameters: Mapping[str, str]) -> None:
        """`sam build` and `sam deploy`, without samconfig.toml, which is for permanent stacks."""
        given = ["--parameter-overrides", *(f"{key}={value}" for key, value in parameters.items())]
        FOLDER.mkdir(parents=True, exist_ok=True)
        (FOLDER / "samconfig.toml").write_text("version = 0.1\n")
        config, build = ["--config-file", str(FOLDER / "samconfig.toml")], FOLDER / "build"
        _sam("build", *config, "--template-file", str(template), "--build-dir", str(build), *given)
        where = ["--template-file", str(build / "template.yaml"), "--stack-name", name, "--s3-bucket", self._bucket]
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
        raise DeployError(f"`sam {arguments[0]}` failed; see its output above")


@contextlib.contextmanager
def on_local_cloud(name: str, results: Results) -> Iterator[Place]:
    with embedded_cloud() as cloud, _removed(cloud, name, results):
        yield LocalCloud(cloud)


@contextlib.contextmanager
def on_aws(name: str, region: str, results: Results) -> Iterator[Place]:
    bucket = f"{name}-code-{region}"
    place = Aws(region, bucket)
    with _removed(place.clients, name, results):
        elsewhere = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
        place.clients.client("s3").create_bucket(Bucket=bucket, **elsewhere)
        yield place


@contextlib.contextmanager
def _removed(clients: Clients, name: str, results: Results) -> Iterator[None]:
    """After the block, however it ends, remove everything with this name and report what remains."""
    try:
        yield
    finally:
        results.checks["removal"] = f"failed: it did not finish. {_remedy(name)}"
        left = list(_remove(clients, name))
        results.checks["removal"] = f"failed: left {', '.join(left)}. {_remedy(name)}" if left else "passed"


def _remedy(name: str) -> str:
    return f"`make aws REMOVE={name}` tries again"


def remove(name: str) -> list[str]:
    """Remove what a trial left in the account in the environment; returns what still remains."""
    return list(_remove(Account(), name))


def _remove(clients: Clients, name: str) -> Iterator[str]:
    """Remove everything, continuing after errors; yields what remains."""

    def removed(what: str, act: Callable[..., None], *arguments: Any) -> Iterator[str]:
        try:
            act(*arguments)
        except Exception as error:  # noqa: BLE001  # botocore raises RuntimeError for expired credentials
            yield f"perhaps {what}: {error}"

    found = list[str]()
    yield from removed(f"role {role.role_of(name)}", role.delete, clients, name)
    for stack in (f"{name}-api", f"{name}{FIFO}", name):
        yield from removed(f"stack {stack}", _delete, clients, stack)
    yield from removed(f"the buckets of {name}", _delete_buckets, clients, name)
    yield from removed(f"resources named {name}", lambda: found.extend(_listed(clients, name)))
    yield from found


def _delete(clients: Clients, stack: str) -> None:
    """Delete a stack, if it exists. CloudFormation refuses while an update is in progress."""

    def settled() -> bool:
        status = _status(clients, stack)
        return "UPDATE" not in status or not status.endswith("_IN_PROGRESS")

    until(settled, UPDATED_SECONDS, poll_seconds=2.0)
    if _status(clients, stack) != NONE:
        delete_stack(clients, stack)


def _status(clients: Clients, stack: str) -> str:
    try:
        (found,) = clients.client("cloudformation").describe_stacks(StackName=stack)["Stacks"]
    except ClientError as error:
        if "does not exist" in str(error):
            return NONE
        raise
    return str(found["StackStatus"])


def _delete_buckets(clients: Clients, name: str) -> None:
    s3 = clients.client("s3")
    for each in s3.list_buckets()["Buckets"]:
        if each["Name"].startswith(f"{name}-code-"):
            delete_bucket(s3, each["Name"])


def _listed(clients: Clients, name: str) -> list[str]:
    """What still has this name; deleted resources remain listed for up to a minute."""
    until(lambda: not list(left_of(clients, name)), LISTED_SECONDS)
    return list(left_of(clients, name))
