"""Templates go onto a local cloud as they stand, but for their paths and what no local cloud has."""

from __future__ import annotations

import io
import zipfile
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import WaiterError

from idempotent_receiver.local.deployment import DeployError, Target, create, packaged, resources_of, upload

if TYPE_CHECKING:
    from pathlib import Path


class Bucket:
    """The clients of a cloud that only stores."""

    endpoint_url = "http://127.0.0.1:1"

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}

    def client(self, service: str) -> Bucket:
        return self

    def create_bucket(self, **asked: Any) -> None:
        """There is one."""

    def put_object(self, **asked: Any) -> None:
        self.stored[asked["Key"]] = asked["Body"]


def test_every_local_path_of_a_template_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "child.yaml").write_text("    CodeUri: inner/\n")
    template = """
      CodeUri: ./src # here
      CodeUri: "other src"
      DefinitionUri: machine.json
      DefinitionS3Location: machine.json # too
      TemplateURL: child.yaml
      CodeUri: s3://there/key
      CodeUri: !Ref Somewhere
      # CodeUri: commented
    """
    cloud = Bucket()
    made = packaged(cloud, template, tmp_path, lambda path: f"s3://code/{path.relative_to(tmp_path)}")
    (child,) = cloud.stored
    assert (
        made
        == f"""
      CodeUri: s3://code/src # here
      CodeUri: "s3://code/other src"
      DefinitionUri: s3://code/machine.json
      DefinitionS3Location: {{Bucket: code, Key: machine.json}} # too
      TemplateURL: http://127.0.0.1:1/code/{child}
      CodeUri: s3://there/key
      CodeUri: !Ref Somewhere
      # CodeUri: commented
    """
    )
    assert cloud.stored[child] == b"    CodeUri: s3://code/inner\n"


MADE = """Parameters: {Stage: {Type: String}}
Resources:
  Consumer:
    Type: AWS::Serverless::Function
    Metadata: {BuildMethod: makefile, ContextPath: ., WorkingDirectory: .}
    Properties:
      CodeUri: src/
  Other:
    Type: AWS::Serverless::Function
    Metadata: {BuildMethod: makefile}
    Properties: {Handler: a.b}
  Plain:
    Type: AWS::Serverless::Function
    Properties: {CodeUri: plain/}
Globals: {Function: {CodeUri: shared/}}
"""


def test_what_a_makefile_builds_is_told_with_its_folders_and_has_its_own_code(tmp_path: Path) -> None:
    """The Makefile is in ContextPath, or else beside the code; and the code may be that of all functions."""
    targets: list[Target] = []

    def built(target: Target) -> str:
        targets.append(target)
        return f"s3://built/{target.function}"

    made = packaged(Bucket(), MADE, tmp_path, lambda path: f"s3://code/{path.name}", built)
    shared = tmp_path / "shared/"
    assert targets == [
        Target(function="Consumer", code=tmp_path / "src/", context=tmp_path / ".", working=tmp_path / "."),
        Target(function="Other", code=shared, context=shared, working=None),
    ]
    changed = {was: now for was, now in zip(MADE.splitlines(), made.splitlines(), strict=True) if was != now}
    assert changed == {
        "      CodeUri: src/": "      CodeUri: s3://built/Consumer",
        "    Properties: {Handler: a.b}": "    Properties: {CodeUri: s3://built/Other, Handler: a.b}",
        "    Properties: {CodeUri: plain/}": "    Properties: {CodeUri: s3://code/plain}",
        "Globals: {Function: {CodeUri: shared/}}": "Globals: {Function: {CodeUri: s3://code/shared}}",
    }


def test_without_a_builder_such_a_function_is_what_its_code_uri_names(tmp_path: Path) -> None:
    made = packaged(Bucket(), MADE, tmp_path, lambda path: f"s3://code/{path.name}")
    assert "      CodeUri: s3://code/src\n" in made


def test_a_template_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    for text, why in (("Resources: [", "expected the node content"), ("- a", "it is not a YAML mapping")):
        with pytest.raises(DeployError, match=f"the template cannot be read: .*{why}"):
            packaged(Bucket(), text, tmp_path, str)


class Formation:
    """The clients of a cloud on which every stack is made at once, of three tables."""

    def __init__(self) -> None:
        self.made: dict[str, str] = {}
        self.expires: dict[str, Any] = {}

    def client(self, service: str) -> Formation:
        return self

    def create_stack(self, **asked: Any) -> None:
        self.made = {each["ParameterKey"]: each["ParameterValue"] for each in asked["Parameters"]}

    def get_waiter(self, name: str) -> Formation:
        return self

    def wait(self, **asked: Any) -> None:
        """It is there."""

    def describe_stacks(self, **asked: Any) -> Any:
        return {"Stacks": [{}]}

    def describe_stack_resources(self, **asked: Any) -> Any:
        tables = [{"LogicalResourceId": id, "PhysicalResourceId": f"orders-{id}", "ResourceType": "T"} for id in "ABC"]
        return {"StackResources": tables}

    def update_time_to_live(self, TableName: str, TimeToLiveSpecification: dict[str, Any]) -> None:  # noqa: N803
        self.expires[TableName] = TimeToLiveSpecification


ARRIVALS = "Parameters: {DeadLetterArrivals: {Type: String, Default: 'true'}}"


@pytest.mark.parametrize(
    ("template", "given", "passed"),
    [
        (ARRIVALS, {}, {"DeadLetterArrivals": "false"}),
        (ARRIVALS, {"DeadLetterArrivals": "true"}, {"DeadLetterArrivals": "true"}),
        (MADE, {"Stage": "a"}, {"Stage": "a"}),
    ],
)
def test_the_alarm_on_arrivals_is_off_where_the_template_has_a_parameter_for_it(
    template: str, given: dict[str, str], passed: dict[str, str]
) -> None:
    clouds = Formation()
    create(clouds, "orders", template, given)
    assert clouds.made == passed


def test_items_expire_as_the_template_says() -> None:
    """The local cloud passes over it."""
    template = """
Resources:
  A: {Type: AWS::DynamoDB::Table, Properties: {TimeToLiveSpecification: {AttributeName: expiration, Enabled: true}}}
  B: {Type: AWS::DynamoDB::Table, Properties: {TimeToLiveSpecification: {AttributeName: at, Enabled: false}}}
  C: {Type: AWS::DynamoDB::Table}
  NotMade: {Type: AWS::DynamoDB::Table, Properties: {TimeToLiveSpecification: {AttributeName: at, Enabled: true}}}
"""
    clouds = Formation()
    create(clouds, "orders", template, {})
    assert clouds.expires == {"orders-A": {"Enabled": True, "AttributeName": "expiration"}}


def test_a_folder_is_uploaded_without_the_sdk_and_with_what_is_laid_over_it(tmp_path: Path) -> None:
    """A package of the function's own may have the name of one of the SDK's; bytecode of what is replaced goes."""
    files = ("handler.py", "boto3/session.py", "app/boto3/own.py", "__pycache__/handler.cpython-313.pyc")
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("was")
    bucket = Bucket()
    uri = upload(bucket, tmp_path, {"handler.py": b"laid over"})
    ((key, body),) = bucket.stored.items()
    assert (uri, key.endswith(".zip")) == (f"s3://code/{key}", True)
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
    assert found == {"handler.py": b"laid over", "app/boto3/own.py": b"was"}
    (tmp_path / "machine.json").write_text("{}")
    assert upload(bucket, tmp_path / "machine.json").endswith(".json")


class Strings(Formation):
    """A cloud that keeps template parameters as strings."""

    def __init__(self, *made: tuple[str, str]) -> None:
        super().__init__()
        self.resources = made
        self.updated: list[dict[str, Any]] = []

    def describe_stack_resources(self, StackName: str) -> Any:  # noqa: N803
        names = ("PhysicalResourceId", "ResourceType")
        kept = [dict(zip(names, each, strict=True), LogicalResourceId=each[0].title()) for each in self.resources]
        return {"StackResources": kept if StackName == "orders" else kept[:1]}

    def get_event_source_mapping(self, UUID: str) -> Any:  # noqa: N803
        return {"ScalingConfig": {"MaximumConcurrency": "5"}} if UUID == "limited" else {}

    def describe_table(self, TableName: str) -> Any:  # noqa: N803
        return {"Table": {"DeletionProtectionEnabled": "true" if TableName == "kept" else "false"}}

    def update_event_source_mapping(self, **asked: Any) -> None:
        self.updated.append(asked)

    def update_table(self, **asked: Any) -> None:
        self.updated.append(asked)


def test_what_the_local_cloud_keeps_as_text_is_set_right() -> None:
    """A limited mapping would never poll, and no table could be deleted."""
    mapping, table = "AWS::Lambda::EventSourceMapping", "AWS::DynamoDB::Table"
    clouds = Strings(("limited", mapping), ("unlimited", mapping), ("kept", table), ("orders", table))
    create(clouds, "orders", "A: b", {})
    assert clouds.updated == [
        {"UUID": "limited", "ScalingConfig": {"MaximumConcurrency": 5}},
        {"TableName": "orders", "DeletionProtectionEnabled": False},
    ]


def test_a_nested_stacks_resources_are_the_stacks() -> None:
    clouds = Strings(("table", "AWS::DynamoDB::Table"), ("child", "AWS::CloudFormation::Stack"))
    assert [each["PhysicalResourceId"] for each in resources_of(clouds, "orders")] == ["table", "table", "child"]


def test_every_resource_that_failed_is_told_with_its_reason() -> None:
    clouds: Any = Formation()
    events = [
        {"LogicalResourceId": "Queue", "ResourceStatus": "CREATE_FAILED", "ResourceStatusReason": "no such key"},
        {"LogicalResourceId": "Table", "ResourceStatus": "CREATE_COMPLETE", "ResourceStatusReason": "fine"},
        {"LogicalResourceId": "Role", "ResourceStatus": "DELETE_FAILED", "ResourceStatusReason": "in use"},
        {"LogicalResourceId": "Topic", "ResourceStatus": "CREATE_FAILED"},
    ]

    def fails(**asked: Any) -> None:
        raise WaiterError("StackCreateComplete", "it failed", {})

    clouds.get_waiter = lambda name: SimpleNamespace(wait=fails)
    clouds.describe_stack_events = lambda StackName: {"StackEvents": events}  # noqa: N803
    with pytest.raises(DeployError, match=r"stack orders was not created: .*: Queue: no such key; Role: in use$"):
        create(clouds, "orders", "A: b", {})
