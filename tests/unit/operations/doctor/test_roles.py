"""The roles that the templates write out: doctor finds nothing on them, and a statement that a copy lacks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from cfnlint.decode import cfn_yaml

from idempotent_receiver.operations.doctor.roles import (
    ON_ANY_TABLE,
    denied,
    denied_to_the_handler,
    needed,
    needed_of_keys,
    of_a_function,
)
from tests import examples
from tests.consumer_facts import resources_of
from tests.e2e.permissions import Permission, allowed
from tests.template import text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

KEY = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
KINDS = {
    "AWS::SQS::Queue": "sqs:us-east-1:123456789012:{}",
    "AWS::DynamoDB::Table": "dynamodb:us-east-1:123456789012:table/{}",
    "AWS::Logs::LogGroup": "logs:us-east-1:123456789012:log-group:{}:*",
}


def second_consumer() -> dict[str, Any]:
    """The resources of the documented second consumer."""
    _, block, _ = examples.second_consumer()
    added: dict[str, Any] = cfn_yaml.loads("Resources:\n" + block)["Resources"]
    return added


class Iam:
    """IAM as the tests' own verdict knows it, for a role with these statements."""

    def __init__(self, statements: Iterable[Mapping[str, Any]]) -> None:
        self.meta = SimpleNamespace(endpoint_url="https://iam.amazonaws.com")
        self.statements = [dict(each) for each in statements]

    def simulate_principal_policy(self, ActionNames: Any, ResourceArns: Any, ContextEntries: Any, **_: Any) -> Any:  # noqa: N803
        given = {each["ContextKeyName"]: each["ContextKeyValues"] for each in ContextEntries}
        keys = tuple(given.get("dynamodb:LeadingKeys", ()))
        wanted = [Permission(action, *ResourceArns, keys) for action in ActionNames]
        return {
            "EvaluationResults": [
                {"EvalActionName": each.action, "EvalDecision": "allowed" if self.allows(each) else "implicitDeny"}
                for each in wanted
            ]
        }

    def allows(self, permission: Permission) -> bool:
        """Other conditions than on records are for calls that are not the function's own."""
        on_records = [
            each if "LeadingKeys" in str(each.get("Condition")) else unconditional(each) for each in self.statements
        ]
        return allowed(permission, on_records)

    def describe_key(self, KeyId: str) -> Any:  # noqa: N803
        return {"KeyMetadata": {"Arn": KeyId, "KeyManager": "CUSTOMER"}}


def unconditional(statement: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in statement.items() if name != "Condition"}


class Stack:
    """A consumer of a template: what AWS would say of it, and what its role may."""

    def __init__(self, resources: Mapping[str, Any], prefix: str = "", record_id: str | None = None) -> None:
        properties = {name: each.get("Properties", {}) for name, each in resources.items()}
        self.arns = {
            name: f"arn:aws:{KINDS[each['Type']].format(name)}"
            for name, each in resources.items()
            if each["Type"] in KINDS
        }
        function = properties[f"{prefix}Consumer"]
        self.settings = {name: text_of(value) for name, value in function["Environment"]["Variables"].items()}
        self.role = of_a_function({
            "FunctionArn": "arn:aws:lambda:us-east-1:123456789012:function:any",
            "FunctionName": "any",
            "Role": "role",
            "LoggingConfig": {"LogGroup": text_of(function["LoggingConfig"]["LogGroup"])},
            "VpcConfig": function.get("VpcConfig"),
            "TracingConfig": {"Mode": function.get("Tracing")},
        })  # fmt: skip
        names = (f"{prefix}Queue", f"{prefix}DeadLetterQueue")
        queue, dead = ({"QueueArn": self.arns[name], **properties[name]} for name in names)
        key = properties["Records"].get("SSESpecification", {}).get("KMSMasterKeyId")
        self.table = {
            "TableName": "Records",
            "TableArn": self.arns["Records"],
            "SSEDescription": {"KMSMasterKeyArn": key},
        }
        self.needs = needed(record_id, self.settings, queue, dead, self.table)
        self.of_keys = needed_of_keys(self.settings, queue, dead, self.table)
        (policy,) = properties[f"{prefix}ConsumerRole"]["Policies"]
        self.statements = [
            {**each, "Resource": self.resource(each["Resource"])} for each in policy["PolicyDocument"]["Statement"]
        ]

    def resource(self, node: Any) -> str:
        name, _, attribute = text_of(node).partition(".")
        return self.arns[name] if attribute == "Arn" else str(node)

    def denied(self, statements: Iterable[Mapping[str, Any]]) -> list[Any]:
        """What doctor finds if these are the statements of its role, and the variables of closed tables."""
        iam = Iam(statements)
        tables = denied_to_the_handler(iam, self.role, self.settings, self.table)
        closed = [variable for variable, (_, refused) in tables.items() if len(refused) == len(ON_ANY_TABLE)]
        return [*denied(iam, iam, self.role, self.needs, self.of_keys), *closed]


STACKS = {
    "shipped": lambda: Stack(resources_of()),
    "in a VPC": lambda: Stack(resources_of("In a VPC")),
    "dead letters at once": lambda: Stack(resources_of("Dead letters at once")),
    "traced": lambda: Stack(resources_of(Tracing="Active")),
    "with a key": lambda: Stack(resources_of("Dead letters at once", KmsKeyArn=KEY)),
    "the second consumer": lambda: Stack({**resources_of(), **TOTALS, **second_consumer()}, "Refunds", "refunds#any"),
}
TOTALS = {"Totals": {"Type": "AWS::DynamoDB::Table"}}


@pytest.mark.parametrize("name", STACKS)
def test_nothing_is_found_on_a_role_as_it_is_written_out(name: str) -> None:
    stack = STACKS[name]()
    assert stack.denied(stack.statements) == []


@pytest.mark.parametrize("name", STACKS)
def test_each_statement_that_a_copy_lacks_is_found(name: str) -> None:
    """Each is there for something: without tracing, the statement for X-Ray alone is not."""
    stack = STACKS[name]()
    for missing in stack.statements:
        found = stack.denied(each for each in stack.statements if each is not missing)
        assert bool(found) != ("xray:PutTraceSegments" in missing["Action"] and name != "traced"), missing


def test_a_role_that_is_bounded_to_another_consumers_records_is_found() -> None:
    """As a third consumer has it, whose copy still says `refunds#*`."""
    copied = Stack({**resources_of(), **TOTALS, **second_consumer()}, "Refunds", "returns#any")
    (found,) = copied.denied(copied.statements)
    assert found.startswith("dynamodb:PartiQLInsert, dynamodb:PartiQLUpdate, ")
    assert found.endswith(" on arn:aws:dynamodb:us-east-1:123456789012:table/Records")


def test_a_key_that_aws_manages_needs_no_permission_by_whatever_name() -> None:
    """The account's own needs one for each service that uses it."""
    queue = {"QueueArn": "arn:aws:sqs:us-east-1:123456789012:orders"}
    table = {"SSEDescription": {"KMSMasterKeyArn": KEY}}
    for alias in ("alias/aws/sqs", "arn:aws:kms:us-east-1:123456789012:alias/aws/sqs"):
        needs = needed_of_keys({}, {**queue, "KmsMasterKeyId": alias}, None, table)
        assert [(each.resource, "Encrypt" in each.actions) for each in needs] == [(KEY, True)]
    own = needed_of_keys({}, {**queue, "KmsMasterKeyId": "alias/orders"}, None, table)
    assert [each.resource for each in own] == ["alias/orders", KEY]
