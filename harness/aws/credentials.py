"""How long the caller's credentials last, as far as botocore knows: a trial that would outlast them does not start."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from botocore.credentials import Credentials

FIXED = "env"
"""Where botocore found credentials that it cannot renew: a process's environment does not change."""
REMEDY = "Sign in for longer, soak for fewer MINUTES, or name a profile that botocore renews with AWS_PROFILE."


def lasting(credentials: Credentials, minutes: int) -> str:
    """Describe how long they last. Raises ValueError if they are known to end before the required minutes."""
    ends: datetime | None = getattr(credentials, "_expiry_time", None)  # botocore has no public name for it
    if ends is None:
        if credentials.get_frozen_credentials().token is None:
            return "these credentials do not expire"
        return (
            f"these credentials are temporary, with an unknown end. If they end in less than {minutes} "
            "minutes, the trial stops, and what it created remains"
        )
    left = int((ends - datetime.now(UTC)).total_seconds() // 60)
    if _fixed(credentials) and left < minutes:
        raise ValueError(f"these credentials end in {left} minutes, and this takes about {minutes}. {REMEDY}")
    return f"these credentials end in {left} minutes" + ("" if _fixed(credentials) else ", and botocore renews them")


def _fixed(credentials: Any) -> bool:
    return bool(credentials.method == FIXED)
