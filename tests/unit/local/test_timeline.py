"""A run's timeline says what its observers recorded; and its page shows it in a browser, whatever the texts say."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from local.workload.evidence import Call, DeadLetter, Delivery, End, Kill, Line, Start, Write
from local.workload.reconciliation import Reconciliation
from local.workload.timeline import marks_of, page_of
from local.workload.transfers import Kind, TransferMessage, Workload

if TYPE_CHECKING:
    pass

KILLED, BESIDE, DEAD = "1-killed_before-00000", "1-good-00001", "1-garbage-00002"
HOSTILE = '</script><script>document.title = "taken"</script><!-- "the run" & <b>'


def delivered(at: int, name: str | None, worker: str, *, receives: int = 1, key: str | None = None) -> Delivery:
    return Delivery(at_ms=at, worker=worker, name=name, key=key or f"m-{name}", sent_ms=1000, receives=receives)


def wrote(at: int, name: str, worker: str, move: Any, **more: Any) -> Write:
    return Write(at_ms=at, done_ms=at + 1, worker=worker, name=name, move=move, **more)


def started(at: int, name: str, worker: str) -> Start:
    return Start(at_ms=at, worker=worker, name=name, lease_until_ms=at + 13_000)


LOG: list[Line] = [
    delivered(1100, BESIDE, "w1"),
    delivered(1100, KILLED, "w1"),
    wrote(1110, BESIDE, "w1", "claim", attempt=1),
    wrote(1110, KILLED, "w1", "claim", attempt=1),
    started(1120, BESIDE, "w1"),
    wrote(1125, BESIDE, "w1", "complete", attempt=1),
    End(at_ms=1126, worker="w1", name=BESIDE, ok=True),
    started(1130, KILLED, "w1"),
    Call(at_ms=1131, name=KILLED, accepted=True, done=False),
    Kill(at_ms=1140, worker="w1", overdue=False, name=KILLED, place="post.before"),
    delivered(1150, None, "w3", key="m-dead"),
    wrote(1160, "m-dead", "w3", "claim", attempt=1),
    wrote(1170, "m-dead", "w3", "fail"),
    delivered(9100, KILLED, "w2", receives=2),
    wrote(9110, KILLED, "w2", "claim", attempt=2, over="w1"),
    started(9120, KILLED, "w2"),
    wrote(9130, KILLED, "w2", "complete", attempt=2),
    End(at_ms=9131, worker="w2", name=KILLED, ok=True),
]
FOUND = Reconciliation(
    workload=Workload(
        messages=(
            TransferMessage(KILLED, Kind.KILLED_BEFORE, "a", "b", 10),
            TransferMessage(BESIDE, Kind.GOOD, "a", "b", 20),
            TransferMessage(DEAD, Kind.GARBAGE, "a", "b", 30, garbage="{"),
        ),
        opening={"a": 100, "b": 0},
    ),
    protected=True,
    sent={KILLED: f"m-{KILLED}", BESIDE: f"m-{BESIDE}", DEAD: "m-dead"},
    entries=[],
    closing={"a": 100, "b": 0},
    records={},
    dead_letters=[DeadLetter(message_id="m-dead", reason=HOSTILE, sent_ms=1165)],
    left=0,
    log=LOG,
)


def test_a_message_whose_worker_was_killed_and_that_was_taken_over_shows_just_that() -> None:
    assert [(mark.at_ms, mark.kind, mark.worker) for mark in marks_of(FOUND)[KILLED]] == [
        (1000, "sent", ""),
        (1100, "delivered", "w1"),
        (1110, "claimed", "w1"),
        (1130, "started", "w1"),
        (1140, "killed", "w1"),
        (9100, "delivered", "w2"),
        (9110, "taken over", "w2"),
        (9120, "started", "w2"),
        (9130, "completed", "w2"),
    ]
    texts = [mark.text for mark in marks_of(FOUND)[KILLED]]
    assert "worker w2 took it over from worker w1, as attempt 2" in texts
    assert "delivered to worker w2 (receive 2)" in texts


def rows_of(found: Reconciliation, title: str = "a run") -> Any:
    run = json.loads(page_of(found, title).partition('id="data">')[2].partition("</script>")[0])
    assert run["title"] == title
    return run["rows"]


def test_a_text_cannot_end_the_data_or_call_for_anything_from_elsewhere() -> None:
    page = page_of(FOUND, HOSTILE)
    assert page.count("</script>") == 3
    assert rows_of(FOUND, HOSTILE)
    assert "default-src 'none'" in page
    assert not re.search(r"https?:|\bsrc=|\bhref=|@import|url\(", page.replace(json.dumps(HOSTILE), ""))
