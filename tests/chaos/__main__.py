"""`make chaos`: 20,000 messages through worker processes on an awful day, and the books.

What it takes comes from the environment: N, SEED, SEATS and PROTECTION. Its last line is one JSON object, and its
status 0 only if everything in it is as promised, and the faults did happen.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from local.cloud import LOOPBACK, ROOT, embedded_cloud
from local.program import protected, run_to_its_end, whole
from local.server import running
from tests.chaos import proxy
from tests.chaos.books import Books
from tests.chaos.faults import LONGEST_DELAY_SECONDS
from tests.chaos.log import Log, lines_of
from tests.chaos.mapping import Mapping, Queue
from tests.chaos.settings import Settings
from tests.chaos.show import Show
from tests.chaos.stage import set_up
from tests.chaos.tale import tell

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.chaos.stage import Stage
    from tests.chaos.tale import Tale

EVIDENCE = ROOT / ".build" / "chaos"
"""Where the log is kept, for whoever looks into it; the next run empties it."""

MOST_QUEUED = 400
STALL_SECONDS = 60.0
LIMIT_SECONDS, LIMIT_SECONDS_A_MESSAGE = 120.0, 0.2
POLL_SECONDS = 0.25
QUIET_POLLS = 3
"""How often in a row the queue must say that it is empty: SQS counts approximately."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What was asked for."""

    number: int
    seed: int
    seats: int
    protected: bool
    evidence: Path

    @property
    def blow_in(self) -> int:
        """In how many of a seat's invocations one is killed, and one frozen: a short run needs some as well."""
        return min(16, max(6, self.number // 40))


def wish_of(environment: os._Environ[str]) -> Wish:
    """Read the environment. Raises ValueError, saying what is wrong with it."""
    return Wish(
        number=whole(environment, "N", 20_000, least=1),
        seed=whole(environment, "SEED", 1, least=1),
        seats=whole(environment, "SEATS", 4, least=1),
        protected=protected(environment),
        evidence=Path(environment.get("EVIDENCE") or EVIDENCE),
    )


def play(wish: Wish, show: Show) -> Books:
    """Play the tale, and collect all evidence."""
    tale = tell(wish.seed, wish.number)
    shutil.rmtree(wish.evidence, ignore_errors=True)
    wish.evidence.mkdir(parents=True)
    with embedded_cloud() as cloud:
        stage = set_up(cloud)
        cloud_port = int(cloud.endpoint_url.rpartition(":")[2])
        liar = proxy.Program(cloud_port, wish.seed, wish.evidence / "proxy.jsonl")
        with running(liar, folder=ROOT) as server:
            with _mapped(wish, stage, server.port) as mapping, show.progress(wish.number) as said:
                sent, gave_up = _played(tale, stage, mapping, said)
            # What is still on its way may arrive, and must do no harm.
            proxy.quiet(server.port, timeout_seconds=LONGEST_DELAY_SECONDS * 2)
        return Books(
            tale=tale,
            protected=wish.protected,
            sent=sent,
            records=stage.records(),
            entries=stage.entries(),
            balances=stage.balances(),
            left=stage.backlog(),
            letters=stage.letters(),
            lines=lines_of(wish.evidence),
            gave_up=gave_up,
        )


def _mapped(wish: Wish, stage: Stage, port: int) -> Mapping:
    settings = Settings(
        worker="",
        endpoint_url=f"http://{LOOPBACK}:{port}",
        queue_arn=stage.queue_arn,
        dead_letter_queue_url=stage.dead_letter_queue_url.replace(
            stage.sqs.meta.endpoint_url, f"http://{LOOPBACK}:{port}"
        ),
        log=str(wish.evidence),
        protected=wish.protected,
    )
    queue = Queue(sqs=stage.sqs, url=stage.queue_url, arn=stage.queue_arn)
    log = Log(wish.evidence / "mapping.jsonl", durable=False)
    return Mapping(queue, settings, log, seats=wish.seats, seed=wish.seed, blow_in=wish.blow_in)


def _played(
    tale: Tale, stage: Stage, mapping: Mapping, said: Callable[[int, Counter[str]], None]
) -> tuple[dict[str, str], str | None]:
    """Send everything, a queueful at a time, and wait until nothing is left to do; why not, if that is in vain.

    Once everything is sent, workers are left alone, so that what is left comes to its end.
    """
    sent: dict[str, str] = {}
    most_queued = min(MOST_QUEUED, max(20, len(tale.parts) // 3))
    begun = changed = time.monotonic()
    limit_seconds = LIMIT_SECONDS + len(tale.parts) * LIMIT_SECONDS_A_MESSAGE
    before, quiet = None, 0
    while quiet < QUIET_POLLS:
        if mapping.trouble is not None:
            raise mapping.trouble
        settled = mapping.quiet  # asked first: a batch that is given out again is in no queue
        backlog = stage.backlog()
        while backlog < most_queued and len(sent) < len(tale.parts):
            sent |= stage.send(tale.parts[len(sent) : len(sent) + 10])
            backlog += 10
        if len(sent) == len(tale.parts):
            mapping.calm.set()
        now = time.monotonic()
        said(len(sent) - backlog, mapping.counts)
        seen = (len(sent), backlog, mapping.counts["Invocation"])
        changed = changed if seen == before else now
        before = seen
        if now - changed > STALL_SECONDS or now - begun > limit_seconds:
            return sent, f"after {now - begun:.0f} s there are {backlog} messages in the queue"
        quiet = quiet + 1 if len(sent) == len(tale.parts) and backlog == 0 and settled else 0
        time.sleep(POLL_SECONDS)
    return sent, None


def perform(show: Show) -> int:
    """Play what the environment asks for, and close the books; return the exit status."""
    wish = wish_of(os.environ)
    begun = time.monotonic()
    show.title(wish.number, wish.seed, wish.seats, protected=wish.protected)
    books = play(wish, show)
    show.books(books)
    show.note(f"all logs are kept in {os.path.relpath(wish.evidence)}")
    sys.stdout.write(json.dumps(books.line() | {"seconds": round(time.monotonic() - begun)}) + "\n")
    sys.stdout.flush()
    return 1 if books.complaints else 0


def main() -> int:
    """Play, whatever comes between; return the exit status."""
    show = Show()
    return run_to_its_end(lambda: perform(show), show)


if __name__ == "__main__":
    sys.exit(main())
