"""Changes parameters of a deployed stack, as another `sam deploy` of the same template would."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from idempotent_receiver.local.deployment import Clients, Stack

PATIENCE = {"Delay": 1, "MaxAttempts": 900}


def update(clients: Clients, stack: Stack, **parameters: str) -> None:
    """Return once the update is complete. Other parameters keep their values."""
    formation = clients.client("cloudformation")
    kept = [{"ParameterKey": name, "UsePreviousValue": True} for name in stack.parameters if name not in parameters]
    formation.update_stack(
        StackName=stack.name,
        UsePreviousTemplate=True,
        Parameters=[*kept, *({"ParameterKey": name, "ParameterValue": value} for name, value in parameters.items())],
        Capabilities=["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"],
    )
    formation.get_waiter("stack_update_complete").wait(StackName=stack.name, WaiterConfig=PATIENCE)
