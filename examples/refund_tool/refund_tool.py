"""An agent's tool. However often a call of the model is run, one refund is paid, and the model reads one result."""

import os
from typing import Any

import httpx
from idempotent_receiver import DynamoDBStore, current_claim, idempotent

store = DynamoDBStore("records", namespace="refund-tool")


@idempotent(store, key=lambda call_id, payment, cents: call_id, lease_seconds=60)
def refund(call_id: str, payment: str, cents: int) -> str:
    """Refund a payment, and return the refund's id. `call_id` is what the model called this tool call."""
    answer = httpx.post(
        "https://api.stripe.com/v1/refunds",
        auth=(os.environ["STRIPE_API_KEY"], ""),
        data={"payment_intent": payment, "amount": cents},
        headers={"Idempotency-Key": current_claim().idempotency_key},  # the same if a crash makes it run again
    )
    return answer.raise_for_status().json()["id"]


def tool_result(tool_use: dict[str, Any]) -> dict[str, Any]:
    """The answer to the model's block, also after a restart: a conversation that is resumed has the same block."""
    result = refund(tool_use["id"], **tool_use["input"])
    return {"type": "tool_result", "tool_use_id": tool_use["id"], "content": result}
