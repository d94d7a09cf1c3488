"""A Step Functions client in memory, with the rules that AWS states for StartExecution and DescribeExecution."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from botocore.exceptions import ClientError

MACHINE = "arn:aws:states:us-east-1:123456789012:stateMachine:transfers"


class Killed(BaseException):
    """The process has been killed."""


class ExecutionAlreadyExists(ClientError):
    """boto3's error of this name."""


class ExecutionDoesNotExist(ClientError):
    """boto3's error of this name."""


class FakeStepFunctions:
    """`executions` by name. `dies` is "before" or "after": the next start kills the process then."""

    exceptions = SimpleNamespace(
        ExecutionAlreadyExists=ExecutionAlreadyExists, ExecutionDoesNotExist=ExecutionDoesNotExist
    )

    def __init__(self) -> None:
        self.executions: dict[str, dict[str, Any]] = {}
        self.dies: str | None = None
        self.refuses: Exception | None = None
        self.asked = 0

    def start_execution(self, *, stateMachineArn: str, name: str, input: str) -> dict[str, Any]:  # noqa: N803
        """Idempotent for the same name and input while the execution runs."""
        self.asked += 1
        dies, self.dies = self.dies, None
        if dies == "before":
            raise Killed
        if self.refuses is not None:
            raise self.refuses
        known = self.executions.get(name)
        if known is not None and (known["status"] != "RUNNING" or known["input"] != input):
            raise ExecutionAlreadyExists({"Error": {"Code": "ExecutionAlreadyExists"}}, "StartExecution")
        self.executions.setdefault(name, {"status": "RUNNING", "input": input})
        if dies == "after":
            raise Killed
        return {"executionArn": f"{stateMachineArn.replace(':stateMachine:', ':execution:')}:{name}"}

    def describe_execution(self, *, executionArn: str) -> dict[str, Any]:  # noqa: N803
        """The state of an execution."""
        known = self.executions.get(executionArn.rpartition(":")[2])
        if known is None:
            raise ExecutionDoesNotExist({"Error": {"Code": "ExecutionDoesNotExist"}}, "DescribeExecution")
        return known

    def close(self, status: str, output: str | None = None) -> None:
        """End the one execution."""
        (execution,) = self.executions.values()
        execution.update(status=status, output=output)
