"""Records that other workers, or Powertools, have written, and transitions of this one."""

from __future__ import annotations

from idempotent_receiver.protocol import transitions
from idempotent_receiver.protocol.execution import Conclusion
from idempotent_receiver.protocol.record import Change, Record, Status
from idempotent_receiver.protocol.transitions import Claim, Claimed, Settlement

NOW_MS = 1_800_000_000_000
NOW = NOW_MS // 1000
DAY = 24 * 60 * 60


def existing(status: str, **changes: object) -> Record:
    """A record of another worker, far from its expiration, with a lease that has ended."""
    made = Record(
        id="k",
        status=status,
        version="theirs",
        expiration=NOW + DAY,
        in_progress_expiration=NOW_MS - 1 if status == Status.INPROGRESS else None,
        attempts=1,
        validation="ours",
        owner="them",
    )
    return made._replace(**changes)  # type: ignore[arg-type]


def by_powertools(status: str, **changes: object) -> Record:
    """A record as AWS Lambda Powertools writes it: without version, attempts or fingerprint."""
    return existing(status, version=None, attempts=None, validation=None, owner=None, **changes)


def claim(**changes: object) -> Claim:
    made = Claim(id="k", fingerprint="ours", owner="me", lease_until_ms=NOW_MS + 30_000, retention_seconds=DAY)
    return made._replace(**changes)  # type: ignore[arg-type]


def change_of(transition: Claim | Settlement, seen: Record | None, version: str = "fresh") -> Change:
    change = transition.step(seen, (), NOW_MS, version)
    assert isinstance(change, Change)
    return change


def applied_claim(seen: Record | None = None, **changes: object) -> Claimed:
    """A claim of this worker that the store has applied."""
    wanted = claim(**changes)
    return wanted.applied(change_of(wanted, seen, "claim-version"))


def conclusion(**changes: object) -> Conclusion:
    given = {"id": "k", "execution": "arn:1", "outcome": transitions.completed("1"), **changes}
    return Conclusion(**given)  # type: ignore[arg-type]
