"""Deploys deploy/api.yaml or deploy/workflow.yaml next to the consumer's stack, with what each must know about it.

Both are deployed to a local cloud unchanged, as is the workflow's definition, with two exceptions. The local cloud
reports every failure of a function as `Runtime.HandlerError`, so that name is added to the retried errors. Pauses
between retries are at most LONGEST_PAUSE_SECONDS, so that no one waits long if the name stands for a refusal. Retry and
Catch by an error's own name are tested on another engine (tests/workflow).
"""

from __future__ import annotations

import json
import sys
import tomllib
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from harness.caller import REMEDY, Account
from harness.cloud import ROOT
from harness.deploy import HOST_BUILD, code_uri_of
from harness.edits import with_values
from idempotent_receiver.local.deployment import CODE_BUCKET, Stack, create, describe_function, packaged, store
from idempotent_receiver.local.template import named_by_id

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from harness.cloud import Cloud
    from idempotent_receiver.local.deployment import Clients

DEPLOY = ROOT / "deploy"
DEFINITION = ROOT / "src" / "app" / "transfer.asl.json"
ANY_ERROR = "Runtime.HandlerError"
LONGEST_PAUSE_SECONDS = 4

SHARED = {
    "api": ("QueueUrl", "QueueArn", "RecordsTable", "EntriesTable"),
    "workflow": ("QueueUrl", "QueueArn", "AccountsTable", "EntriesTable"),
}
"""Each template's parameters that name resources shared with the consumer."""


def deploy_beside(
    cloud: Cloud,
    consumer: Stack,
    what: str,
    *,
    name: str | None = None,
    code: Path = HOST_BUILD,
    overlay: Mapping[str, bytes] | None = None,
    values: Mapping[str, object] | None = None,
    parameters: Mapping[str, str] | None = None,
    named: bool = False,
) -> Stack:
    """Deploy `api` or `workflow` for a deployed consumer, with the code in this folder, and return once it exists.

    `values`, `overlay` and `named` are as for `deploy`.
    """
    code_uri = code_uri_of(cloud, code, overlay)
    template = DEPLOY / f"{what}.yaml"

    def uri_of(path: Path) -> str:
        if path.suffix != ".json":
            return code_uri
        return f"s3://{CODE_BUCKET}/{store(cloud, json.dumps(definition()).encode(), '.json')}"

    text = with_values(template.read_text(), **values or {})
    text = packaged(cloud, named_by_id(text) if named else text, template.parent, uri_of)
    return create(cloud, name or f"{consumer.name}-{what}", text, shared(consumer, what) | dict(parameters or {}))


def with_api(clients: Clients, consumer: Stack) -> Stack:
    """The consumer's stack, merged with its API's stack if it has one."""
    try:
        return joined(consumer, describe_function(clients, f"{consumer.name}-api"))
    except ClientError as error:
        if "does not exist" in str(error):
            return consumer
        raise


def joined(consumer: Stack, beside: Stack) -> Stack:
    """Both stacks as one, under the consumer's name."""
    return Stack(
        name=consumer.name,
        outputs={**consumer.outputs, **beside.outputs},
        resources={**consumer.resources, **beside.resources},
        parameters=consumer.parameters,
    )


def shared(consumer: Stack, what: str) -> dict[str, str]:
    """The parameters that name the resources shared with the consumer."""
    known = {
        "QueueUrl": consumer.outputs["QueueUrl"],
        "QueueArn": consumer.outputs["QueueArn"],
        "RecordsTable": consumer.outputs["RecordsTable"],
        "AccountsTable": consumer.resources["Accounts"],
        "EntriesTable": consumer.resources["Entries"],
    }
    return {name: known[name] for name in SHARED[what]}


def definition() -> dict[str, Any]:
    """The workflow's definition, as the local cloud needs it."""
    machine: dict[str, Any] = json.loads(DEFINITION.read_text())
    for state in machine["States"].values():
        for again in state.get("Retry", []):
            again["ErrorEquals"].append(ANY_ERROR)
            again["IntervalSeconds"] = min(again["IntervalSeconds"], LONGEST_PAUSE_SECONDS)
            again["BackoffRate"] = 1.5
            again["MaxDelaySeconds"] = LONGEST_PAUSE_SECONDS
    return machine


def main(what: str, environment: str) -> int:
    """Print samconfig's parameters and these, for the stack in samconfig.toml; returns the exit status."""
    name = _table(ROOT / "samconfig.toml", environment)["global"]["parameters"]["stack_name"]
    try:
        consumer = describe_function(Account(), name)
        told = shared(consumer, what)
    except ClientError as error:
        missing = "does not exist" in str(error)
        remedy = "Deploy it first: make deploy" if missing else "Check the account, the region and your permissions."
        print(f"the consumer's stack {name} cannot be read: {error}\n{remedy}", file=sys.stderr)
        return 1
    except BotoCoreError as error:
        print(f"AWS cannot be reached to read the consumer's stack {name}: {error}\n{REMEDY}", file=sys.stderr)
        return 1
    except KeyError as missing:
        print(f"the stack {name} has no {missing.args[0]}: is it the consumer with its ledger?", file=sys.stderr)
        return 1
    # A customer managed key encrypts the shared resources, so it is needed here too.
    told |= {"KmsKeyArn": consumer.parameters["KmsKeyArn"]} if consumer.parameters.get("KmsKeyArn") else {}
    # `sam deploy` accepts either these or samconfig's.
    own = _table(DEPLOY / f"{what}.samconfig.toml", environment)["deploy"]["parameters"].get("parameter_overrides", [])
    print(*own, *(f"{parameter}={value}" for parameter, value in told.items()))
    return 0


def _table(samconfig: Path, environment: str) -> dict[str, Any]:
    return dict(tomllib.loads(samconfig.read_text())[environment])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
