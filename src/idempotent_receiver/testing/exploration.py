"""`explore`: runs a consumer's handler, with the whole library, under every schedule in turn."""

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from idempotent_receiver import options
from idempotent_receiver.sqs.consumer import Consumer
from idempotent_receiver.testing import inputs, outside, stuck
from idempotent_receiver.testing.calls import require_reason
from idempotent_receiver.testing.explored_worker import is_coroutine
from idempotent_receiver.testing.memory import MemoryStore, Table
from idempotent_receiver.testing.report import Exploration
from idempotent_receiver.testing.runs import ExploredRuns
from idempotent_receiver.testing.schedule import Schedule
from idempotent_receiver.testing.search import Search
from idempotent_receiver.testing.setup import Container, Setup

MOST_WORKERS, MOST_FAULTS = 4, 3

_alone = threading.RLock()
"""Held while an exploration runs: fakes and the network are process-wide."""


def explore(
    handler: Callable[..., Any],
    messages: object,
    *,
    tables: Mapping[str, str | tuple[str, ...] | Table] | None = None,
    state: Mapping[str, Container] | None = None,
    workers: int = 2,
    faults: int = 1,
    most_schedules: int = 2000,
    seconds: float = 30.0,
    replay: str | None = None,
    check: bool = True,
    store: Callable[..., Any] = MemoryStore,
    network: str | None = None,
    no_effects: str | None = None,
    at_most_once: str | None = None,
) -> Exploration:
    """Run a decorated handler through SQS, Lambda and network faults. Raises AssertionError, with the story of each
    violation, if a message can take effect twice or not at all.

        def test_my_consumer_survives_it(calls):
            calls.replace(orders, "charge", key="idempotency_key")
            assert explore(orders.lambda_handler, [{"order": "o-1", "cents": 100}], tables={"orders": "order"}).complete

    `handler` is decorated with `@sqs_consumer(...)`, and optionally with other decorators. The shipped code runs in
    virtual time on an in-memory store, with the handler's own options. `messages` is a list of bodies (str or JSON
    values), or an event from `sqs_event`. `tables` names the tables that the handler's `Transaction` uses, as in
    `MemoryStore`; a `Table` can contain items, and fakes can read and write it. `state` names the other objects that
    the handler changes, such as a fake's dict or an `@idempotent` function's `MemoryStore`. Tables and state are
    restored before each schedule and compared after it. State elsewhere, such as a database or a bucket, is a pair of
    functions: `state={"bucket": (reset, snapshot)}`. `reset` makes the initial state, and `snapshot` returns a list of
    rows, or a dict; their order is not compared.

    In every schedule, `workers` workers receive the messages at the same time. Unacknowledged messages are redelivered
    after their leases end, then redriven. Finally, completed messages are delivered once more. Until then, up to
    `faults` faults occur, at any call to the store, SQS or a fake: a worker crashes before or after the call, the
    answer is lost, the request arrives late or never, a fake refuses, or the handler raises. Up to two calls are so
    slow that other workers go first.

    These are violations:

    - tables or state that differ from the fault-free run
    - a message acknowledged before it is COMPLETED, or never acknowledged
    - a fake called again with a different key or without one, never called for a completed message, called only after
      a fault, never awaited, or called with one key for two messages or two calls
    - a fake's refusal without consequence: the message ends as if the call had succeeded
    - a fake called in a run of the handler whose transaction is then refused by a condition with a `PermanentError`

    Repeating a call with the same key is allowed. So are concurrent runs of a handler with `effects="transaction"`,
    which claims no messages but takes effect only once.

    Three more violations are allowed if you give a reason. `network="DynamoDB Local"` allows requests by the handler's
    own clients; otherwise boto3 calls are refused, even under moto, and sockets do not connect.
    `no_effects="it only counts"` allows a handler that touches no table, state or fake. `at_most_once="no SMS is better
    than two"` allows a handler that raises `PermanentError` if `message.attempt > 1`: a message may then fail for good
    without its effects.

    The same input gives the same result. Schedules with the fewest faults run first. `most_schedules` limits their
    number, with a warning if some did not run: assert that the result is `complete`. `replay` runs the one schedule
    that a story names. `check=False` returns violations instead of raising. `seconds` is the Lambda function's
    timeout. `store` creates each schedule's store: `MemoryStore` or a subclass.

    A handler whose store is an `SQLStore` runs on a new SQLite database with the tables of that store's metadata, or on
    the `SQLStore` that `store` returns, whose rows are restored. There, one fault occurs at each statement and COMMIT;
    `tables`, `state`, `workers` and `faults` have no effect, and races between two transactions are not explored.

    Raises TypeError or ValueError, with the remedy, for input that cannot be explored.
    """
    __tracebackhide__ = True
    consumer = inputs.consumer_in(handler)
    options.require_numbers(seconds=seconds)
    options.require_count(most_schedules, "most_schedules")
    inputs.require_between(workers, "workers", 1, MOST_WORKERS)
    inputs.require_between(faults, "faults", 0, MOST_FAULTS)
    require_reason(network, "network")
    require_reason(no_effects, "no_effects")
    require_reason(at_most_once, "at_most_once")
    inputs.require_mapping(tables, "tables")
    inputs.require_mapping(state, "state")
    made = None if tables is None else {name: inputs.table(one) for name, one in tables.items()}
    containers = {} if state is None else dict(state)
    inputs.require_containers(containers, (made or {}).keys())
    only = None if replay is None else Schedule.parsed(replay)
    if hasattr(consumer.options.store, "lends"):
        return _relational(consumer, inputs.records(messages), store, seconds, replay, check=check)
    inputs.require_store_class(store)
    setup = Setup(
        handler=handler,
        consumer=consumer,
        records=inputs.records(messages),
        tables=made,
        state=containers,
        workers=workers,
        seconds=seconds,
        make_store=store,
        at_most_once=at_most_once is not None,
    )
    with _alone, outside.closed(but=network) as requests, stuck.stopped_when_stuck():
        runs = ExploredRuns(setup)
        search = Search(runs, faults, most_schedules, requests)

        def run() -> None:
            with runs.in_place():
                search.run(only, may_do_nothing=no_effects is not None)

        try:
            if consumer.options.concurrency == 1 and not is_coroutine(consumer.__wrapped__):
                run()
            else:
                # As deployed: only a plain handler without concurrency runs on the calling thread.
                stuck.on_another_thread(run)
        except stuck.Stuck:
            search.stop_stuck()
        finally:
            setup.restore()
    if check:
        search.result.check()
    if not search.result.complete and not search.result.violations and only is None:
        warnings.warn(
            f"explore ran {most_schedules} schedules, but not all: raise most_schedules, or lower workers, "
            "faults or the number of messages",
            stacklevel=2,
        )
    return search.result


def _relational(
    consumer: Consumer,
    records: Sequence[Any],
    store: Callable[..., Any],
    seconds: float,
    replay: str | None,
    *,
    check: bool,
) -> Exploration:
    """Explore a handler on a relational database."""
    __tracebackhide__ = True
    # Imported here because it needs the extra `sql`.
    from idempotent_receiver.testing.relational import Relational, database_of  # noqa: PLC0415

    own: Any = consumer.options.store
    with _alone, database_of(own) if store is MemoryStore else nullcontext(store()) as there:
        result = Relational(consumer.lambda_handler, there, records, seconds).explore(replay)
    if check:
        result.check()
    return result
