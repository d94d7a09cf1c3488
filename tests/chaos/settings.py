"""What all processes of one run agree on: names, and times that are short enough to see leases end."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import idempotent_receiver
from local.cloud import ROOT

RECORDS, ACCOUNTS, ENTRIES = "records", "accounts", "entries"

TIMEOUT_SECONDS = 3.0
"""The function's time-out: a worker that has not answered by then is killed, as Lambda does."""
STOP_MARGIN_SECONDS = 1.0
LEASE_MARGIN_SECONDS = 1.5
VISIBILITY_SECONDS = 6
"""Longer than a lease, which ends at the time-out and its margin: what a killed worker had is then free."""
MOST_RECEIVES = 8
"""Then the queue moves a message to the dead-letter queue by itself."""
MESSAGES_A_BATCH = 10
CONCURRENCY = 4
"""Handlers that a worker runs at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a worker, or the proxy, finds in its environment."""

    port: int
    """Of the cloud; for workers, of the proxy before it."""
    log: str
    worker: str = ""
    dead_letter_queue_url: str = ""
    protected: bool = True
    seed: int = 1

    def environment(self) -> dict[str, str]:
        """The settings as a process is given them, with the library that this one has: it may have a planted bug."""
        library = Path(idempotent_receiver.__file__).resolve().parents[1]
        path = os.pathsep.join(map(str, (library, ROOT, ROOT / "src")))
        return {"CHAOS": json.dumps(asdict(self)), "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}

    @classmethod
    def from_environment(cls) -> Settings:
        """The settings of this process."""
        return cls(**json.loads(os.environ["CHAOS"]))
