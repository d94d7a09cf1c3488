"""How batches are received: what a consumer has decided once for all of them."""

from collections.abc import Callable
from dataclasses import dataclass

from idempotent_receiver.batch.executor import Executor
from idempotent_receiver.errors import Failure
from idempotent_receiver.handler.results import Results
from idempotent_receiver.protocol.store import RecordStore

SendDeadLetter = Callable[[int, Failure], bool]
"""Sends a dead letter for the work of an index, and says whether it is confirmed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`stop_margin_seconds` is the time kept for settling and answering. Results that would make a record larger than
    `largest_record_bytes` go to `results`, or are dropped for a marker. `asynchronous` says that the handlers are
    coroutine functions, and `claiming` whether keys are claimed before they run: without, each record is written once,
    together with its handler's effects.
    """

    store: RecordStore
    executor: Executor
    concurrency: int = 1
    asynchronous: bool = False
    claiming: bool = True
    send_dead_letter: SendDeadLetter | None = None
    stop_margin_seconds: float = 1.0
    largest_record_bytes: int = 1024
    results: Results | None = None
    error_texts: bool = False
