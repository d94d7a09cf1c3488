"""Put deploy/workflow.yaml onto a local cloud, beside the consumer's stack; and say what it must know of that stack.

The template goes as it stands, and so does the definition, with two exceptions. The local cloud calls every failure of
a function `Runtime.HandlerError`, so that name is added to what is retried. No pause between retries is longer than
LONGEST_PAUSE_SECONDS, so that nobody waits long where that name means a refusal. Retry and Catch by an error's own name
are shown on another engine (tests/workflow).
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
from idempotent_receiver.local.deployment import CODE_BUCKET, Stack, create, describe, packaged, store

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from harness.cloud import Cloud

TEMPLATE = ROOT / "deploy" / "workflow.yaml"
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
    parameters: Mapping[str, str] | None = None,
) -> Stack:
    """Deploy workflow.yaml for a deployed consumer, with the code in this folder, and return once it is made."""
    code_uri = code_uri_of(cloud, code, overlay)
    machine = f"s3://{CODE_BUCKET}/{store(cloud, json.dumps(definition()).encode(), '.json')}"
    text = packaged(
        cloud, TEMPLATE.read_text(), TEMPLATE.parent, lambda path: machine if path.suffix == ".json" else code_uri
    )
    return create(cloud, name, text, beside(consumer) | dict(parameters or {}))


def beside(consumer: Stack) -> dict[str, str]:
    """The parameters that name what the workflow shares with its consumer."""
    return {
        "QueueUrl": consumer.outputs["QueueUrl"],
        "QueueArn": consumer.outputs["QueueArn"],
        "AccountsTable": consumer.resources["Accounts"],
        "EntriesTable": consumer.resources["Entries"],
    }


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


def main(environment: str) -> int:
    """Print them for the stack that samconfig.toml names for this environment; return the exit status."""
    settings = tomllib.loads((ROOT / "samconfig.toml").read_text())
    name = settings[environment]["global"]["parameters"]["stack_name"]
    try:
        consumer = describe(Account(), name)
        told = beside(consumer)
    except ClientError as error:
        missing = "does not exist" in str(error)
        remedy = "Deploy it first: make deploy" if missing else "Look at the account, the region and your permissions."
        print(f"the consumer's stack {name} cannot be asked: {error}\n{remedy}", file=sys.stderr)
        return 1
    except BotoCoreError as error:
        print(f"AWS cannot be asked for the consumer's stack {name}: {error}\n{REMEDY}", file=sys.stderr)
        return 1
    except KeyError as missing:
        print(f"the stack {name} has no {missing.args[0]}: is it the consumer with its ledger?", file=sys.stderr)
        return 1
    # A key of one's own encrypts what the two share, so it is wanted here too.
    told |= {"KmsKeyArn": consumer.parameters["KmsKeyArn"]} if consumer.parameters.get("KmsKeyArn") else {}
    print(*(f"{parameter}={value}" for parameter, value in told.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
