"""How one invocation ended for its messages: the answer says which come again, records and dead letters say why.

It does not matter whether a message that failed for good is acknowledged with a dead letter, or comes again.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from idempotent_receiver.sqs.dead_letter import stamp_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from local.workload.evidence import DeadLetter
    from local.workload.stack_client import StackClient


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    message_id: str
    acknowledged: bool
    what: str
    reason: str | None = None


def endings(client: StackClient, event: Any, answer: Any) -> list[Ending]:
    """How it ended for each message of an SQS event to which the stack's consumer has given this answer."""
    again = {failure["itemIdentifier"] for failure in answer["batchItemFailures"]}
    keys = {message["messageId"]: _key(message) for message in event["Records"]}
    records = client.records(list(dict.fromkeys(keys.values())))
    dead_letters = client.dead_letters() if "DeadLetterQueueUrl" in client.stack.outputs else []
    by_id = {each.message_id: each for each in dead_letters}
    return [ending(id, id not in again, records.get(key, {}), by_id.get(id)) for id, key in keys.items()]


def _key(message: Any) -> str:
    """A message's key: its id, or the key that it had before it was redriven."""
    stamp = stamp_of(message.get("messageAttributes") or {})
    return message["messageId"] if stamp is None else stamp.key


def ending(id: str, acknowledged: bool, record: Mapping[str, Any], letter: DeadLetter | None) -> Ending:
    """How it ended for a message, by the answer, its record and its dead letter, if there are any."""
    error = json.loads(record.get("error") or "{}")
    reason = error.get("text") or error.get("type")
    if not acknowledged:
        what = "failed for good" if error.get("permanent") else "to be tried again"
        return Ending(message_id=id, acknowledged=False, what=what, reason=reason or "it was not run")
    if letter is not None:
        return Ending(message_id=id, acknowledged=True, what="dead-lettered", reason=letter.reason)
    if record.get("status") == "COMPLETED":
        return Ending(message_id=id, acknowledged=True, what="completed")
    return Ending(message_id=id, acknowledged=True, what="unknown", reason="its record is under a key of another kind")


def summary(found: Sequence[Ending]) -> Iterator[str]:
    """A line with how many ended how, and one for each that is not simply completed."""
    told = "; ".join(
        f"{len(some)} {which}: {_counted(each.what for each in some)}"
        for which, wanted in (("acknowledged", True), ("to come again", False))
        if (some := [each for each in found if each.acknowledged is wanted])
    )
    yield f"{told or 'no messages'}."
    yield from (f"  {each.message_id} {each.what}: {each.reason}" for each in found if each.reason is not None)


def _counted(whats: Iterable[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in sorted(Counter(whats).items()))
