"""The queues of a simulation and what producers send to them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.simulation.results import result_of
from tests.simulation.sqs_model import QueueModel

if TYPE_CHECKING:
    from random import Random

    from tests.simulation.plan import Plan

MESSAGES = 8
NAMESPACES = ("transfers", "refunds")
"""The stores' of the functions. A function alone has one only where messages have keys of their producers."""
UNUSABLE = (
    '{"amount": 1}',
    '{"key": null, "amount": 1}',
    '{"key": "", "amount": 1}',
    '{"key": ["k1"], "amount": 1}',
    '{"key": true, "amount": 1}',
    '{"key": 1.5, "amount": 1}',
    '{"key": "k1", "key": "k1", "amount": 1}',
    "k1",
)
"""Bodies without a usable key."""


def queues_of(plan: Plan, random: Random) -> list[QueueModel]:
    """The queues, with their messages. Two functions get the same messageIds and keys, each on a queue of its own."""
    queues = []
    for number in range(plan.queues):
        namespace = NAMESPACES[number % plan.functions] if plan.functions > 1 or plan.keyed else None
        queue = QueueModel(random, plan.fifo, plan.visibility_seconds, plan.duplicates)
        queue.history = queues[0].history if queues else queue.history
        queue.name, queue.namespace = f"transfers{number or ''}", namespace
        queues.append(queue)
    unusable = plan.source("unusable keys")
    for number, at in enumerate(sorted(random.choices([0.0, 0.0, 1.0, 10.0, 40.0], k=MESSAGES))):
        group = random.choice("gh") if plan.fifo else None
        queue = queues[number % plan.queues]
        id = f"m{number // plan.functions}"
        key, body = id, "{}" if plan.deploy_at is None else json.dumps({"amount": 1 + number % 2})
        if plan.keyed:
            key, body = _keyed(plan, number // plan.functions)
        usable = unusable.random() >= plan.unusable
        if not usable:
            key, body = f"unusable {id}", unusable.choice(UNUSABLE)
        more = {"body": body, "usable": usable, "result": result_of(plan.forms, key, body)}
        queue.send(id, group, at, key if queue.namespace is None else f"{queue.namespace}#{key}", **more)
    return queues


def _keyed(plan: Plan, number: int) -> tuple[str, str]:
    """A message's key, which may be an earlier message's, and its body."""
    key = plan.more.choice([number, number, number, plan.more.randint(0, number)])
    body: dict[str, Any] = {"key": f"k{key}", "amount": plan.more.choice([1, 1, 2])}
    return f"k{key}", json.dumps(body)
