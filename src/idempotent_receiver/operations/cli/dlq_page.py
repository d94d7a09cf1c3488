"""The page of `receiver dlq list --out FILE.html`: each dead letter with its record and its history, for a browser.

Dead letters are written as they arrive; only their group summaries stay in memory.
"""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from pathlib import Path
from typing import Any, TextIO

from idempotent_receiver.operations.cli import dlq_report as report
from idempotent_receiver.operations.cli.deployment import Deployment
from idempotent_receiver.operations.cli.history import act_values
from idempotent_receiver.operations.cli.terminal import Terminal, counted, moment, typed
from idempotent_receiver.operations.dead_letters.following import became
from idempotent_receiver.operations.dead_letters.history import Act, Verb, in_doubt
from idempotent_receiver.operations.dead_letters.queue import chunks
from idempotent_receiver.operations.dead_letters.triage import ACTS, DAY_MS, Decision, Verdict
from idempotent_receiver.operations.dead_letters.verbs import delete_dispositions, redrive_dispositions
from idempotent_receiver.operations.dead_letters.workers import Workers
from idempotent_receiver.operations.page import around, data_text
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.protocol.store import READS_A_CALL, Unknown

TEMPLATE = Path(__file__).with_name("dlq_page.html")

ACTS_MS = 14 * DAY_MS
"""SQS's maximum retention: older acts concern messages that no longer exist."""

MOST_ACTS = 10_000

_ENDABLE = sorted(delete_dispositions())
COMMANDS = (
    ("Redrive, and delete those already completed", "receiver dlq redrive", ACTS),
    (
        "Include those that failed for good, once the cause is fixed",
        "receiver dlq redrive --include-permanent",
        [Verdict.PERMANENT],
    ),
    (
        "Include those older than the record retention, if they have not run",
        "receiver dlq redrive --force",
        [Verdict.TOO_OLD],
    ),
    (
        "Keep in the archive",
        "receiver dlq archive --because WHY",
        sorted([*_ENDABLE, Verdict.RESENDING, Verdict.UNSENT]),
    ),
    ("Delete permanently", "receiver dlq delete --because WHY", _ENDABLE),
)
"""The actions offered for selected dead letters: label, start of the command, and the verdicts it applies to."""

BECOMES = {**report.STAYS, **{str(verdict): each.becomes for verdict, each in redrive_dispositions("").items()}}


@dataclass
class Page:
    """A page that is being written to a file: `add` each dead letter, then `finish`."""

    file: TextIO
    deployment: Deployment
    bodies: bool
    rows: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        before, self._after = around(TEMPLATE.read_text(encoding="utf-8"))
        self.file.write(f'{before}{{"letters": [')

    def add(self, decision: Decision) -> None:
        """Write one dead letter."""
        of = decision.dead_letter
        # A key may begin with a dash, like an option.
        key = None if not of.key else f"-- {shlex.quote(of.key)}" if of.key.startswith("-") else shlex.quote(of.key)
        most = self.deployment.description.max_attempts
        whole = {**report.whole_letter(decision, bodies=self.bodies, max_attempts=most), "typed_key": key}
        whole["typed"] = typed(message_id=of.id)[0]
        self.file.write(("," if self.rows else "") + data_text(whole))
        self.rows.append(report.letter_values(decision, bodies=False, max_attempts=most))

    def finish(self, acts: Sequence[Act], look: Mapping[str, Any], seen: Mapping[str, str], now_ms: int) -> None:
        """Write the rest of the page: the values of the `look`, and the acts. `seen` maps record ids to messageIds."""
        groups = report.grouped(self.rows)
        for each in groups:
            del each["letters"]
        verdicts = Counter(each["verdict"] for each in self.rows)
        rest = {
            **look,
            "title": f"Dead letters of {self.deployment.queue.arn.rpartition(':')[2]}",
            "dead_letter_queue": self.deployment.dead_letter_queue.arn,
            "made_at": moment(now_ms),
            "bodies": self.bodies,
            "options": self.deployment.typed,
            "commands": [dict(zip(("does", "begins", "verdicts"), each, strict=True)) for each in COMMANDS],
            "plan": [
                {"verdict": name, "count": count, "becomes": BECOMES.get(name, "stays")}
                for name, count in verdicts.most_common()
            ],
            "groups": [{**each, "typed": typed(group=each["name"])[0]} for each in groups],
            "acts": _became(acts, seen, self.deployment, now_ms),
        }
        self.file.write(f"], {data_text(rest)[1:]}{self._after}")


def acts_of(deployment: Deployment, terminal: Terminal) -> list[Act]:
    """The latest acts on this consumer's dead letters, newest first."""
    kept, now_ms = deployment.history(terminal), terminal.clock.epoch_ms()
    found = kept.between(now_ms - ACTS_MS, now_ms + DAY_MS)  # Another operator's clock may be ahead.
    own = (each for each in found if each.queue == deployment.queue.arn)
    acts = nlargest(MOST_ACTS, own, key=lambda act: act.id)
    if kept.foreign:
        terminal.note(f"Left out: {counted(kept.foreign, 'item')} of {kept.table} that are not readable actions.")
    return acts


def _became(acts: Sequence[Act], seen: Mapping[str, str], deployment: Deployment, now_ms: int) -> list[dict[str, Any]]:
    """The acts, newest first, each with the fate of the message it moved."""
    records = _records(list(dict.fromkeys(act.key for act in acts if act.verb == Verb.MOVED)), deployment)
    since, doubts = dict(seen), in_doubt(acts)
    values = []
    for act in acts:
        # A later act on the key, or a current dead letter, has a different messageId: the moved message failed again.
        dead = since.get(act.key, act.message_id) != act.message_id
        fate = became(act, records.get(act.key), now_ms, deployment.retention_seconds, dead=dead)
        values.append({**act_values(act, deployment, doubt=act in doubts), "became": fate})
        since[act.key] = act.message_id
    return values


def _records(ids: Sequence[str], deployment: Deployment) -> Mapping[str, Record | Unknown | None]:
    reads = Workers().results(deployment.store.read, chunks(ids, READS_A_CALL))
    return dict(zip(ids, (record for read in reads for record in read), strict=True))
