"""Faults in calls to fakes during an explored run: delays, refusals, lost answers and crashes."""

import threading
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from idempotent_receiver.handler.attempt import current_attempt
from idempotent_receiver.testing import schedule as options
from idempotent_receiver.testing.calls import Call
from idempotent_receiver.testing.explored_run import ExploredRun
from idempotent_receiver.testing.network import ROUND_TRIP_SECONDS
from idempotent_receiver.testing.stuck import goes_on
from idempotent_receiver.testing.virtual_loop import in_a_real_loop
from idempotent_receiver.testing.worker import Worker

MOST_REFUSALS = 30
"""The maximum number of refusals for one message: a handler may repeat a refused call indefinitely."""


class FakeCalls:
    """One run's `Watcher`. The run's schedule decides what happens to each call."""

    def __init__(self, run: ExploredRun) -> None:
        self._run = run
        self._choose = run.decisions.choose
        self._thread = threading.get_ident()
        self._callers: dict[tuple[str, str | None], str] = {}

    def promised(self, call: Call, promise: Coroutine[Any, Any, Any]) -> None:
        """A fake created a coroutine."""
        worker = self._caller()
        if worker is not None:
            self._run.touched = True
            self._run.promises.append((call, worker.name, promise))

    def before(self, call: Call) -> float:
        """A fake is about to be called."""
        goes_on()
        run = self._run
        run.require_live()
        worker = self._caller()
        if worker is None:
            return 0.0
        chosen = self._choose(f"before {call.name}", f"{worker.name} calls {call.name}", run.network.offered())
        seconds = ROUND_TRIP_SECONDS
        if chosen is not None:
            run.story.append(f"{worker.name} waits before it calls {call.name}, so others go first")
            seconds = run.decisions.delay()
        if not in_a_real_loop():
            return seconds
        run.world.sleep(seconds)  # awaiting would take real time, and other workers could not go first
        return 0.0

    def sleep(self, seconds: float) -> None:
        """Let other jobs run."""
        if seconds:
            self._run.world.sleep(seconds)

    def arrives(self, call: Call, refuses: BaseException | None) -> None:
        """A fake is called, and may refuse."""
        run = self._run
        if run.alone:
            self._before_call = run.observed()
        worker = self._caller()
        if refuses is None or worker is None:
            return
        whose = (call.name, call.message)
        if not run.refusing[whose]:
            offered = options.REFUSED if run.redriven else options.REFUSABLE_CALL
            chosen = self._choose(f"call {call.name}", f"{worker.name} reaches {call.name}", offered)
            if chosen is None:
                return
            run.refusing[whose] = 1 if chosen in options.REFUSED else MOST_REFUSALS
        run.refusing[whose] -= 1
        run.refused += self._parts(call)
        run.story.append(f"{worker.name} calls {call}, which refuses: {refuses!r}")
        raise refuses

    def after(self, call: Call, raises: BaseException | None) -> None:
        """A fake was called."""
        run = self._run
        parts = self._parts(call)
        run.calls += parts
        if run.alone:
            for kind, before, now in zip(("table", "state"), self._before_call, run.observed(), strict=True):
                run.faked |= {(kind, name) for name in now if now[name] != before.get(name)}
        worker = self._caller()
        run.story.append(f"{worker.name if worker else 'a handler thread'} calls {call}")
        if worker is None:
            return
        for one in parts:
            if one.key is not None and self._callers.setdefault((one.name, one.message), worker.name) != worker.name:
                run.repeated.add(one.name)
        offered = options.CALL if raises is None else options.ANSWERED_CALL
        match self._choose(f"call {call.name}", f"{worker.name} has called {call.name}", offered):
            case "crash-after":
                run.network.crash(worker, f"{worker.name} crashes")
            case "lost":
                assert raises is not None, "offered only with an error"
                run.story.append(f"{worker.name} does not get the answer: {raises!r}")
                raise raises

    def _parts(self, call: Call) -> list[Call]:
        """The call once for each message that it joins, with its part of each list of as many values as keys."""
        if not isinstance(call.key, list):
            return [call]
        count, lists = len(call.key), {name: value for name, value in call.given.items() if isinstance(value, list)}
        return [
            replace(
                call,
                key=key,
                message=self._run.setup.named_by(key),
                given={name: value[place] for name, value in lists.items() if len(value) == count},
            )
            for place, key in enumerate(call.key)
        ]

    def _caller(self) -> Worker | None:
        """The worker whose handler makes the call; None in a thread that the handler started."""
        attempt = current_attempt.get()
        if attempt is None or threading.get_ident() != self._thread:
            return None
        return self._run.workers.get(attempt.owner)
