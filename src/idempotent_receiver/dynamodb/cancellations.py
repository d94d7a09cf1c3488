"""Derives the answers to commits from a cancelled transaction's reasons.

If a failed condition covers both a read and the handler's own condition, the item in the reason shows which of them
failed. If the reason has none, there was no item.

A condition of the handler's own counts only if conditions are all that failed, in the whole transaction. DynamoDB does
not evaluate the condition of an action that meets a conflict or a throttle, and that condition might have shown that
data which the handler had read has changed. A handler that had read current data might not have set the condition.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from idempotent_receiver.dynamodb.errors import conflict, write_failed
from idempotent_receiver.dynamodb.transactions import Member, call_of, places_of, plain_item
from idempotent_receiver.protocol.store import ActionFailed, NotApplied, Unknown, Written, action_failed

_FAILED = "ConditionalCheckFailed"


@dataclass(frozen=True, slots=True)
class Cancelled:
    """DynamoDB cancelled a transaction, so none of it took effect. There should be one reason per action."""

    reasons: Sequence[Mapping[str, Any]]


def answers_named(cancelled: Cancelled, members: Sequence[Member], table: str) -> dict[Member, Written | ActionFailed]:
    """The answers to the members that the reasons name; empty unless there is one reason per action."""
    reasons, places = cancelled.reasons, places_of(members)
    if len(reasons) != 1 + max(place for here in places for place in here):
        return {}
    own = [[reasons[place] for place in here] for here in places]
    judged = all(_code(reason) in ("None", _FAILED) for reason in reasons)
    answers = {member: _named(one, member, table, judged=judged) for member, one in zip(members, own, strict=True)}
    return {member: answer for member, answer in answers.items() if answer is not None}


def answer_unnamed(cancelled: Cancelled, member: Member, table: str) -> Written:
    """The answer to a single member if the reasons name none of its actions."""
    codes = [reason.get("Code") for reason in cancelled.reasons]
    telling = [code for code in codes if code not in (None, "None", _FAILED)]
    return write_failed(telling[0] if telling else "TransactionCanceledException", call_of([member], table))


def _named(
    reasons: Sequence[Mapping[str, Any]], member: Member, table: str, *, judged: bool
) -> Written | ActionFailed | None:
    """A member's answer, from the cancellation reasons of its own actions; None if these actions did not cause it.

    The record's own reason comes first: once the claim is lost, the handler's conditions do not matter. `judged` says
    that every condition in the transaction was evaluated. If not, only a change of the data read is certain.
    """
    codes = [_code(reason) for reason in reasons]
    if codes[0] == _FAILED:
        return conflict(reasons[0])
    failed = {number - 1: reasons[number] for number, code in enumerate(codes) if code == _FAILED}
    if failed and codes[0] == "None":
        met = {index: plain_item(item) if (item := reason.get("Item")) else None for index, reason in failed.items()}
        answer = action_failed(member.commit.actions, met)
        if judged or answer.stale:
            return answer
    return _error(reasons, member, table, contended=bool(failed))


def _error(reasons: Sequence[Mapping[str, Any]], member: Member, table: str, *, contended: bool) -> Written | None:
    """A member's answer from the reasons other than failed conditions; None if there are none. An error that may pass
    comes first; `contended` makes it count as one of contention.
    """
    errors: list[NotApplied | Unknown] = []
    for number, reason in enumerate(reasons):
        if (code := _code(reason)) not in ("None", _FAILED):
            where = member.commit.actions[number - 1].named(number) if number else "the record itself"
            call, message = call_of([member], table), reason.get("Message")
            errors.append(write_failed(code, call, message, where=f", {where}", own=number > 0))
    for error in errors:
        if isinstance(error, NotApplied) and error.retry:
            return replace(error, contended=error.contended or contended)
    return errors[0] if errors else None


def _code(reason: Mapping[str, Any]) -> str:
    return str(reason.get("Code", "None"))
