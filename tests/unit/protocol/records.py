"""Records that other workers, or Powertools, have written."""

from __future__ import annotations

from idempotent_receiver.protocol.record import Record, Status

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
