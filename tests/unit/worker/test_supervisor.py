"""The supervisor's view of its processes: what they report, when it may end them, and what is left of a dead one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver.clock import since_boot_seconds
from idempotent_receiver.worker.reports import Reports
from idempotent_receiver.worker.scale_in import ScaleInProtection
from idempotent_receiver.worker.supervisor import MOST_ORPHANS, MOST_SUSPECTS, WRONG_USAGE, Child, Supervisor
from idempotent_receiver.worker.suspects import Suspects
from tests.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


PROGRAMS: list[Program] = []


class Program:
    """A process that is none."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        reading, writing = os.pipe()
        self.stdin = os.fdopen(writing, "wb", buffering=0)
        os.set_blocking(reading, False)
        self.listens = os.fdopen(reading, "rb", buffering=0)
        PROGRAMS.append(self)
        self.arguments = arguments
        self.pid = 2**22 + len(PROGRAMS)  # Linux gives out no such id
        self.sent: list[str] = []


def signal_program(really: Callable[[int, int], None], pid: int, number: int) -> None:
    """Note what a fake process is sent; for another one, send it."""
    found = [program for program in PROGRAMS if program.pid == pid]
    for program in found:
        program.sent.append({signal.SIGTERM: "terminate", signal.SIGKILL: "kill"}[signal.Signals(number)])
    if not found:
        really(pid, number)


@pytest.fixture(autouse=True)
def _programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("kill", "killpg"):
        monkeypatch.setattr(os, name, partial(signal_program, getattr(os, name)))
    yield
    while PROGRAMS:
        program = PROGRAMS.pop()
        program.stdin.close()
        program.listens.close()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    yield reading, writing
    for end in (reading, writing):
        os.close(end)


@pytest.fixture
def child(pipe: tuple[int, int]) -> Child:
    return Child(Program(), pipe[0], began_seconds=0.0, suspect=lambda *_: None)  # type: ignore[arg-type]


@pytest.fixture
def reports(pipe: tuple[int, int]) -> Reports:
    return Reports(pipe[1], "owner")


@pytest.fixture
def supervisor(monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    monkeypatch.setattr("subprocess.Popen", Program)
    supervisor = Supervisor({"limits": {"lease_seconds": 60}}, processes=2, drain_seconds=1, health=None)
    yield supervisor
    for child in supervisor._children:
        child.close()
    supervisor._pipes.close()


# What a dead process has left.


def test_a_message_that_came_again_and_was_answered_still_runs(child: Child, reports: Reports) -> None:
    reports.received([("m", "first", 3)])
    reports.claims([("first", "record")])
    reports.started("first")
    reports.received([("m", "second", 4)])
    reports.claims([("second", "record")])
    reports.ended("second")
    child.read()

    left = {"id": "m", "handle": "first", "receives": 3, "record": "record", "started": True, "owner": "owner"}
    assert child.orphans() == [left]


def test_a_batch_is_reported_in_writes_that_a_pipe_takes_whole(
    child: Child, reports: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One write each would wake the supervisor for each message. A report too long for a write is left out alone."""
    writes, write = list[int](), os.write
    monkeypatch.setattr(os, "write", lambda pipe, text: (writes.append(len(text)), write(pipe, text))[1])
    handles = [str(number) * 400 for number in range(10)]

    reports.received(("m", handle, 1) for handle in [*handles[:5], "h" * 5000, *handles[5:]])
    reports.claims((handle, "record") for handle in handles)
    child.read()

    assert [(one["handle"], one["record"]) for one in child.orphans()] == [(handle, "record") for handle in handles]
    assert len(writes) == 4
    assert max(writes) <= 4096


def test_what_a_process_was_to_give_back_is_given_back_by_the_next_if_it_dies_first(
    child: Child, reports: Reports
) -> None:
    child.given = [{"id": "m"}]
    child.read()
    assert child.orphans() == [{"id": "m"}]

    reports.works()
    child.read()
    assert child.orphans() == []


def test_a_new_process_is_given_no_more_than_fits_its_command_line(supervisor: Supervisor) -> None:
    largest = {
        "id": "i" * 36,
        "handle": "h" * 1024,
        "receives": 1000,
        "record": "r" * 1024,
        "started": True,
        "owner": "o" * 100,
    }
    supervisor._orphans = [largest] * 1000
    for number in range(1000):
        supervisor._suspects.keep(f"{number:0100}", 60.0)  # the longest id of a message

    supervisor._start()

    [child] = supervisor._children
    assert child.given == [largest] * MOST_ORPHANS
    task = child.process.arguments[0][-1]  # type: ignore[attr-defined]
    assert len(task) < 128 * 1024, "Linux's limit"
    latest = [f"{number:0100}" for number in range(1000)][-MOST_SUSPECTS:]
    assert [id for id, _ in json.loads(task)["suspects"]] == latest


def test_what_does_not_fit_one_new_process_is_given_to_the_next_that_starts_with_it(supervisor: Supervisor) -> None:
    """Later, another worker may have received it."""
    supervisor._orphans = [{"id": str(number)} for number in range(3 * MOST_ORPHANS)]

    supervisor._start_missing()

    given = [orphan["id"] for child in supervisor._children for orphan in child.given]
    assert len(given) == len(set(given)) == 2 * MOST_ORPHANS
    assert supervisor._orphans == []


# Suspects: what was running when a process died.


def died(supervisor: Supervisor, *running: str) -> None:
    """A process dies while these are running."""
    supervisor._start()
    child = supervisor._children[-1]
    child._take_in("works")
    for id in running:
        child.received[id] = id, 1
        child.running.add(id)
    supervisor._ended(child, -9)
    child.process.stdin.close()  # type: ignore[union-attr]


def said_to(child: Child) -> list[Any]:
    """What a process finds in its standard input."""
    listens = child.process.listens  # type: ignore[attr-defined]  # the fake process's
    return [json.loads(line) for line in (listens.read(65_536) or b"").splitlines()]


def suspects(supervisor: Supervisor) -> set[str]:
    """What the next process is told to run alone."""
    supervisor._start()
    child = supervisor._children.pop()
    told = json.loads(child.process.arguments[0][-1])["suspects"]  # type: ignore[attr-defined]
    supervisor._pipes.unregister(child.pipe)
    child.close()
    return {id for id, _ in told}


def test_what_was_running_when_a_process_died_is_suspected_whatever_dies_next(supervisor: Supervisor) -> None:
    """Four messages that end every process would else take their neighbours to the dead-letter queue with them."""
    died(supervisor, "a", "b")
    died(supervisor, "a")
    died(supervisor)

    assert suspects(supervisor) == {"a", "b"}


def test_what_had_not_started_when_a_process_died_is_not_suspected(supervisor: Supervisor) -> None:
    """It would run alone, and so would hold up all that comes after it."""
    supervisor._start()
    [child] = supervisor._children
    for event in (("works",), ("received", "a", "1", 1), ("received", "b", "2", 1), ("started", "1")):
        child._take_in(*event)

    supervisor._ended(child, -9)

    assert suspects(supervisor) == {"a"}
    child.process.stdin.close()  # type: ignore[union-attr]


def test_processes_that_live_are_told_at_once(supervisor: Supervisor) -> None:
    supervisor._start()
    [living] = supervisor._children
    died(supervisor, "a")

    assert said_to(living) == [["a", 120]]


def test_a_suspect_is_none_once_its_run_has_ended_in_whatever_process(supervisor: Supervisor) -> None:
    """A delivery that was answered without a run, as while its lease is live, says nothing."""
    died(supervisor, "a", "b")
    supervisor._start()
    [child] = supervisor._children
    child._take_in("received", "a", "1", 2)
    child._take_in("received", "b", "2", 2)
    child._take_in("started", "1")
    child._take_in("ended", "1")
    child._take_in("ended", "2")

    assert said_to(child) == [["a", 0]]
    assert suspects(supervisor) == {"b"}


def test_a_suspect_is_one_for_as_long_as_its_process_says(supervisor: Supervisor, child: Child) -> None:
    """Until its backoff is over, and two leases. It may have become a dead letter, which nobody tells."""
    supervisor._clock = clock = ManualClock()  # type: ignore[assignment]
    supervisor._suspects = Suspects(clock)
    died(supervisor, "a", "b")
    supervisor._start()
    [child] = supervisor._children
    child._take_in("suspect", "a", 900.0 + 120.0)

    clock.seconds += 121
    assert suspects(supervisor) == {"a"}
    clock.seconds += 900
    assert suspects(supervisor) == set()


# When a process is overdue.


def test_a_process_is_overdue_by_the_newest_that_it_has_said(child: Child, reports: Reports) -> None:
    """The supervisor was stopped for longer than a lease; the process was not."""
    reports.dead_by(since_boot_seconds() - 10)
    child.read()
    reports.dead_by(since_boot_seconds() + 10)
    assert not child.overdue()

    reports.dead_by(since_boot_seconds() - 0.1)
    assert child.overdue()


def test_a_process_is_not_overdue_by_what_came_before_its_pipe_was_full(child: Child, reports: Reports) -> None:
    for _ in range(4_000):
        reports.dead_by(since_boot_seconds() - 1)
    reports.dead_by(since_boot_seconds() + 10)  # is lost

    assert not child.overdue()
    reports.dead_by(since_boot_seconds() - 0.1)
    assert child.overdue()


def test_an_overdue_process_is_killed_once_before_that_is_logged(
    supervisor: Supervisor, child: Child, reports: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that does not answer must not keep it alive, and the supervisor looks again before it is gone."""
    reports.dead_by(since_boot_seconds() - 1)
    sent: list[str] = child.process.sent  # type: ignore[attr-defined]
    monkeypatch.setattr("logging.Logger.error", lambda *_: sent.append("logged"))

    supervisor._end_if_overdue(child)
    supervisor._end_if_overdue(child)

    assert sent == ["kill", "logged"]


def test_a_process_that_has_closed_its_pipe_is_waited_for(supervisor: Supervisor) -> None:
    """A pipe at its end is always ready: nothing else would be looked at any less often than all the time."""
    supervisor._start()

    assert supervisor._pipes.select(0) != []  # the fake process has none
    supervisor._look(0)

    assert supervisor._pipes.select(0) == []


def test_what_runs_in_any_process_is_protected_from_scaling_in(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    protection = SimpleNamespace(running=frozenset[str]())
    monkeypatch.setattr(ScaleInProtection, "started", lambda environment: protection)
    monkeypatch.setattr("signal.signal", lambda number, handler: None)
    monkeypatch.setattr(Child, "status", lambda child: None)
    looks = iter("ab")

    def look(seconds: float) -> None:
        if next(looks) == "b":
            raise InterruptedError
        for child, id in zip(supervisor._children, ("m", "n"), strict=True):
            child.running.add(id)

    monkeypatch.setattr(supervisor, "_look", look)
    with pytest.raises(InterruptedError):
        supervisor.run()

    assert protection.running == {"m", "n"}


# Starting and ending.


def test_a_signal_that_comes_while_a_process_is_started_reaches_that_too(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(Program):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__()
            supervisor._signalled(signal.SIGTERM)

    monkeypatch.setattr("subprocess.Popen", Slow)
    supervisor._start()
    [child] = supervisor._children

    supervisor._pass_on(child)
    supervisor._pass_on(child)

    assert child.process.sent == ["terminate"]  # type: ignore[attr-defined]
    supervisor._signalled(signal.SIGTERM)
    supervisor._pass_on(child)
    assert child.process.sent == ["terminate", "kill"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("works", "all_end"), [(False, True), (True, False)])
def test_what_could_work_once_is_tried_again(supervisor: Supervisor, *, works: bool, all_end: bool) -> None:
    """A replacement may find the queue away for a moment; its neighbours still work."""
    supervisor._start()
    supervisor._start()
    neighbour, child = supervisor._children
    neighbour.works = works

    child.process.stdin.close()  # type: ignore[union-attr]  # as a dead process does

    assert supervisor._ended(child, WRONG_USAGE) is all_end


def test_a_worker_that_has_worked_outlives_replacements_that_could_not_start(supervisor: Supervisor) -> None:
    """Its credentials may have been refused for a moment, twice in a row, while no other process works."""
    for status, works in ((-9, True), (WRONG_USAGE, False), (WRONG_USAGE, False)):
        supervisor._start()
        [child] = supervisor._children
        child.works = works
        child.process.stdin.close()  # type: ignore[union-attr]

        assert supervisor._ended(child, status) is False


def test_a_process_that_cannot_be_started_is_tried_again_later(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    supervisor._orphans = [{"id": "m"}]
    monkeypatch.setattr("subprocess.Popen", fail)

    supervisor._start_missing()

    assert supervisor._children == []
    assert supervisor._orphans == [{"id": "m"}]
    assert supervisor._not_before_seconds > supervisor._clock.monotonic_seconds()


def ended(supervisor: Supervisor, status: int, *, works: bool) -> None:
    """A process has ended by itself, with nothing in its hands."""
    supervisor._start()
    child = supervisor._children[-1]
    child.works = works
    supervisor._ended(child, status)
    child.process.stdin.close()  # type: ignore[union-attr]


def test_a_process_that_ends_when_it_has_had_its_messages_is_replaced_at_once(
    supervisor: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    """However soon: that is no death."""
    for _ in range(5):
        ended(supervisor, 0, works=True)

    assert supervisor._not_before_seconds == 0.0
    assert caplog.messages == []


@pytest.mark.parametrize(("status", "works"), [(1, True), (0, False)])
def test_what_fails_or_ends_before_it_could_work_is_logged_and_tried_again_later(
    supervisor: Supervisor, caplog: pytest.LogCaptureFixture, *, status: int, works: bool
) -> None:
    ended(supervisor, status, works=works)

    assert supervisor._not_before_seconds > supervisor._clock.monotonic_seconds()
    assert caplog.messages == [f"a worker process ended with status {status}; it held nothing"]


def restarts(supervisor: Supervisor) -> list[int]:
    """What the next two processes are told to count."""
    started = len(supervisor._children)
    for _ in range(2):
        supervisor._start()
    tasks = [one.process.arguments[0][-1] for one in supervisor._children[started:]]  # type: ignore[attr-defined]
    return [json.loads(task)["restarts"] for task in tasks]


def test_the_process_that_takes_a_dead_ones_place_counts_it(supervisor: Supervisor) -> None:
    """Each death is counted once. A process that has had its messages is no death."""
    ended(supervisor, 0, works=True)
    assert restarts(supervisor) == [0, 0]

    ended(supervisor, -9, works=True)
    assert restarts(supervisor) == [1, 0]


def test_a_death_that_its_replacement_did_not_live_to_count_is_counted_by_the_next(supervisor: Supervisor) -> None:
    ended(supervisor, -9, works=True)
    ended(supervisor, 1, works=False)
    assert restarts(supervisor) == [2, 0]

    counts = supervisor._children[-2]
    counts._take_in("works")
    supervisor._ended(counts, -9)
    counts.process.stdin.close()  # type: ignore[union-attr]
    assert restarts(supervisor) == [1, 0]


def test_a_process_that_was_still_loading_when_it_was_told_to_drain_is_no_error(
    supervisor: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor._signalled(signal.SIGTERM)
    ended(supervisor, -signal.SIGTERM, works=False)
    assert caplog.messages == []

    ended(supervisor, -signal.SIGTERM, works=True)
    assert caplog.messages == ["a worker process ended with status -15; it held nothing"]


def test_the_log_tells_a_process_that_its_own_timer_has_ended_from_one_that_somebody_has_killed(
    supervisor: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    """The kernel's timer is quicker than the supervisor, and leaves no word."""
    for seconds in (-1, 60):
        supervisor._start()
        [child] = supervisor._children
        child.dead_by_seconds = since_boot_seconds() + seconds
        supervisor._ended(child, -9)
        child.process.stdin.close()  # type: ignore[union-attr]

    assert caplog.messages == [
        "a worker process ended with status -9, because it could not renew a lease; it held nothing",
        "a worker process ended with status -9; it held nothing",
    ]


def test_a_worker_is_healthy_while_a_process_works_or_loads_in_the_place_of_one_that_did(
    supervisor: Supervisor,
) -> None:
    """It loads for as long as the first one did, and a restart would begin that again. One that dies while it loads
    leaves nothing to wait for.
    """
    supervisor._start()
    [first] = supervisor._children
    assert not supervisor._healthy()
    first.works = True
    assert supervisor._healthy()
    supervisor._ended(first, -9)
    first.process.stdin.close()  # type: ignore[union-attr]
    assert not supervisor._healthy()

    supervisor._start()
    [second] = supervisor._children
    assert supervisor._healthy()
    supervisor._ended(second, -9)
    second.process.stdin.close()  # type: ignore[union-attr]
    supervisor._start()
    assert not supervisor._healthy()


def test_thousands_of_short_lives_pause_no_longer_than_ten(supervisor: Supervisor) -> None:
    for _ in range(2_000):
        supervisor._pause(0.0)

    assert supervisor._not_before_seconds <= supervisor._clock.monotonic_seconds() + 30


def test_a_process_that_does_not_read_holds_nobody_up(supervisor: Supervisor) -> None:
    supervisor._start()

    for _ in range(3_000):
        supervisor._suspect("0123456789" * 4, 60)

    [child] = supervisor._children
    assert said_to(child)[0] == ["0123456789" * 4, 60]


def parent_of_a_program(ends: str) -> tuple[Child, int]:
    """A real process that has started a program, and the program's id."""
    process = subprocess.Popen(
        ["sh", "-c", f"sleep 1000 & echo $!; {ends}"], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    with process.stdout as told:
        return Child(process, told.fileno(), 0.0, lambda *_: None), int(told.readline())


def state_of(pid: int) -> str:
    """As /proc has it; Z for one that nobody has waited for, nothing for one that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


def until_dead(pid: int) -> None:
    ends = time.monotonic() + 10
    while state_of(pid) not in ("", "Z"):
        assert time.monotonic() < ends, "it lives"
        time.sleep(0.01)


def test_a_dead_process_takes_its_programs_along_before_its_id_can_be_anothers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They would run on beside the message's next attempt."""
    child, program = parent_of_a_program("exit 3")
    states: list[str] = []
    kill = os.killpg
    monkeypatch.setattr("os.killpg", lambda *of: (states.append(state_of(child.process.pid)), kill(*of)))
    until_dead(child.process.pid)

    assert child.status() == 3
    assert states == ["Z"]
    until_dead(program)


def test_a_process_that_lives_keeps_its_programs() -> None:
    child, program = parent_of_a_program("wait")
    assert child.status() is None
    assert state_of(program) not in ("", "Z")

    child.kill()

    until_dead(program)
    assert child.process.wait() == -signal.SIGKILL


def test_a_process_that_was_dead_when_it_was_to_drain_takes_its_programs_along() -> None:
    """Nobody may wait for it before its group is killed."""
    child, program = parent_of_a_program("exit 3")
    until_dead(child.process.pid)
    supervisor = Supervisor({}, processes=1, drain_seconds=1, health=None)
    supervisor._signalled(signal.SIGTERM)

    supervisor._pass_on(child)
    supervisor._pipes.close()

    assert state_of(child.process.pid) == "Z"
    assert child.status() == 3
    until_dead(program)
