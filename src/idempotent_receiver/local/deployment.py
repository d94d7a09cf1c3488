"""Deploys templates and code to a local cloud, as `sam deploy` would: package, create, describe.

A template is deployed unchanged, except that each local path is replaced with the address of its upload. The alarm on
arriving dead letters, which needs metric math, is turned off through the template's own parameter.
"""

import hashlib
import io
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from botocore.exceptions import WaiterError

from idempotent_receiver.local.template import Resource, Template

CODE_BUCKET = "code"
PACE = {"Delay": 0.05, "MaxAttempts": 1_200}

# On Lambda, the runtime includes the SDK; here, the local cloud's interpreter does. Every function start unpacks the
# code again, and the SDK would be by far its largest part.
SDK_FOLDERS = frozenset({"boto3", "botocore", "s3transfer", "urllib3", "dateutil"})

ARRIVALS = "DeadLetterArrivals"


class DeployError(Exception):
    """The stack could not be created; the message says which resource failed and why."""


class Clients(Protocol):
    """Anything that provides an account's clients: a local cloud, or AWS itself."""

    def client(self, service: Any) -> Any:
        """The client for a service."""


class LocalClients(Clients, Protocol):
    """A local cloud's clients."""

    @property
    def endpoint_url(self) -> str:
        """The URL at which the local cloud listens."""


@dataclass(frozen=True)
class Stack:
    """A deployed stack: its outputs, physical ids and parameters."""

    name: str
    outputs: Mapping[str, str]
    resources: Mapping[str, str]
    """Physical ids by logical id, including those of nested stacks: `stack.resources["Accounts"]` is a table's name."""
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Target:
    """A function that the project's Makefile builds with its target `build-FUNCTION`."""

    function: str
    code: Path
    context: Path
    """The folder with the Makefile."""
    working: Path | None
    """The folder in which make runs, if the template names one; otherwise make runs in a copy of the code."""


def template_of(text: str) -> Template:
    """Parse a template. Raises DeployError if it cannot be read."""
    try:
        return Template(text)
    except ValueError as error:
        raise DeployError(str(error)) from None


def packaged(
    cloud: LocalClients,
    template: str,
    folder: Path,
    uri_of: Callable[[Path], str],
    built: Callable[[Target], str] | None = None,
) -> str:
    """Return the template with its paths, which are relative to `folder`, replaced and no other byte changed.

    Nested templates are packaged in the same way and uploaded. `uri_of` uploads code or definitions and returns their
    address. `built` does the same for a function that a Makefile builds; if None, `uri_of` uploads its CodeUri.
    """
    read, edits = template_of(template), []
    for each in read.resources:
        target = _target(read, each, folder)
        if built is not None and target is not None:
            edits.append(read.setting(each, "CodeUri", built(target)))

    def replaced(name: str, path: str) -> str:
        named = folder / path
        if name == "DefinitionS3Location":
            bucket, _, key = uri_of(named).removeprefix("s3://").partition("/")
            return f"{{Bucket: {bucket}, Key: {key}}}"
        if name != "TemplateURL":
            return uri_of(named)
        if not named.is_file():
            raise DeployError(f"the nested template {named} does not exist")
        child = packaged(cloud, named.read_text(), named.parent, uri_of, built)
        return f"{cloud.endpoint_url}/{CODE_BUCKET}/{store(cloud, child.encode(), named.suffix)}"

    return read.edited(edits).with_paths(replaced).text


def _target(template: Template, resource: Resource, folder: Path) -> Target | None:
    code = template.code_of(resource)
    if resource.said("Metadata", "BuildMethod") != "makefile" or code is None:
        return None
    context, working = (resource.said("Metadata", name) for name in ("ContextPath", "WorkingDirectory"))
    return Target(
        function=resource.id,
        code=folder / code,
        context=folder / (code if context is None else context),
        working=None if working is None else folder / working,
    )


def create(clients: Clients, name: str, template: str, parameters: Mapping[str, str]) -> Stack:
    """Create a stack, and return it once all its resources exist. Raises DeployError if one fails."""
    formation, read = clients.client("cloudformation"), template_of(template)
    off = {ARRIVALS: "false"} if ARRIVALS in read.parameters else {}
    formation.create_stack(
        StackName=name,
        TemplateBody=template,
        Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in {**off, **parameters}.items()],
        Capabilities=["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"],
    )
    try:
        formation.get_waiter("stack_create_complete").wait(StackName=name, WaiterConfig=PACE)
    except WaiterError as error:
        raise DeployError(f"stack {name} was not created: {error}: {_failures(clients, name)}") from error
    for each in resources_of(clients, name):
        if adapt := _ADAPTED.get(each["ResourceType"]):
            adapt(clients, each["PhysicalResourceId"])
    stack = describe_function(clients, name)
    _let_expire(clients, read, stack)
    return stack


# Workarounds for differences from AWS. The local cloud keeps template parameters as strings.


def _let_poll(clients: Clients, mapping: str) -> None:
    # The local cloud cannot compare text with a number, and would never poll the queue.
    functions = clients.client("lambda")
    scaling = functions.get_event_source_mapping(UUID=mapping).get("ScalingConfig", {})
    if "MaximumConcurrency" in scaling:
        most = int(scaling["MaximumConcurrency"])
        functions.update_event_source_mapping(UUID=mapping, ScalingConfig={"MaximumConcurrency": most})


def _let_delete(clients: Clients, table: str) -> None:
    # The local cloud treats the text "false" as true.
    dynamodb = clients.client("dynamodb")
    if dynamodb.describe_table(TableName=table)["Table"].get("DeletionProtectionEnabled") == "false":
        dynamodb.update_table(TableName=table, DeletionProtectionEnabled=False)


def _let_expire(clients: Clients, template: Template, stack: Stack) -> None:
    # The local cloud ignores TimeToLiveSpecification.
    for each in template.resources:
        said = [each.said("Properties", "TimeToLiveSpecification", name) for name in ("AttributeName", "Enabled")]
        if each.type == "AWS::DynamoDB::Table" and said[1] == "true" and each.id in stack.resources:
            clients.client("dynamodb").update_time_to_live(
                TableName=stack.resources[each.id],
                TimeToLiveSpecification={"Enabled": True, "AttributeName": said[0]},
            )


_ADAPTED = {"AWS::Lambda::EventSourceMapping": _let_poll, "AWS::DynamoDB::Table": _let_delete}


def upload(clients: Clients, code: Path, overlay: Mapping[str, bytes] | None = None) -> str:
    """Upload a file, or a folder as a zip; return the S3 URI."""
    if not code.exists():
        raise DeployError(f"there is no code at {code}")
    body, suffix = (zipped(code, overlay), ".zip") if code.is_dir() else (code.read_bytes(), code.suffix)
    return f"s3://{CODE_BUCKET}/{store(clients, body, suffix)}"


def store(clients: Clients, body: bytes, suffix: str) -> str:
    """Store the content under its hash; return its key in the code bucket."""
    key = f"{hashlib.sha256(body).hexdigest()}{suffix}"
    clients.client("s3").create_bucket(Bucket=CODE_BUCKET)
    clients.client("s3").put_object(Bucket=CODE_BUCKET, Key=key, Body=body)
    return key


def zipped(code: Path, overlay: Mapping[str, bytes] | None = None) -> bytes:
    """Return the folder's files, without the SDK, as a reproducible zip.

    `overlay` maps paths in the folder to content that replaces or supplements the folder's files.
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
    """The source of a bytecode file, which would take precedence over a replaced source; else the path itself."""
    if path.suffix != ".pyc":
        return path
    return path.parent.parent / f"{path.name.partition('.')[0]}.py"


def describe_function(clients: Clients, name: str) -> Stack:
    """Look up a deployed stack by name."""
    (found,) = clients.client("cloudformation").describe_stacks(StackName=name)["Stacks"]
    return Stack(
        name=name,
        outputs={output["OutputKey"]: output["OutputValue"] for output in found.get("Outputs", [])},
        resources={each["LogicalResourceId"]: each["PhysicalResourceId"] for each in resources_of(clients, name)},
        parameters={each["ParameterKey"]: each.get("ParameterValue", "") for each in found.get("Parameters", [])},
    )


def resources_of(clients: Clients, stack: str) -> Iterator[Mapping[str, str]]:
    """A stack's resources, preceded by those of its nested stacks."""
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
    return "; ".join(reasons) or "no event gives a reason"
