"""Derives the answers to commits from a cancelled transaction's reasons.

If a failed condition covers both a read and the handler's own condition, the current item shows which of them failed.
If the reason does not include the item, the item is read.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from idempotent_receiver.dynamodb.errors import conflict, write_failed
from idempotent_receiver.dynamodb.transactions import Member, call_of, places_of, plain_item
from idempotent_receiver.protocol.action import Action
from idempotent_receiver.protocol.reads import PlainItem
from idempotent_receiver.protocol.store import ActionFailed, NotApplied, Unknown, Written, action_failed

Get = Callable[[str, PlainItem], PlainItem | Unknown | None]
"""Reads an item in a handler's table: `DynamoDBStore.get`."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """DynamoDB cancelled a transaction, so none of it took effect. There should be one reason per action."""

    reasons: Sequence[Mapping[str, Any]]


def answers_named(
    cancelled: Cancelled, members: Sequence[Member], table: str, get: Get
) -> dict[Member, Written | ActionFailed]:
    """The answers to the members that the reasons name; empty unless there is one reason per action."""
    reasons, places = cancelled.reasons, places_of(members)
    if len(reasons) != 1 + max(place for here in places for place in here):
        return {}
    own = [[reasons[place] for place in here] for here in places]
    answers = {member: _named(one, member, table, get) for member, one in zip(members, own, strict=True)}
    return {member: answer for member, answer in answers.items() if answer is not None}


def answer_unnamed(cancelled: Cancelled, member: Member, table: str) -> Written:
    """The answer to a single member if the reasons name none of its actions."""
    codes = [reason.get("Code") for reason in cancelled.reasons]
    telling = [code for code in codes if code not in (None, "None", "ConditionalCheckFailed")]
    return write_failed(telling[0] if telling else "TransactionCanceledException", call_of([member], table))


def _named(reasons: Sequence[Mapping[str, Any]], member: Member, table: str, get: Get) -> Written | ActionFailed | None:
    """A member's answer, from the cancellation reasons of its own actions; None if these actions did not cause it.

    The record's own reason comes first: once the claim is lost, the handler's conditions do not matter.
    """
    codes = [reason.get("Code", "None") for reason in reasons]
    if codes[0] == "ConditionalCheckFailed":
        return conflict(reasons[0])
    if codes[0] == "None" and "ConditionalCheckFailed" in codes:
        failed = [number for number, code in enumerate(codes) if code == "ConditionalCheckFailed"]
        return _conditions_failed({number - 1: reasons[number] for number in failed}, member.commit.actions, get)
    for number, code in enumerate(codes):
        if code != "None":
            where = member.commit.actions[number - 1].named(number) if number else "the record itself"
            message = reasons[number].get("Message")
            return write_failed(code, call_of([member], table), message, where=f", {where}", own=number > 0)
    return None


def _conditions_failed(
    failed: Mapping[int, Mapping[str, Any]], actions: Sequence[Action], get: Get
) -> Written | ActionFailed:
    """The answer for failed conditions. `failed` maps the index of each such action to its cancellation reason."""
    met: dict[int, PlainItem | None] = {}
    for index, reason in failed.items():
        action, item = actions[index], reason.get("Item")
        found: PlainItem | Unknown | None = plain_item(item) if item else None
        if not item and action.read is not None and action.conditional:
            # Either there is no item, or the engine does not show it.
            found = get(action.arguments["TableName"], action.read.key)
        if isinstance(found, Unknown):
            return NotApplied(found.why, retry=True, own=True)
        met[index] = found
    return action_failed(actions, met)
