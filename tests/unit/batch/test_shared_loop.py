"""The event loop that all batches of a process share: each ends what is its own, and nothing else."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import MemoryStore, Message, Transaction, sqs_consumer
from idempotent_receiver.testing.worker import failed_ids
from tests.contexts import Context
from tests.unit.batch.at_once import PATIENCE, Blocking, Collecting, batch
from tests.unit.batch.test_executor import the_loop
from tests.unit.batch.test_left_behind import Noted

if TYPE_CHECKING:
    from collections.abc import Callable


def test_all_consumers_of_a_process_share_one_loop() -> None:
    """Two in one module, whichever is invoked, share the module's clients."""
    loops = []

    async def handle(body: dict) -> None:
        loops.append(asyncio.get_running_loop())

    for _ in range(2):
        consumer = sqs_consumer(MemoryStore())(handle)
        for id in "ab":
            assert failed_ids(consumer(batch(id), Context())) == []

    assert len(loops) == 4
    assert len(set(loops)) == 1


async def with_a_task(kept: list[Any], told: Callable[[str], None]) -> None:
    async def parent() -> None:
        kept.append(asyncio.create_task(child()))
        await asyncio.Event().wait()

    async def child() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            told("ended")

    kept.append(asyncio.create_task(parent()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def with_a_generator(kept: list[Any], told: Callable[[str], None]) -> None:
    async def generator() -> Any:
        try:
            yield 1
        finally:
            told("ended")

    kept.append(generator())
    await anext(kept[-1])


@pytest.mark.parametrize("begins", [with_a_task, with_a_generator])
def test_a_batch_ends_what_it_began_and_nothing_of_another(begins: Callable[..., Any]) -> None:
    """Tasks, their children, and generators of an invocation that overlaps go on, also when this one is cancelled."""
    kept: list[Any] = []
    ends: dict[str, list[str]] = {"long": [], "short": []}
    long, short = Collecting(), Collecting()
    long.run(lambda: begins(kept, ends["long"].append))
    short.run(lambda: begins(kept, ends["short"].append))

    short.executor.cancel_async()
    short.close()
    assert ends == {"long": [], "short": ["ended"]}
    long.close()

    assert ends == {"long": ["ended"], "short": ["ended"]}


def test_a_cancelled_batch_cancels_no_coroutine_of_another() -> None:
    async def waits(go_on: threading.Event) -> str:
        try:
            while not go_on.is_set():  # noqa: ASYNC110  # set by another thread
                await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            return "cancelled"
        return "went on"

    go_on, late, other = threading.Event(), Collecting(), Collecting()
    late.start_async(lambda: waits(threading.Event()))
    other.start_async(lambda: waits(go_on))
    late.executor.cancel_async()
    assert late.wait() == ["cancelled"]
    late.close()
    go_on.set()

    assert other.wait() == ["went on"]
    other.close()


def test_a_generator_that_is_collected_in_another_batch_is_closed_by_its_own() -> None:
    """The other batch ends before, and must not cancel what it does at its end."""
    ends, owner, other = list[str](), Collecting(), Collecting()

    async def generator() -> Any:
        try:
            yield 1
        finally:
            try:
                await asyncio.Event().wait()
            finally:
                ends.append("cancelled")

    async def drops() -> None:
        cycle: list[Any] = [generator()]
        cycle.append(cycle)
        await anext(cycle[0])

    async def collects() -> None:
        gc.collect()
        await asyncio.sleep(0)

    gc.disable()
    try:
        owner.run(drops)
        other.run(collects)
    finally:
        gc.enable()
    assert other.close() is None
    assert ends == []
    owner.close()

    assert ends == ["cancelled"]


def test_the_threads_that_one_batch_leaves_starve_no_other() -> None:
    """With one pool for all, the next batch's reads would wait for threads until its deadline."""
    store, block = MemoryStore(tables={"orders": "id"}), Blocking()

    async def leaves(body: dict) -> None:
        for _ in range(40):  # more than a pool has threads
            await block.left()

    async def reads(body: dict, message: Message, tx: Transaction) -> None:
        await tx.aget(TableName="orders", Key={"id": message.id}, attributes=["total"])

    try:
        answer = sqs_consumer(store, stop_margin_seconds=0.1)(leaves)(batch("a"), Context())
        assert failed_ids(answer) == []
        reader = sqs_consumer(store, concurrency=8, stop_margin_seconds=0.1)(reads)
        assert failed_ids(reader(batch(*"bcdefghi"), Context(seconds=3))) == []
    finally:
        block.go_on.set()


def test_on_lambda_a_clients_own_tasks_end_with_the_invocation_and_are_named_in_the_log() -> None:
    """Nothing may wake up in a later invocation; the line says why such a client's next call fails."""
    log, kept = Noted(), []

    async def receives() -> None:
        await asyncio.Event().wait()

    async def handle(body: dict) -> None:
        kept.append(asyncio.create_task(receives()))

    consumer = sqs_consumer(MemoryStore(), logger=log)(handle)  # type: ignore[arg-type]
    assert failed_ids(consumer(batch("a"), Context())) == []

    assert kept[0].cancelled()
    name = "test_on_lambda_a_clients_own_tasks_end_with_the_invocation_and_are_named_in_the_log.<locals>.receives"
    assert log.warnings == [{"tasks": [name]}]


def test_a_handler_that_stops_the_loop_or_replaces_its_threads_disturbs_no_later_batch() -> None:
    careless, next_one = Collecting(), Collecting()

    async def stops() -> None:
        loop = asyncio.get_running_loop()
        loop.stop()
        with_none: Any = careless  # whatever is set here is replaced when the next batch begins
        loop._default_executor = with_none  # type: ignore[attr-defined]

    async def works() -> str:
        return await asyncio.to_thread(lambda: "worked")

    careless.run(stops)
    careless.close()

    assert next_one.run(works) == ["worked"]
    next_one.close()


def test_a_task_factory_that_a_handler_sets_hides_no_task_of_a_later_batch() -> None:
    """Libraries set one for eager tasks, or to trace them."""
    made, ends, kept = list[Any](), list[str](), list[Any]()

    def factory(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        made.append(coroutine)
        return asyncio.Task(coroutine, loop=loop, **options)

    async def sets() -> None:
        asyncio.get_running_loop().set_task_factory(factory)

    first, second = Collecting(), Collecting()
    first.run(sets)
    first.close()
    second.run(lambda: with_a_task(kept, ends.append))
    second.close()

    assert ends == ["ended"]
    assert len(made) == 3
    kept[0].get_loop().set_task_factory(None)


@pytest.mark.slow
def test_a_forked_process_has_a_loop_of_its_own() -> None:
    """A thread does not survive a fork: neither the loop's nor the consumer's."""

    async def handle(body: dict) -> None:
        await asyncio.to_thread(threading.get_ident)

    consumer = sqs_consumer(MemoryStore())(handle)
    assert failed_ids(consumer(batch("a"), Context())) == []
    parents = Collecting()
    (loop,) = parents.run(the_loop)
    parents.close()

    child = os.fork()
    if child == 0:
        answers: list[Any] = []
        invoked = threading.Thread(target=lambda: answers.append(consumer(batch("b"), Context())), daemon=True)
        invoked.start()
        invoked.join(PATIENCE)
        os._exit(0 if answers == [{"batchItemFailures": []}] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    again = Collecting()
    assert again.run(the_loop) == [loop]
    again.close()
