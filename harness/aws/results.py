"""The results of a trial: checks with verdicts, and figures. Only a verdict that starts with `failed` is bad."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

PASSED, FAILED = "passed", "failed"


@dataclass(frozen=True, slots=True)
class Results:
    """The results at one place."""

    checks: dict[str, str] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def failures(self) -> dict[str, str]:
        return {name: verdict for name, verdict in self.checks.items() if verdict.startswith(FAILED)}

    def judge(self, what: str, status: int | None, said: str, told: dict[str, Any] | None) -> None:
        """Judge a program by its status, and store its last one-line JSON object."""
        self.checks[what] = PASSED if status == 0 else f"{FAILED}: status {status}"
        if told is not None:
            found = next((each for each in map(_object, reversed(said.splitlines())) if each is not None), {})
            told.update({f"{what}: {name}": value for name, value in found.items()})


def _object(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
