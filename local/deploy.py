"""Put template.yaml onto a local cloud, with the function's code from a folder.

The template goes as it stands, but each CodeUri is made to point at the uploaded code, as `sam deploy` does.
"""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from botocore.exceptions import WaiterError

from local.cloud import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from local.caller import Account
    from local.cloud import Cloud

TEMPLATE = ROOT / "template.yaml"
HOST_BUILD = ROOT / ".build" / "host"

CODE_BUCKET = "code"
PACE = {"Delay": 0.05, "MaxAttempts": 1_200}

# On Lambda the runtime brings the SDK; here the local cloud's interpreter does. Each start of a function unpacks its
# code anew, and the SDK would be by far the largest part of it.
SDK_FOLDERS = frozenset({"boto3", "botocore", "s3transfer", "urllib3", "dateutil"})


class DeployError(Exception):
    """The stack could not be made; the message says which resource failed and why."""


@dataclass(frozen=True)
class Stack:
    """A deployed stack: what the template's logical ids and outputs have become."""

    name: str
    outputs: Mapping[str, str]
    resources: Mapping[str, str]
    """Physical ids by logical id: `stack.resources["Accounts"]` is a table's name."""
    parameters: Mapping[str, str] = field(default_factory=dict)


def deploy(
    cloud: Cloud,
    *,
    name: str = "receiver",
    code: Path = HOST_BUILD,
    overlay: Mapping[str, bytes] | None = None,
    template: str | None = None,
    parameters: Mapping[str, str] | None = None,
) -> Stack:
    """Deploy template.yaml with the code in this folder, and return once everything in it is made.

    `overlay` has files, by their path in the folder, that are put in place of the folder's or beside them.
    `Architecture` is left alone: the local cloud runs the code on this machine, whatever the template says of it.
    """
    text = TEMPLATE.read_text() if template is None else template
    stack = create(cloud, name, pointing_at(text, upload(cloud, code, overlay)), parameters or {})
    # CloudFormation does this on AWS; the local cloud passes over a table's TimeToLiveSpecification.
    cloud.client("dynamodb").update_time_to_live(
        TableName=stack.resources["Records"],
        TimeToLiveSpecification={"Enabled": True, "AttributeName": "expiration"},
    )
    _limit_concurrency(cloud, stack)
    return stack


def create(cloud: Cloud, name: str, template: str, parameters: Mapping[str, str]) -> Stack:
    """Create a stack, and return once everything in it is made. Raises DeployError where something is not."""
    formation = cloud.client("cloudformation")
    formation.create_stack(
        StackName=name,
        TemplateBody=template,
        Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()],
        Capabilities=["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"],
    )
    try:
        formation.get_waiter("stack_create_complete").wait(StackName=name, WaiterConfig=PACE)
    except WaiterError as error:
        raise DeployError(f"stack {name} was not made: {error}: {_failures(cloud, name)}") from error
    return describe(cloud, name)


def pointing_at(template: str, code_uri: str) -> str:
    """Return the template with each CodeUri replaced, for all functions share their code, and no other byte changed."""
    packaged, replaced = re.subn(r"(?m)^(\s+CodeUri: ).*$", rf"\g<1>{code_uri}", template)
    if replaced == 0:
        raise DeployError("a template with functions was expected, and this one has no CodeUri")
    return packaged


def upload(cloud: Cloud, code: Path, overlay: Mapping[str, bytes] | None = None) -> str:
    """Zip the folder and store it under its content's hash; return its S3 address."""
    if not code.is_dir():
        raise DeployError(f"there is no built function at {code}: run `make build`")
    body = zipped(code, overlay)
    key = f"{hashlib.sha256(body).hexdigest()}.zip"
    cloud.client("s3").create_bucket(Bucket=CODE_BUCKET)
    cloud.client("s3").put_object(Bucket=CODE_BUCKET, Key=key, Body=body)
    return f"s3://{CODE_BUCKET}/{key}"


def zipped(code: Path, overlay: Mapping[str, bytes] | None = None) -> bytes:
    """Return the folder's files, without the SDK, as a zip that is the same for the same content."""
    overlay = overlay or {}
    files = dict(overlay)
    for path in sorted(code.rglob("*")):
        relative = path.relative_to(code)
        if path.is_file() and relative.parts[0] not in SDK_FOLDERS and str(_source(relative)) not in overlay:
            files[str(relative)] = path.read_bytes()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name), content)
    return buffer.getvalue()


def _source(path: Path) -> Path:
    """A bytecode file's source, which it would hide, because that bytecode is trusted; other files are their own."""
    if path.suffix != ".pyc":
        return path
    return path.parent.parent / f"{path.name.partition('.')[0]}.py"


def describe(cloud: Cloud | Account, name: str) -> Stack:
    (found,) = cloud.client("cloudformation").describe_stacks(StackName=name)["Stacks"]
    resources = cloud.client("cloudformation").describe_stack_resources(StackName=name)["StackResources"]
    return Stack(
        name=name,
        outputs={output["OutputKey"]: output["OutputValue"] for output in found.get("Outputs", [])},
        resources={each["LogicalResourceId"]: each["PhysicalResourceId"] for each in resources},
        parameters={each["ParameterKey"]: each.get("ParameterValue", "") for each in found.get("Parameters", [])},
    )


def _failures(cloud: Cloud, name: str) -> str:
    events = cloud.client("cloudformation").describe_stack_events(StackName=name)["StackEvents"]
    reasons = [
        f"{event.get('LogicalResourceId')}: {event['ResourceStatusReason']}"
        for event in events
        if "FAILED" in event.get("ResourceStatus", "") and "ResourceStatusReason" in event
    ]
    return "; ".join(reasons) or "no event says why"


def _limit_concurrency(cloud: Cloud, stack: Stack) -> None:
    # The local cloud keeps the template's parameter as text, and then fails to compare it with a number: it would never
    # poll the queue.
    mapping, functions = stack.resources["ConsumerMessages"], cloud.client("lambda")
    scaling = functions.get_event_source_mapping(UUID=mapping).get("ScalingConfig", {})
    if "MaximumConcurrency" in scaling:  # another cloud may have none
        most = int(scaling["MaximumConcurrency"])
        functions.update_event_source_mapping(UUID=mapping, ScalingConfig={"MaximumConcurrency": most})
