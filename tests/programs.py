"""Programs whose last line is one JSON object, as tests run them to their end."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess


@dataclass(frozen=True)
class Ended:
    """A program that is over."""

    status: int
    output: str

    @property
    def line(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.output.splitlines()[-1])
        return found


def ended(program: subprocess.Popen[str], patience_seconds: float = 175) -> Ended:
    try:
        output, _ = program.communicate(timeout=patience_seconds)
    finally:
        program.kill()
    return Ended(program.returncode, output)
