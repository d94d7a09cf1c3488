"""What a soak does to a stack while messages are being processed: acts that AWS permits an operator, each undone at the
end.

All of them use AWS's API, because nothing of ours can intervene between a Lambda function and its table.
"""

from __future__ import annotations

import contextlib
import json
import threading
from typing import TYPE_CHECKING

from harness.aws.update import update
from harness.workload.stack_client import StackError
from idempotent_receiver.clock import SystemClock
from idempotent_receiver.operations.mappings import DISABLED, ENABLED, SWITCHED_SECONDS, mappings_of, switch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness.workload.stack_client import StackClient

DENIED = "DeniedBySoak"
NO_TABLE = {"Version": "2012-10-17", "Statement": [{"Effect": "Deny", "Action": "dynamodb:*", "Resource": "*"}]}
UNLIMITED = -1


@contextlib.contextmanager
def denied(client: StackClient) -> Iterator[None]:
    """The consumer's role may not use DynamoDB."""
    iam, role = client.clients.client("iam"), client.stack.resources["ConsumerRole"].rpartition("/")[2]
    iam.put_role_policy(RoleName=role, PolicyName=DENIED, PolicyDocument=json.dumps(NO_TABLE))
    try:
        yield
    finally:
        iam.delete_role_policy(RoleName=role, PolicyName=DENIED)


@contextlib.contextmanager
def throttled(client: StackClient) -> Iterator[None]:
    """The records table is limited to one write unit per second."""
    _limit_writes(client, 1)
    try:
        yield
    finally:
        _limit_writes(client, UNLIMITED)


def _limit_writes(client: StackClient, units: int) -> None:
    table = client.stack.resources["Records"]
    client.dynamodb.get_waiter("table_exists").wait(TableName=table)  # an update needs the previous one to finish
    client.dynamodb.update_table(TableName=table, OnDemandThroughput={"MaxWriteRequestUnits": units})


@contextlib.contextmanager
def starved(client: StackClient) -> Iterator[None]:
    """Batches have 2 seconds, of which the last is reserved for settling, and a fourteenth of a CPU."""
    was = client.configuration()
    client.configure(Timeout=2, MemorySize=128)
    try:
        yield
    finally:
        client.configure(Timeout=was["Timeout"], MemorySize=was["MemorySize"])


@contextlib.contextmanager
def replaced(client: StackClient) -> Iterator[None]:
    """Every execution environment is replaced, as by a deployment."""
    variables = client.configuration()["Environment"]["Variables"]
    client.configure(Environment={"Variables": {**variables, "SOAKED": "yes"}})
    try:
        yield
    finally:
        client.configure(Environment={"Variables": variables})


@contextlib.contextmanager
def crowded_out(client: StackClient) -> Iterator[None]:
    """The function may not run, as if the account had no free concurrency."""
    function = client.stack.resources["Consumer"]
    client.functions.put_function_concurrency(FunctionName=function, ReservedConcurrentExecutions=0)
    try:
        yield
    finally:
        client.functions.delete_function_concurrency(FunctionName=function)


@contextlib.contextmanager
def stopped(client: StackClient) -> Iterator[None]:
    """The event source mapping is disabled, while batches in progress continue."""
    _switch(client, DISABLED)
    try:
        yield
    finally:
        _switch(client, ENABLED)


def _switch(client: StackClient, state: str) -> None:
    """Works like `receiver pause` and `receiver resume`: Lambda refuses a change while another is in progress."""
    found = mappings_of(client.functions, client.stack.outputs["QueueArn"])
    states = switch(
        client.functions, found, state=state, seconds=SWITCHED_SECONDS, clock=SystemClock(), stopped=lambda: False
    )
    if set(states.values()) != {state}:
        raise StackError(f"after {SWITCHED_SECONDS:.0f} s no event source mapping is {state}: {states}")


@contextlib.contextmanager
def deployed_again(client: StackClient) -> Iterator[None]:
    """The stack is updated to Effects=transaction, so that runs with and without claims meet, and then back."""
    was = client.stack.parameters["Effects"]
    update(client.clients, client.stack, Effects="transaction")
    try:
        yield
    finally:
        update(client.clients, client.stack, Effects=was)


UPDATED = "stack updated"
DISTURBANCES = {
    "permissions taken away": denied,
    "2 s and 128 MB": starved,
    "writes throttled": throttled,
    "environments replaced": replaced,
    "no concurrency left": crowded_out,
    "mapping disabled": stopped,
    UPDATED: deployed_again,
}


@contextlib.contextmanager
def disturbing(
    disturb: Callable[[StackClient], contextlib.AbstractContextManager[None]], client: StackClient, seconds: float
) -> Iterator[threading.Event]:
    """Disturb a stack for a while, concurrently with the block. This is undone before the block is left, in every case.

    The event is set once the stack is disturbed, which may take AWS minutes, or never happen. Raises the disturbance's
    exception: an undisturbed round proves nothing.
    """
    begun, over, failures = threading.Event(), threading.Event(), list[Exception]()

    def hold() -> None:
        try:
            with disturb(client):
                begun.set()
                over.wait(seconds)
        except Exception as error:  # noqa: BLE001  # raised again where it is waited for
            failures.append(error)
        finally:
            begun.set()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        yield begun
    finally:
        over.set()
        thread.join()
    if failures:
        raise failures[0]
