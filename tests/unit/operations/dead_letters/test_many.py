"""Twenty thousand dead letters: how long a redrive, a list and an archiving take, and how many requests and how much
memory. What the queues and the bucket in memory hold is let go, or it would count as the command's.
"""

from __future__ import annotations

import json
import resource
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver.operations.cli.dlq_report import letter_values
from idempotent_receiver.operations.dead_letters.verbs import archive_dispositions, redrive_dispositions
from idempotent_receiver.sqs.dead_letter import Stamp
from idempotent_receiver.transaction.outbox import STAMP
from tests.counting_store import CountingStore
from tests.queues import Queues
from tests.unit.operations.dead_letters.bank import Bank
from tests.unit.operations.dead_letters.bucket import TOLD, Bucket

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.queues import Kept

LETTERS = 20_000
A_BATCH = 100
SECONDS = 300
MOST_MB = 200
MOST_REQUESTS = LETTERS // 10 * 5
"""Letters are received, sent, deleted and held for longer in batches of ten; records are read by the hundred."""


class Forgetting(Queues):
    """Queues that count requests, and keep nothing of what is sent back."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.counts: Counter[str] = Counter()
        self.sent = 0

    def request(self, name: str, asked: dict[str, Any], take_effect: Callable[[], Any]) -> Any:
        self.counts[name] += 1
        self.calls.clear()
        return super().request(name, {}, take_effect)

    def _put(self, queue: Any, sent: dict[str, Any]) -> Kept:
        kept = super()._put(queue, sent)
        if queue.dead_letters is not None:
            queue.messages.clear()
            self.sent += 1
        return kept


class Sink(Bucket):
    """A bucket that counts what is put into it."""

    def put_object(self, **asked: Any) -> Any:
        super().put_object(**asked)
        self.objects.clear()


class Many(Bank):
    """A bank with so many dead letters, whose workers make a real command's requests at a time."""

    def __init__(self) -> None:
        super().__init__(workers=8)
        self.sqs = Forgetting(self.clock)
        self.dead = self.sqs.create("dead")
        self.queue = self.sqs.create("transfers", self.dead)
        self.store = CountingStore(None)
        for number in range(LETTERS):
            id = f"{number:08x}-0000-4000-8000-000000000001"
            stamp = Stamp(key=id, original_id=id, queue=self.queue.arn).to_json()
            attributes = {STAMP: {"DataType": "String", "StringValue": stamp}}
            body = json.dumps({"name": f"throttled-{number}"})
            self.sqs.send_message(QueueUrl=self.dead.url, MessageBody=body, MessageAttributes=attributes)
        self.sqs.counts.clear()


def redriven(bank: Many) -> None:
    summary = bank.redrive(dispositions=redrive_dispositions(bank.queue.url), rate=1e6)
    assert (summary.done["moved"], bank.sqs.sent, bank.dead.messages) == (LETTERS, LETTERS, [])  # type: ignore[attr-defined]


def listed(bank: Many) -> None:
    seen = 0
    with bank.session() as session:
        while taken := session.take(A_BATCH):
            seen += len([letter_values(each, bodies=False) for each in taken])
    assert seen == len(bank.dead.messages) == LETTERS


def archived(bank: Many) -> None:
    summary = bank.redrive(dispositions=archive_dispositions(partial(Sink(bank).archive().put, **TOLD)))
    assert (summary.done["archived"], bank.dead.messages) == (LETTERS, [])


@pytest.mark.parametrize(("verb", "more"), [(redriven, 0), (listed, 0), (archived, LETTERS)])
def test_twenty_thousand_are_gone_through_in_bounds(verb: Callable[[Many], None], more: int) -> None:
    bank = Many()
    before, began = peak_mb(), time.monotonic()

    verb(bank)

    seconds, grown = time.monotonic() - began, peak_mb() - before
    counts: Counter[str] = bank.sqs.counts  # type: ignore[attr-defined]
    counts["reads of records"] = len(bank.store.asked)  # type: ignore[attr-defined]
    told = ", ".join(f"{count} {name}" for name, count in counts.most_common())
    print(f"\n{LETTERS} {verb.__name__} in {seconds:.1f} s and {grown:.0f} MB more: {told}")
    assert counts.total() <= MOST_REQUESTS + more
    assert (seconds < SECONDS, grown < MOST_MB) == (True, True)


def peak_mb() -> float:
    """The most memory that this process ever took."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
