"""The history: a table of operators' acts. Each act is written before it is carried out and confirmed afterwards.

An act without an outcome may have happened: its process ended before confirming it. The history never holds bodies.

=========== =============================================================================
attribute   content
=========== =============================================================================
key         partition key: the id of the dead letter's record, or its messageId if
            unkeyed; for `paused` and `resumed`, the queue's ARN
act         sort key: when the act began (ISO 8601, UTC), and a random part
other       if the act involves two records, the id of the other one
mirror      true in the second item of such an act, where the two ids are swapped
the rest    the fields of `Act`; once confirmed, `outcome`, `code`, `ended` (epoch ms)
=========== =============================================================================

Unrelated items in the table are skipped and counted.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from idempotent_receiver.clock import Clock
from idempotent_receiver.dynamodb.codes import code_of
from idempotent_receiver.dynamodb.errors import ApiCall, explained
from idempotent_receiver.operations.dead_letters.queue import chunks

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

A_REQUEST = 25
"""DynamoDB's limit on items in a BatchWriteItem request."""

PARALLEL = 8
MAX_WRITE_TRIES = 10
MAX_PAUSE_SECONDS = 5.0
MOST_WHY = 500
"""The longest `why`, in characters. An act then fits into one write unit unless its key is very long."""


class NotKept(Exception):
    """The history could not be written or read; the text gives the reason and the remedy."""


class Verb(StrEnum):
    """What was done to a dead letter; for PAUSED and RESUMED, to a queue; for GIVEN_UP, to a message that a record had
    to send.
    """

    MOVED = "moved"
    DROPPED = "dropped"
    ARCHIVED = "archived"
    DELETED = "deleted"
    RESTORED = "restored"
    RESENT = "resent"
    GIVEN_UP = "given-up"
    PAUSED = "paused"
    RESUMED = "resumed"


class ActOutcome(StrEnum):
    """The result of an act. UNCONFIRMED means that AWS gave no definite answer, so the act may have happened."""

    DONE = "done"
    REFUSED = "refused"
    UNCONFIRMED = "unconfirmed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """An act on a dead letter, a queue or a record's message: who did what, why, and under which plan.

    `key` is the record's id, or the messageId of a dead letter without a usable key; for GIVEN_UP, `message_id` is the
    outgoing message's key. The queues are ARNs; `operator` is the caller's ARN. For RESENT, `other` is the id
    of the new key's record. The history stores such an act under both ids; the copy under the new id is a
    `mirror`, with the old id as `other`.

    `begin` sets `id`; `outcome` stays empty until the act is confirmed. A newer version may have written a `verb` or an
    `outcome` that this version does not know.
    """

    verb: Verb | str
    key: str
    message_id: str
    queue: str
    dead_letter_queue: str
    operator: str
    why: str
    plan: str
    other: str = ""
    mirror: bool = False
    id: str = ""
    outcome: ActOutcome | str | None = None
    code: str | None = None
    ended_ms: int | None = None

    @property
    def at_ms(self) -> int:
        """When the act began (epoch ms), by the operator's clock."""
        at, _, _ = self.id.partition("Z")
        return round(datetime.fromisoformat(at).replace(tzinfo=UTC).timestamp() * 1000)

    @property
    def may_have_happened(self) -> bool:
        """Whether its result is unknown."""
        return self.outcome in (None, ActOutcome.UNCONFIRMED)

    @property
    def became(self) -> str:
        """Its result, in words."""
        code = "" if self.code is None else f" ({self.code})"
        if self.may_have_happened:
            return f"begun, not confirmed{code}: it may have happened"
        return f"{self.outcome}{code}"

    @property
    def about(self) -> tuple[str, ...]:
        """What it acts on: a resend's two keys, or else a message or, without one, a key."""
        return (self.key, self.other) if self.other else (self.message_id or self.key,)

    def ended(self, outcome: ActOutcome, code: str | None = None) -> "Act":
        """A copy for `confirm`, with the outcome, and AWS's error code if the act was refused or is unconfirmed."""
        return replace(self, outcome=outcome, code=code)


def in_doubt(acts: Iterable[Act]) -> set[Act]:
    """The acts that may have happened, unless a later one repeated them.

    What is done to another dead letter with the same key, or with another new body, repeats nothing.
    """
    known = list(acts)
    last: dict[tuple[str, ...], str] = {}
    for act in known:
        if act.outcome == ActOutcome.DONE:
            last[act.verb, *act.about] = max(act.id, last.get((act.verb, *act.about), ""))
    return {each for each in known if each.may_have_happened and last.get((each.verb, *each.about), "") <= each.id}


class History:
    """The history table. If `table` is None, nothing is stored. Thread-safe.

    Every method raises NotKept if DynamoDB refuses or cannot be reached. `foreign` counts the items
    read that are not acts.
    """

    def __init__(self, dynamodb: "DynamoDBClient", table: str | None, clock: Clock) -> None:
        self.table, self.foreign = table, 0
        self._dynamodb, self._clock = dynamodb, clock

    def begin(self, acts: Sequence[Act]) -> list[Act]:
        """Write acts that are about to be carried out; returns them in order, ready for `confirm`.

        If this raises, carry out none of them, although the table may show some as begun.
        """
        at = _iso(self._clock.epoch_ms())
        drawn = self._clock.versions(len(acts))
        begun = [
            replace(act, id=f"{at}-{random}", why=act.why[:MOST_WHY]) for act, random in zip(acts, drawn, strict=True)
        ]
        self._write(begun)
        return begun

    def confirm(self, acts: Sequence[Act]) -> None:
        """Write the outcomes of acts that were begun. If this raises, they remain unconfirmed."""
        assert all(each.id and each.outcome for each in acts), "only acts that have begun and ended can be confirmed"
        now_ms = self._clock.epoch_ms()
        self._write([replace(each, ended_ms=now_ms) for each in acts])

    def of_key(self, key: str) -> list[Act]:
        """All acts stored under a key, oldest first."""
        names = {"#key": "key"}
        asked = {"KeyConditionExpression": "#key = :key", "ExpressionAttributeNames": names, "ConsistentRead": True}
        return list(self._read("query", "Query", {**asked, "ExpressionAttributeValues": {":key": {"S": key}}}))

    def between(self, since_ms: int, until_ms: int) -> Iterator[Act]:
        """The acts that began in this time range (end excluded), each once, in no particular order. Scans the table."""
        # A sort key starts with its act's time, so it sorts after the time alone. A key that does not start with a
        # digit is foreign.
        texts = {":since": _iso(since_ms), ":until": _iso(until_ms), ":first": "0", ":beyond": ":"}
        asked = {
            "FilterExpression": f"{_BETWEEN} OR {_FOREIGN}",
            "ExpressionAttributeNames": {f"#{name}": name for name in ("act", "verb", "mirror")},
            "ExpressionAttributeValues": {name: {"S": text} for name, text in texts.items()},
        }
        return self._read("scan", "Scan", asked)

    def _read(self, method: str, operation: str, asked: dict[str, Any]) -> Iterator[Act]:
        if self.table is None:
            return
        paginator: Any = self._dynamodb.get_paginator(method)  # type: ignore[call-overload]  # either of two
        try:
            for page in paginator.paginate(TableName=self.table, **asked):
                found = list(map(_act, page["Items"]))
                self.foreign += found.count(None)
                yield from (act for act in found if act is not None)
        except (ClientError, BotoCoreError) as error:
            raise self._not_kept(error, operation) from error

    def _write(self, acts: Sequence[Act]) -> None:
        if self.table is None:
            return
        kept = [one for each in acts for one in (each, *_mirrored(each))]
        requests = list(chunks([{"PutRequest": {"Item": _item(each)}} for each in kept], A_REQUEST))
        if len(requests) == 1:
            self._put(requests[0])
        elif requests:
            with ThreadPoolExecutor(min(PARALLEL, len(requests))) as pool:
                list(pool.map(self._put, requests))

    def _put(self, puts: Sequence[Any]) -> None:
        """Put up to 25 items. Repeating a put changes nothing."""
        assert self.table is not None
        for attempt in range(MAX_WRITE_TRIES):
            if attempt > 0:
                self._clock.sleep(self._clock.fraction() * min(MAX_PAUSE_SECONDS, 0.1 * 2**attempt))
            try:
                answer = self._dynamodb.batch_write_item(RequestItems={self.table: puts})
            except (ClientError, BotoCoreError) as error:
                raise self._not_kept(error, "BatchWriteItem") from error
            left = answer.get("UnprocessedItems", {}).get(self.table)
            if not left:
                return
            puts = left
        raise NotKept(f"the history table {self.table} is being throttled: try again later")

    def _not_kept(self, error: ClientError | BotoCoreError, operation: str) -> NotKept:
        code = code_of(error)
        if code.startswith("Validation"):
            return NotKept(
                f"table {self.table} is not a history table, which has the string keys `key` and `act` ({code})"
            )
        return NotKept(f"the history: {explained(code, ApiCall(operation, str(self.table), f'dynamodb:{operation}'))}")


def _iso(epoch_ms: int) -> str:
    """A time in the format of a sort key. The length is fixed, so that text order is time order."""
    seconds, milliseconds = divmod(epoch_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{milliseconds:03}Z"


_NEEDED = ("verb", "key", "message_id", "queue", "dead_letter_queue", "operator", "why", "plan", "other")
_TEXTS = (*_NEEDED, "outcome", "code")
_BETWEEN = "(#act >= :since AND #act < :until AND attribute_not_exists(#mirror))"
_FOREIGN = "#act < :first OR #act >= :beyond OR attribute_not_exists(#verb)"


def _mirrored(act: Act) -> Iterator[Act]:
    if act.other:
        yield replace(act, key=act.other, other=act.key, mirror=True)


def _item(act: Act) -> dict[str, Any]:
    texts = {name: getattr(act, name) for name in _TEXTS}
    item: dict[str, Any] = {"act": {"S": act.id}, **{name: {"S": text} for name, text in texts.items() if text}}
    mirror = {"mirror": {"BOOL": True}} if act.mirror else {}
    return item | mirror | ({} if act.ended_ms is None else {"ended": {"N": str(act.ended_ms)}})


def _act(item: dict[str, Any]) -> Act | None:
    """The act in an item; None for a foreign item: one without a verb, or with an invalid text or time."""
    try:
        texts: dict[str, Any] = {name: item[name]["S"] for name in _TEXTS if name in item}
        ended_ms = int(item["ended"]["N"]) if "ended" in item else None
        known = {**dict.fromkeys(_NEEDED, ""), **texts}
        act = Act(**known, id=item["act"]["S"], mirror="mirror" in item, ended_ms=ended_ms)
        for text in (act.id, *texts.values()):
            text.encode()
        for time_ms in (act.at_ms, ended_ms or 0):
            datetime.fromtimestamp(time_ms / 1000, UTC)
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return None
    return act if act.verb else None
