"""`explore`: runs a consumer's handler, with the whole library, under every schedule in turn."""

import threading
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from idempotent_receiver import options
from idempotent_receiver.testing import inputs, outside, stuck
from idempotent_receiver.testing.memory import MemoryStore, Table
from idempotent_receiver.testing.report import Exploration
from idempotent_receiver.testing.runs import ExploredRuns
from idempotent_receiver.testing.schedule import Schedule
from idempotent_receiver.testing.search import Search
from idempotent_receiver.testing.setup import Container, Setup

MOST_WORKERS, MOST_FAULTS = 4, 3

_alone = threading.RLock()
"""Held by the running exploration: fakes and the network belong to the process."""


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
    store: Callable[..., MemoryStore] = MemoryStore,
    network: str | None = None,
    no_effects: str | None = None,
) -> Exploration:
    """Run a decorated handler through the faults of SQS, Lambda and the network. Raises AssertionError with a story of
    every way in which a message takes effect twice, or not at all.

        def test_my_consumer_survives_it(calls):
            calls.replace(orders, "charge", key="idempotency_key")
            assert explore(orders.lambda_handler, [{"order": "o-1", "cents": 100}], tables={"orders": "order"}).complete

    `handler` is the result of `@sqs_consumer(...)`, with any other decorators. The shipped code runs with an in-memory
    store, in virtual time, with the handler's own options. `messages` is a list of bodies (str, or JSON values), or an
    event of `sqs_event`. `tables` are those of the handler's `Transaction`, as in `MemoryStore`; a `Table` may
    have items, and fakes may read and write it. `state` names what else the handler changes, such as the dict of a
    fake, or the `MemoryStore` of an `@idempotent` function. Tables and state are restored before each schedule, and
    compared after it.

    In every schedule, `workers` receive the messages at once. Messages not acknowledged come again once the leases have
    ended, then are redriven, and finally all are delivered once more. Meanwhile at most `faults` faults happen, at any
    call of the store, of SQS, or of a fake: a worker crashes before or after it, the answer is lost, the request
    arrives late or never, a fake refuses, the handler raises; and at most two calls are so slow that others go first.

    A violation is: tables or state that differ from the run without faults; a message acknowledged before it is
    COMPLETED, or never acknowledged; a fake called again with another key or without one, never called for a completed
    message, called only after a fault, never awaited, or called with one key for two messages or two calls; a fake
    that refused a message which ends as if it had not. Repeating a call with the same key is allowed. So is a
    concurrent run of a handler with `effects="transaction"`: nothing claims its message, and its effects exist once.

    Two more violations can be allowed with a reason: a request by the handler's own client (boto3 is refused, also
    under moto, and sockets do not connect), with `network="DynamoDB Local"`; and a handler that touches no table,
    state or fake, with `no_effects="it only counts"`.

    The same input gives the same result. `most_schedules` limits the schedules, with a warning: assert that the
    result is `complete`. Those with the fewest faults come first. `replay` plays one schedule, as a story names it.
    `check=False` returns the violations instead of raising them. `seconds` is the function's time limit. `store`
    makes the store of each schedule, a `MemoryStore` or a class made from it.

    Raises TypeError or ValueError, with the remedy, for input that cannot be explored.
    """
    __tracebackhide__ = True
    consumer = inputs.consumer_in(handler)
    options.require_numbers(seconds=seconds)
    options.require_count(most_schedules, "most_schedules")
    inputs.require_between(workers, "workers", 1, MOST_WORKERS)
    inputs.require_between(faults, "faults", 0, MOST_FAULTS)
    inputs.require_reason(network, "network")
    inputs.require_reason(no_effects, "no_effects")
    inputs.require_mapping(tables, "tables")
    inputs.require_mapping(state, "state")
    made = None if tables is None else {name: inputs.table(one) for name, one in tables.items()}
    containers = {} if state is None else dict(state)
    inputs.require_containers(containers)
    only = None if replay is None else Schedule.parsed(replay)
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
    )
    with _alone, outside.closed(but=network) as requests, stuck.stopped_when_stuck():
        runs = ExploredRuns(setup)
        search = Search(runs, faults, most_schedules, requests)
        try:
            with runs.in_place():
                search.run(only, may_do_nothing=no_effects is not None)
        except stuck.Stuck:
            search.stop_stuck()
        finally:
            setup.restore()
    if check:
        search.result.check()
    if not search.result.complete and not search.result.violations and only is None:
        warnings.warn(
            f"explore played {most_schedules} schedules, but not all: raise most_schedules, or lower workers, "
            "faults or the number of messages",
            stacklevel=2,
        )
    return search.result
