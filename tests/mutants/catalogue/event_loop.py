"""Bugs in what runs coroutines and threads, and in what ends the process."""

from __future__ import annotations

from tests.mutants.change import always, becomes, drop, leave_out, never, postpone, replace
from tests.mutants.mutant import Mutant, unit

EXECUTOR = unit("batch/executor")
PROCESS_END = unit("handler/process_end")

MUTANTS = {
    "a coroutine cancelled before its first step never tells its end": Mutant(
        "batch.event_loop:Loop.cancel.cancel_tasks",
        replace("$LOOP.call_soon($TASK.cancel)", "$TASK.cancel()"),
        where=EXECUTOR,
    ),
    "a cancellation of nobody waits for what was left behind": Mutant(
        "batch.event_loop:Loop.cancel.cancel_tasks", replace("any($LEFT)", "True"), where=EXECUTOR
    ),
    "what a coroutine leaves behind outlives its invocation": Mutant(
        "batch.event_loop:Loop._end_all", replace("MOST_ROUNDS", "0"), promise=2, where=EXECUTOR
    ),
    "what cleaning up has started wakes up in the next invocation": Mutant(
        "batch.event_loop:MOST_ROUNDS", becomes("1"), promise=2, where=EXECUTOR
    ),
    "a finished batch waits without a bound for what it has left behind": Mutant(
        "batch.event_loop:Loop.stop", always("self._cancelled"), where=EXECUTOR
    ),
    "loops are left alone until none can be made": Mutant(
        "batch.event_loop:Loop.stop", leave_out("self._crowded"), where=EXECUTOR
    ),
    "a loop is used again although something is left on it": Mutant(
        "batch.event_loop:Loop.turn", replace("not asyncio.all_tasks($LOOP)", "True"), promise=2, where=EXECUTOR
    ),
    "invocations that overlap share a loop": Mutant(
        "batch.event_loop:Loops.begin",
        replace("asyncio.new_event_loop()", "self._resting.setdefault(self._made, $0)"),
        where=EXECUTOR,
    ),
    "every invocation has a new loop": Mutant("batch.event_loop:Loops.begin", never("self._resting"), where=EXECUTOR),
    "the threads of a cancelled coroutine outlive its invocation": Mutant(
        "batch.executor:ThreadExecutor.start_async.follow", drop(".threads_of_the_cancelled"), promise=2, where=EXECUTOR
    ),
    "the timer that ends the process is armed when all is over": Mutant(
        "handler.process_end:_process_ends_at", postpone("$TIMER.arm($SECONDS)"), promise=2, where=PROCESS_END
    ),
    "the timer that ends the process is never disarmed": Mutant(
        "handler.process_end:_process_ends_at", drop(".delete"), where=PROCESS_END
    ),
    "a process that is told to end is trusted to do so by its deadline": Mutant(
        "handler.process_end:_process_ends_at", drop("$TOLD_TO_END = True"), promise=2, where=PROCESS_END
    ),
}
