"""The memory of one invocation: `python -m benchmarks.memory empty|imports|ours EVENT` prints the peak in KB.

A process of its own for each, since a process gives little back. What it starts from is what a function that does
nothing holds when it is given the same event, as JSON text that it reads as Lambda's runtime does.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.peak import peak_kb

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.endpoint import Loopback
    from benchmarks.measure import Spread

KINDS = ("empty", "imports", "ours")


def main(kind: str, path: Path) -> None:
    """Handle the event as this kind does, and print the peak."""
    with contextlib.redirect_stdout(io.StringIO()):
        handler = _handler(kind)
        event = json.loads(path.read_bytes())
        answer = handler(event, _context())
    assert answer == {"batchItemFailures": []}
    print(peak_kb())


def _handler(kind: str) -> Callable[[Any, Any], Any]:
    def empty(event: Any, context: Any) -> Any:
        return {"batchItemFailures": []}

    if kind == "empty":
        return empty
    from benchmarks.settings import Settings  # noqa: PLC0415  # not the empty function's
    from benchmarks.subjects import ours  # noqa: PLC0415  # likewise

    consumer = ours.build(Settings(table="records", entries="entries"))
    if kind == "ours":
        return consumer
    consumer({"Records": []}, _context())
    return empty


def _context() -> Any:
    from benchmarks.settings import Context  # noqa: PLC0415  # small, and the same for all

    return Context()


def peaks(messages: int, endpoint: Loopback, rounds: int) -> dict[str, Spread]:
    """The peak in MB of each kind, given the same fresh event."""
    from benchmarks.measure import Spread, python  # noqa: PLC0415  # the parent's work, not the measured one's
    from benchmarks.settings import event  # noqa: PLC0415  # likewise

    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "event.json"
        path.write_text(json.dumps(event(messages)))
        for _ in range(rounds):
            for kind in KINDS:
                endpoint.clear()
                endpoint.create_table("records", "id")
                endpoint.delay(0.005)
                told = python(["-m", "benchmarks.memory", kind, str(path)], endpoint.url)
                found[kind].append(int(told) / 1024)
    return {kind: Spread.of(values) for kind, values in found.items()}


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
