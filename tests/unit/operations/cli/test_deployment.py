"""Which consumer is meant: by a stack, by a name in it, by a queue and a table."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from inspect import signature
from typing import Any

import pytest

from idempotent_receiver.operations.cli.command import of_a_deployment
from idempotent_receiver.operations.cli.common_options import Options
from idempotent_receiver.operations.cli.terminal import Exit
from idempotent_receiver.payload import EVERYTHING, Document
from tests.unit.operations.cli.stack import CONSUMERS, DONE, Receiver, Stack


@dataclass(frozen=True, kw_only=True)
class Filters:
    """Options that several commands share."""

    key: str
    group: str = "g"


def test_a_command_has_its_own_options_and_those_of_every_command() -> None:
    ran: dict[str, Any] = {}

    def command(limit: int, filters: Filters, *, deployment: Any, terminal: Any) -> None:
        """Do it."""
        ran.update(limit=limit, filters=filters, options=deployment.options, as_json=terminal.as_json)

    command.__annotations__ |= {"limit": int, "filters": Filters}
    run: Any = of_a_deployment(command)
    names = ["limit", "key", "group", *(each.name for each in fields(Options))]
    assert list(signature(run).parameters) == list(run.__annotations__) == names
    assert {each.kind.name for each in signature(run).parameters.values()} == {"KEYWORD_ONLY"}
    assert (run.__doc__, run.__annotations__["limit"]) == ("Do it.", int)
    everybodys = {**dict.fromkeys(names[3:]), "table": "records", "json": True}
    run(limit=3, key="k", group="h", **everybodys)
    assert ran == {
        "limit": 3,
        "filters": Filters(key="k", group="h"),
        "options": Options(table="records", json=True),
        "as_json": True,
    }


@pytest.fixture
def two(stack: Stack) -> Stack:
    """The same, with a second consumer, which has a namespace."""
    second = {"ConsumerName": "refunds", **stack.outputs, "ConsumerDescription": json.dumps(CONSUMERS["bank.json"])}
    stack.outputs |= {"ConsumerName": "transfers", **{f"Refunds{name}": value for name, value in second.items()}}
    return stack


def test_the_one_consumer_of_a_stack_is_meant_by_the_stacks_name(receiver: Receiver, two: Stack) -> None:
    two.outputs = {name: value for name, value in two.outputs.items() if not name.startswith("Refunds")}
    assert (receiver.on(f"trace {DONE}").code, receiver.on("dlq list").code) == (0, 0)


def test_of_several_consumers_in_a_stack_one_has_to_be_named(receiver: Receiver, two: Stack) -> None:
    assert receiver.on(f"trace {DONE}").code == Exit.USAGE
    assert receiver(f"trace {DONE} --stack transfers/Consumer").code == 0
    two.record("bank#r-1", "COMPLETED")
    assert receiver("trace r-1 --stack transfers/RefundsConsumer").code == 0
    for name in ("Refunds", "Watch", "Totals"):
        assert receiver(f"trace {DONE} --stack transfers/{name}").code == Exit.USAGE


def test_options_mean_what_a_stack_would_say(receiver: Receiver, stack: Stack) -> None:
    assert receiver("dlq list --queue transfers --table records --consumer ids.json --json").json["count"] == 4
    del stack.outputs["ConsumerDescription"]
    assert receiver.on("dlq list --consumer ids.json").code == 0


def test_a_business_key_is_read_from_body_and_namespace(receiver: Receiver, stack: Stack) -> None:
    del stack.outputs["ConsumerDescription"]
    body = '{"transfer_id": "t-9"}'
    stack.record("bank#t-9", "COMPLETED", validation=EVERYTHING.fingerprint(Document.of_text(body)))
    stack.bury("whatever", body)
    told = receiver.on("dlq redrive --consumer transfers.json --yes --key t-9 --json").json
    assert (told["plan"], told["dropped"]) == ({"DONE": 1}, 1)
