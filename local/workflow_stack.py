"""Put workflow.yaml onto a local cloud, beside the consumer's stack.

The template goes as it stands, and so does the definition but for this: the local cloud calls whatever a function
raises or dies of `Runtime.HandlerError`, so that name is added to what is tried again; and so that nobody waits long
where it means a refusal, no pause between tries is longer than LONGEST_PAUSE_SECONDS. Retry and Catch by an error's own
name are shown on another engine (tests/workflow).
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from local.cloud import ROOT
from local.deploy import CODE_BUCKET, HOST_BUILD, Stack, await_created, describe, pointing_at, upload

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from local.cloud import Cloud

TEMPLATE = ROOT / "workflow.yaml"
DEFINITION = ROOT / "src" / "app" / "transfer.asl.json"
ANY_ERROR = "Runtime.HandlerError"
LONGEST_PAUSE_SECONDS = 4


def deploy_workflow(
    cloud: Cloud,
    consumer: Stack,
    *,
    name: str = "workflow",
    code: Path = HOST_BUILD,
    overlay: Mapping[str, bytes] | None = None,
) -> Stack:
    """Deploy workflow.yaml for a deployed consumer, with the code in this folder, and return once it is made."""
    text = pointing_at(TEMPLATE.read_text(), upload(cloud, code, overlay))
    parameters = {
        "QueueUrl": consumer.outputs["QueueUrl"],
        "QueueArn": consumer.outputs["QueueArn"],
        "AccountsTable": consumer.resources["Accounts"],
        "EntriesTable": consumer.resources["Entries"],
    }
    cloud.client("cloudformation").create_stack(
        StackName=name,
        TemplateBody=re.sub(r"(?m)^(\s+DefinitionUri: ).*$", rf"\g<1>{_upload_definition(cloud)}", text),
        Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()],
        Capabilities=["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"],
    )
    await_created(cloud, name)
    return describe(cloud, name)


def _upload_definition(cloud: Cloud) -> str:
    key = "transfer.asl.json"
    cloud.client("s3").put_object(Bucket=CODE_BUCKET, Key=key, Body=json.dumps(definition()).encode())
    return f"s3://{CODE_BUCKET}/{key}"


def definition() -> dict[str, Any]:
    """The definition, as the local cloud needs it."""
    machine: dict[str, Any] = json.loads(DEFINITION.read_text())
    for state in machine["States"].values():
        for again in state.get("Retry", []):
            again["ErrorEquals"].append(ANY_ERROR)
            again["IntervalSeconds"] = min(again["IntervalSeconds"], LONGEST_PAUSE_SECONDS)
            again["BackoffRate"] = 1.5
            again["MaxDelaySeconds"] = LONGEST_PAUSE_SECONDS
    return machine
