"""Templates and code onto a local cloud, as `sam deploy` would put them: packaged, created, described.

A template goes as it stands, but each path in it becomes the address of what was uploaded from there, and the alarm on
arrivals of dead letters is off.
"""

import hashlib
import io
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from botocore.exceptions import WaiterError

CODE_BUCKET = "code"
PACE = {"Delay": 0.05, "MaxAttempts": 1_200}

# On Lambda the runtime brings the SDK; here the local cloud's interpreter does. Each start of a function unpacks its
# code anew, and the SDK would be by far the largest part of it.
SDK_FOLDERS = frozenset({"boto3", "botocore", "s3transfer", "urllib3", "dateutil"})

LOCAL_PATH = re.compile(
    r"""(?mx) ^ (?P<before> \s+ (?P<property> CodeUri | DefinitionUri | DefinitionS3Location | TemplateURL ) : \s* )
    (?P<quote> ["']? ) (?! \w+:// ) (?P<path> [^\s"'!{&*|>\#] [^"'\n\#]*? ) (?P=quote) (?P<after> \s* (\#.*)? ) $"""
)

ARRIVALS = re.compile(r"(?m)^(  DeadLetterArrivals:\n(?:    .*\n)*?    Default: )'true'$")
NO_ARRIVALS = (
    "DeadLetterArrivals is false: this cloud refuses metric math, so no alarm tells of each dead letter's arrival"
)


class DeployError(Exception):
    """The stack could not be made; the message says which resource failed and why."""


class Clients(Protocol):
    """Whatever has the clients of an account: a local cloud, or AWS itself."""

    def client(self, service: Any) -> Any:
        """The client of a service."""


class LocalClients(Clients, Protocol):
    """The clients of a local cloud."""

    @property
    def endpoint_url(self) -> str:
        """Where it listens."""


@dataclass(frozen=True)
class Stack:
    """A deployed stack: what the template's logical ids and outputs have become."""

    name: str
    outputs: Mapping[str, str]
    resources: Mapping[str, str]
    """Physical ids by logical id, nested stacks' included: `stack.resources["Accounts"]` is a table's name."""
    parameters: Mapping[str, str] = field(default_factory=dict)


def packaged(cloud: LocalClients, template: str, folder: Path, uri_of: Callable[[Path], str]) -> str:
    """Return the template with its paths, relative to this folder, replaced, without the alarm on arrivals, and with no
    other byte changed.

    Nested templates are packaged likewise and uploaded. `uri_of` uploads code and definitions, and says where to.
    """

    def replaced(found: re.Match[str]) -> str:
        path = folder / found["path"]
        if found["property"] == "DefinitionS3Location":
            bucket, _, key = uri_of(path).removeprefix("s3://").partition("/")
            return f"{found['before']}{{Bucket: {bucket}, Key: {key}}}{found['after']}"
        if found["property"] != "TemplateURL":
            return f"{found['before']}{uri_of(path)}{found['after']}"
        if not path.is_file():
            raise DeployError(f"the template names a nested one at {path}, and there is none")
        child = packaged(cloud, path.read_text(), path.parent, uri_of)
        key = store(cloud, child.encode(), path.suffix)
        return f"{found['before']}{cloud.endpoint_url}/{CODE_BUCKET}/{key}{found['after']}"

    return ARRIVALS.sub(r"\1'false'", LOCAL_PATH.sub(replaced, template))


def create(clients: Clients, name: str, template: str, parameters: Mapping[str, str]) -> Stack:
    """Create a stack, and return once everything in it is made. Raises DeployError where something is not."""
    formation = clients.client("cloudformation")
    formation.create_stack(
        StackName=name,
        TemplateBody=template,
        Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()],
        Capabilities=["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"],
    )
    try:
        formation.get_waiter("stack_create_complete").wait(StackName=name, WaiterConfig=PACE)
    except WaiterError as error:
        raise DeployError(f"stack {name} was not made: {error}: {_failures(clients, name)}") from error
    _read_text(clients, name)
    return describe(clients, name)


def _read_text(clients: Clients, name: str) -> None:
    # The local cloud keeps a template's parameter as text. It fails to compare that with a number, and would never poll
    # the queue; and it takes the text "false" for true, and would never delete a table.
    functions, dynamodb = clients.client("lambda"), clients.client("dynamodb")
    for each in resources_of(clients, name):
        id = each["PhysicalResourceId"]
        if each["ResourceType"] == "AWS::Lambda::EventSourceMapping":
            scaling = functions.get_event_source_mapping(UUID=id).get("ScalingConfig", {})
            if "MaximumConcurrency" in scaling:
                most = int(scaling["MaximumConcurrency"])
                functions.update_event_source_mapping(UUID=id, ScalingConfig={"MaximumConcurrency": most})
        if each["ResourceType"] == "AWS::DynamoDB::Table":
            if dynamodb.describe_table(TableName=id)["Table"].get("DeletionProtectionEnabled") == "false":
                dynamodb.update_table(TableName=id, DeletionProtectionEnabled=False)


def upload(clients: Clients, code: Path, overlay: Mapping[str, bytes] | None = None) -> str:
    """Store the folder, zipped, or the file; return its S3 address."""
    if not code.exists():
        raise DeployError(f"there is no code at {code}")
    body, suffix = (zipped(code, overlay), ".zip") if code.is_dir() else (code.read_bytes(), code.suffix)
    return f"s3://{CODE_BUCKET}/{store(clients, body, suffix)}"


def store(clients: Clients, body: bytes, suffix: str) -> str:
    """Store this under its content's hash; return its key in the bucket of code."""
    key = f"{hashlib.sha256(body).hexdigest()}{suffix}"
    clients.client("s3").create_bucket(Bucket=CODE_BUCKET)
    clients.client("s3").put_object(Bucket=CODE_BUCKET, Key=key, Body=body)
    return key


def zipped(code: Path, overlay: Mapping[str, bytes] | None = None) -> bytes:
    """Return the folder's files, without the SDK, as a zip that is the same for the same content.

    `overlay` has files, by their path in the folder, that are put in place of the folder's or beside them.
    """
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


def describe(clients: Clients, name: str) -> Stack:
    """A stack that is deployed, by its name."""
    (found,) = clients.client("cloudformation").describe_stacks(StackName=name)["Stacks"]
    return Stack(
        name=name,
        outputs={output["OutputKey"]: output["OutputValue"] for output in found.get("Outputs", [])},
        resources={each["LogicalResourceId"]: each["PhysicalResourceId"] for each in resources_of(clients, name)},
        parameters={each["ParameterKey"]: each.get("ParameterValue", "") for each in found.get("Parameters", [])},
    )


def resources_of(clients: Clients, stack: str) -> Iterator[Mapping[str, str]]:
    """The resources of a stack, after those of its nested stacks."""
    made = clients.client("cloudformation").describe_stack_resources(StackName=stack)["StackResources"]
    for each in made:
        if each["ResourceType"] == "AWS::CloudFormation::Stack":
            yield from resources_of(clients, each["PhysicalResourceId"])
    yield from made


def _failures(clients: Clients, name: str) -> str:
    events = clients.client("cloudformation").describe_stack_events(StackName=name)["StackEvents"]
    reasons = [
        f"{event.get('LogicalResourceId')}: {event['ResourceStatusReason']}"
        for event in events
        if "FAILED" in event.get("ResourceStatus", "") and "ResourceStatusReason" in event
    ]
    return "; ".join(reasons) or "no event says why"
