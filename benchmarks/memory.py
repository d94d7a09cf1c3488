"""The memory of one invocation: `python -m benchmarks.memory empty|imports|ours EVENT` prints the peak in KB.

Each is measured in its own process, because a process gives little memory back. The baseline is a function that does
nothing with the same event, which it parses from JSON as Lambda's runtime does. So that the baseline is small,
other modules are imported where they are needed.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.endpoint import Loopback
    from benchmarks.measure import Spread

KINDS = ("empty", "imports", "ours")


def main(kind: str, path: Path) -> None:
    """Handle the event as this kind does, and print the peak."""
    from benchmarks.settings import Context  # noqa: PLC0415  # small, and the same for all kinds

    with contextlib.redirect_stdout(io.StringIO()):
        handler = _handler(kind, Context())
        event = json.loads(path.read_bytes())
        answer = handler(event, Context())
    assert answer == {"batchItemFailures": []}
    print(_peak_kb())


def _handler(kind: str, context: Any) -> Callable[[Any, Any], Any]:
    def empty(event: Any, context: Any) -> Any:
        return {"batchItemFailures": []}

    if kind == "empty":
        return empty
    from benchmarks.settings import PLAIN  # noqa: PLC0415  # not in the baseline
    from benchmarks.subjects import ours  # noqa: PLC0415  # likewise

    consumer = ours.build(PLAIN)
    if kind == "ours":
        return consumer
    consumer({"Records": []}, context)
    return empty


def _peak_kb() -> int:
    """The largest size of this program. Unlike getrusage's figure, it does not include the parent before exec."""
    status = Path("/proc/self/status")
    if not status.exists():
        import resource  # noqa: PLC0415  # only needed where there is no /proc

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1])


def peaks(messages: int, endpoint: Loopback, rounds: int) -> dict[str, Spread]:
    """The peak in MB of each kind, given the same fresh event."""
    from benchmarks.measure import Spread, python  # noqa: PLC0415  # only for the parent process
    from benchmarks.settings import event  # noqa: PLC0415  # likewise

    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "event.json"
        path.write_text(json.dumps(event(messages)))
        for kind in KINDS * rounds:
            endpoint.clear()
            endpoint.create_table("records", "id")
            endpoint.delay(0.005)
            peak_kb = python(["-m", "benchmarks.memory", kind, str(path)], endpoint.url)
            found[kind].append(int(peak_kb) / 1024)
    return {kind: Spread.of(values) for kind, values in found.items()}


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
