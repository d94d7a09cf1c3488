"""A role with only a stack's OperatorPolicy, and the environment of a program that has assumed it."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from harness.workload.driver import until
from harness.workload.stack_client import StackError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from idempotent_receiver.local.deployment import Clients, Stack

SPREAD_SECONDS = 120.0
"""The time that IAM takes to spread a new role in a region."""


@contextlib.contextmanager
def assumed(clients: Clients, stack: Stack) -> Iterator[dict[str, str]]:
    """Create the role and assume it; yields its credentials as variables. The role is deleted after the block."""
    iam, sts, name = clients.client("iam"), clients.client("sts"), role_of(stack.name)
    (_, partition, *_, account, _) = sts.get_caller_identity()["Arn"].split(":")
    trusting = {"Effect": "Allow", "Principal": {"AWS": f"arn:{partition}:iam::{account}:root"}}
    document = {"Version": "2012-10-17", "Statement": [{**trusting, "Action": "sts:AssumeRole"}]}
    made = iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(document))["Role"]
    try:
        iam.attach_role_policy(RoleName=name, PolicyArn=stack.outputs["OperatorPolicyArn"])
        yield _credentials(sts, made["Arn"])
    finally:
        delete(clients, stack.name)


def role_of(stack: str) -> str:
    return f"{stack}-operator"


def delete(clients: Clients, stack: str) -> None:
    """Delete the role, if it exists: the stack cannot be deleted while the role uses its policy."""
    iam, name = clients.client("iam"), role_of(stack)
    with contextlib.suppress(iam.exceptions.NoSuchEntityException):
        for each in iam.list_attached_role_policies(RoleName=name)["AttachedPolicies"]:
            iam.detach_role_policy(RoleName=name, PolicyArn=each["PolicyArn"])
        iam.delete_role(RoleName=name)


def _credentials(sts: Any, role: str) -> dict[str, str]:
    found: dict[str, Any] = {}

    def may() -> bool:
        with contextlib.suppress(ClientError):
            found.update(sts.assume_role(RoleArn=role, RoleSessionName="proof")["Credentials"])
        return bool(found)

    if not until(may, SPREAD_SECONDS, poll_seconds=2.0):
        raise StackError(f"{role} could not be assumed within {SPREAD_SECONDS:.0f} s")
    return {
        "AWS_ACCESS_KEY_ID": found["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": found["SecretAccessKey"],
        "AWS_SESSION_TOKEN": found["SessionToken"],
    }
