"""The read before a claim of a key that probably has a record: a duplicate then costs one read and no write."""

from collections.abc import Collection
from typing import NamedTuple

from idempotent_receiver.protocol.answers import Claimable, Exhausted, Refusal
from idempotent_receiver.protocol.record import Change, Record, Status
from idempotent_receiver.protocol.transitions import Claim, Claimed, decide

PeekAnswer = Claimable | Refusal


class Peek(NamedTuple):
    """A claim's first read of a key that probably has a record. It decides but writes nothing."""

    claim: Claim

    @property
    def id(self) -> str:
        """The record's id."""
        return self.claim.id

    def step(self, seen: Record | None, sent_versions: Collection[str], now_ms: int, version: str) -> PeekAnswer:
        """The existing answer, or `Claimable` with the record that the claim would replace."""
        answer = decide(seen, self.claim, sent_versions, now_ms)
        assert not isinstance(answer, Claimed)  # a peek has written nothing
        # Unless it is SENDING, an exhausted record must be FAILED first: the claim writes that.
        unfenced = isinstance(answer, Exhausted) and answer.record.status == Status.INPROGRESS
        return Claimable(seen) if unfenced else answer

    def applied(self, change: Change) -> Claimable:
        """Never called: there is no change."""
        raise AssertionError  # a peek writes nothing
