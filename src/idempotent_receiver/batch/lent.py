"""Runs of handlers inside their store's own transaction: what the store asks for, and how a run ended."""

from collections.abc import Callable
from contextvars import copy_context
from dataclasses import replace

from idempotent_receiver.batch.items import Item
from idempotent_receiver.batch.settings import Settings
from idempotent_receiver.clock import Deadline, Moment
from idempotent_receiver.errors import Failure, failure_of
from idempotent_receiver.handler import outcome
from idempotent_receiver.handler.attempt import Attempt, Handle, Handled, Raised, Returned, inline, run
from idempotent_receiver.handler.lending import Inside, LendingStore, LentRun, NotRun, Ran
from idempotent_receiver.protocol import transitions
from idempotent_receiver.protocol.store import Unknown
from idempotent_receiver.protocol.transitions import Settlement, Unclaimed

LARGEST_RECORD_BYTES = 1024
"""The largest record that keeps a message's result: no caller waits for it, and a larger record costs more to write."""


def lent(
    item: Item,
    lender: LendingStore,
    settings: Settings,
    deadline: Deadline,
    *,
    new_attempt: Callable[[], Attempt],
    in_time: Callable[[Moment], bool],
) -> Ran | NotRun:
    """Have the store run an item in its own transaction, which also writes the record."""
    charged: list[Failure] = []

    def run_inside(basis: Unclaimed, inside: Inside) -> Handled:
        item.basis = basis
        handle: Handle = item.work.handle  # a store lends nothing to coroutine functions
        return run(lambda attempt: inside(attempt, handle), new_attempt(), with_text=settings.error_texts)

    def complete(basis: Unclaimed, returned: Returned) -> Settlement:
        data = inline(basis, returned.data, LARGEST_RECORD_BYTES)
        return transitions.complete(basis, data, returned.outbox, deadline.now_ms)

    def fail(basis: Unclaimed, raised: Raised) -> Settlement:
        failure, cost = outcome.charge(basis.record, raised.failure, item.claim.allowance, deadline.now_ms)
        charged[:] = [failure]
        return transitions.fail(basis, failure.to_json(), started=failure.started, charged=cost)

    asked = LentRun(
        item.claim,
        deadline,
        run_inside,
        complete,
        fail,
        lambda error: Raised(failure_of(error, with_text=settings.error_texts), error),
        lambda: in_time(deadline.moment()),
    )
    try:
        ended = copy_context().run(lender.run, asked)
    except Exception as error:  # noqa: BLE001  # anything a store raises is a defect
        failure = failure_of(error)
        return NotRun(Unknown(failure.text or f"the store raised {failure.type} at {failure.at}", retry=False))
    if isinstance(ended, Ran) and isinstance(ended.handled, Raised) and charged:
        return Ran(replace(ended.handled, failure=charged[0]), ended.answer)
    return ended


def away(ended: NotRun) -> bool:
    """Whether the store could not be asked, so that no other item can run either."""
    return isinstance(ended.answer, Unknown) and ended.answer.retry
