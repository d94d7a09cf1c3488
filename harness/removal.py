"""Removes a stack with everything that its template would retain: for temporary stacks."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from idempotent_receiver.local.deployment import resources_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from idempotent_receiver.local.deployment import Clients


PATIENCE = {"Delay": 1, "MaxAttempts": 900}


def delete_stack(clients: Clients, stack: str) -> None:
    """Delete a stack, and the tables, queues and buckets that it would retain. Raises AWS's errors."""
    formation, made = clients.client("cloudformation"), list(resources_of(clients, stack))
    formation.delete_stack(StackName=stack)
    formation.get_waiter("stack_delete_complete").wait(StackName=stack, WaiterConfig=PATIENCE)
    for each in made:
        with contextlib.suppress(ClientError):  # already gone if nothing is retained
            if each["ResourceType"] == "AWS::DynamoDB::Table":
                _delete_table(clients.client("dynamodb"), each["PhysicalResourceId"])
            elif each["ResourceType"] == "AWS::SQS::Queue":
                clients.client("sqs").delete_queue(QueueUrl=each["PhysicalResourceId"])
            elif each["ResourceType"] == "AWS::S3::Bucket":
                delete_bucket(clients.client("s3"), each["PhysicalResourceId"])


def _delete_table(dynamodb: Any, table: str) -> None:
    """Delete a table, protected or not: the local cloud treats a template's text 'false' as true."""
    if dynamodb.describe_table(TableName=table)["Table"].get("DeletionProtectionEnabled"):
        dynamodb.update_table(TableName=table, DeletionProtectionEnabled=False)
        dynamodb.get_waiter("table_exists").wait(TableName=table)
    dynamodb.delete_table(TableName=table)


def delete_bucket(s3: Any, bucket: str) -> None:
    """Delete a bucket with every version of every object in it."""
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
        for each in (*page.get("Versions", []), *page.get("DeleteMarkers", [])):
            s3.delete_object(Bucket=bucket, Key=each["Key"], VersionId=each["VersionId"])
    s3.delete_bucket(Bucket=bucket)


def left_of(clients: Clients, name: str) -> Iterator[str]:
    """Resources that still have this in their names, such as `table orders-Records-1`."""
    for service, operation, key, kind in (
        ("cloudformation", "describe_stacks", "Stacks", "StackName"),
        ("dynamodb", "list_tables", "TableNames", None),
        ("sqs", "list_queues", "QueueUrls", None),
        ("s3", "list_buckets", "Buckets", "Name"),
        ("logs", "describe_log_groups", "logGroups", "logGroupName"),
        ("lambda", "list_functions", "Functions", "FunctionName"),
        ("iam", "list_roles", "Roles", "RoleName"),
        ("cloudwatch", "describe_alarms", "MetricAlarms", "AlarmName"),
        ("cloudwatch", "list_dashboards", "DashboardEntries", "DashboardName"),
    ):
        for page in clients.client(service).get_paginator(operation).paginate():
            names = (each if kind is None else each[kind] for each in page.get(key) or ())
            yield from (f"{service} {operation.partition('_')[2]}: {each}" for each in names if name in each)
