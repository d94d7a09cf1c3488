"""A process ends at its invocation's deadline if Lambda does not end it, whatever it is doing."""

from __future__ import annotations

import ctypes
import json
import os
import runpy
import signal
import struct
import subprocess
import sys
import threading
import time
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import idempotent_receiver
from idempotent_receiver import MemoryStore, http_endpoint, process_end, sqs_consumer
from idempotent_receiver.clock import Deadline, SystemClock
from idempotent_receiver.testing.worker import failed_ids
from tests.consumers import controlled
from tests.counting_store import CountingStore
from tests.manual_clock import ManualClock
from tests.simulation.world import sqs_record

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMERS = Path("/proc/self/timers")
PATIENCE = 20.0

pytestmark = pytest.mark.skipif(not TIMERS.exists(), reason="Linux alone has these timers, and says which are armed")

CHILD = """
import json, os, re, signal, sys, threading, time
from types import SimpleNamespace
from idempotent_receiver import MemoryStore, Message, http_endpoint, sqs_consumer

way_in, what, folder = sys.argv[1:]

class Kept(MemoryStore):
    # A table that outlives the process.
    def _write(self, change):
        answer = super()._write(change)
        with open(f"{folder}/items.json", "w") as file:
            json.dump(self.items, file)
        return answer

def handle():
    print("started", flush=True)
    if what == "holds the GIL":
        re.match(r"(a+)+$", "a" * 64 + "b")
    else:
        time.sleep(60)
    with open(f"{folder}/effects", "a") as file:
        file.write("done by the first\\n")

def consume(body: dict) -> None:
    handle()

def answer(event, context):
    handle()

context = SimpleNamespace(get_remaining_time_in_millis=lambda: 700, aws_request_id="first", function_name="f")
options = {"stop_margin_seconds": 0.1, "end_process_at_deadline": True}
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
if way_in == "queue":
    # With one, the handler runs on this thread, and the signal ends it.
    options["concurrency"] = 2 if what == "is told to end" else 1
    try:
        sqs_consumer(Kept("orders"), key=lambda message: "1", **options)(consume)(json.loads(sys.stdin.read()), context)
    except SystemExit:
        threading.Event().wait(60)  # as for a thread that is no daemon
else:
    http_endpoint(Kept("orders"), **options)(answer)(json.loads(sys.stdin.read()), context)
print("lives on", flush=True)
"""

REQUEST = {"httpMethod": "POST", "path": "/", "headers": {"Idempotency-Key": "1"}, "body": "{}"}
EVENTS: dict[str, Any] = {"queue": {"Records": [sqs_record("1")]}, "http": REQUEST}


class Ahead(SystemClock):
    """The machine's clock, ahead by some time."""

    def epoch_ms(self) -> int:
        return super().epoch_ms() + 5_000


def context(seconds: float = 600) -> Any:
    """A context with enough time that a timer left behind by a bug does not end the tests."""
    return SimpleNamespace(get_remaining_time_in_millis=lambda: int(seconds * 1000), aws_request_id="r")


def armed() -> int:
    """The number of this process's timers whose signal is SIGKILL."""
    return TIMERS.read_text().count(f"signal: {signal.SIGKILL:d}/")


@pytest.fixture(autouse=True)
def none_before() -> Iterator[None]:
    assert armed() == 0
    yield
    assert armed() == 0


@pytest.mark.parametrize(
    ("way_in", "what"),
    [*product(["queue", "http"], ["holds the GIL", "sleeps", "is stopped"]), ("queue", "is told to end")],
)
def test_a_process_that_has_not_answered_by_its_deadline_is_dead_before_another_takes_over(
    way_in: str, what: str, tmp_path: Path
) -> None:
    """Once the lease has ended, another worker runs the handler, and its effect is there once."""
    environment = os.environ | {"PYTHONPATH": str(Path(process_end.__file__).parents[1])}
    command = [sys.executable, "-c", CHILD, way_in, what, str(tmp_path)]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(EVENTS[way_in]))
        process.stdin.close()
        assert process.stdout.readline() == "started\n"
        if what == "is stopped":
            process.send_signal(signal.SIGSTOP)
        if what == "is told to end":
            process.send_signal(signal.SIGTERM)
        try:
            status = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            status = None
            process.kill()
        dead_ms = time.time() * 1000

    assert status == -signal.SIGKILL
    store = MemoryStore("orders")
    store.items.update(json.loads((tmp_path / "items.json").read_text()))
    (item,) = store.items.values()
    deadline_ms = item["in_progress_expiration"] - 3_000
    assert deadline_ms - 100 <= dead_ms < deadline_ms + 2_000

    def handle(*_: object) -> None:
        with (tmp_path / "effects").open("a") as file:
            file.write("done by the second\n")

    def consume(body: dict) -> None:
        handle()

    if way_in == "queue":
        wrap = controlled(store, key=lambda message: "1", clock=Ahead())
        assert failed_ids(wrap(consume)({"Records": [sqs_record("1", receives=2)]}, context())) == []
    else:
        http_endpoint(store, clock=Ahead())(handle)(REQUEST, context())
    assert (tmp_path / "effects").read_text() == "done by the second\n"


@pytest.mark.parametrize("way_in", ["queue", "http"])
@pytest.mark.parametrize("ends", ["returns", "raises"])
def test_the_timer_is_armed_before_the_first_claim_and_until_the_answer(way_in: str, ends: str) -> None:
    """An invocation that answers in time ends no process."""
    store, seen = CountingStore(), []
    store.before = lambda name: seen.append((name, armed()))

    def handle(*_: object) -> None:
        seen.append(("handler", armed()))
        if ends == "raises":
            raise RuntimeError

    def consume(body: dict) -> None:
        handle()

    if way_in == "queue":
        wrap = sqs_consumer(store, key=lambda message: "1", end_process_at_deadline=True)
        failed = failed_ids(wrap(consume)(EVENTS["queue"], context()))
        assert failed == (["1"] if ends == "raises" else [])
    elif ends == "raises":
        with pytest.raises(RuntimeError):
            http_endpoint(store, end_process_at_deadline=True)(handle)(REQUEST, context())
    else:
        http_endpoint(store, end_process_at_deadline=True)(handle)(REQUEST, context())

    assert seen == [("insert", 1), ("handler", 1), ("replace", 1)]
    assert armed() == 0


def test_invocations_that_overlap_have_timers_of_their_own() -> None:
    """The end of one does not disarm another's timer."""
    store, seen = MemoryStore(), []
    together, first_ended = threading.Barrier(2, timeout=PATIENCE), threading.Event()

    def consume(body: str) -> None:
        together.wait()
        if body == "second":
            seen.append(armed())
            assert first_ended.wait(PATIENCE)
            seen.append(armed())

    handler = sqs_consumer(store, end_process_at_deadline=True)(consume)

    def invoke(which: str) -> None:
        handler({"Records": [sqs_record(which, which)]}, context())
        if which == "first":
            first_ended.set()

    threads = [threading.Thread(target=invoke, args=[which]) for which in ("first", "second")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)

    assert seen[-1] == 1
    assert [item["status"] for item in store.items.values()] == ["COMPLETED"] * 2


def test_by_default_lambda_ends_the_process() -> None:
    """There is no timer where Lambda's own time-out works."""
    seen = []

    def consume(body: dict) -> None:
        seen.append(armed())

    sqs_consumer(MemoryStore())(consume)(EVENTS["queue"], context())

    assert seen == [0]


def test_a_timer_is_set_anew_disarmed_and_given_back() -> None:
    def left() -> tuple[int, ...]:
        """The interval and the time left, each as seconds and nanoseconds."""
        kernels = ctypes.create_string_buffer(32)
        assert process_end._library().timer_gettime(timer._timer, kernels) == 0
        return struct.unpack("@qqqq", kernels.raw)

    timer = process_end.Timer()
    try:
        for seconds in (3600.5, 1800.0):
            timer.arm(seconds)
            assert left()[:2] == (0, 0)
            assert seconds - 1 < left()[2] + left()[3] / 1e9 <= seconds
        timer.disarm()
        assert left()[2:] == (0, 0)
    finally:
        timer.delete()
    with pytest.raises(OSError, match="Invalid argument"):
        timer.disarm()


@pytest.mark.parametrize("seconds", [0, -5])
def test_an_invocation_that_comes_too_late_ends_no_process(seconds: float) -> None:
    """It claims nothing, and reports it."""
    store = CountingStore(None)  # type: ignore[arg-type]

    def consume(body: dict) -> None: ...

    handler = sqs_consumer(store, end_process_at_deadline=True)(consume)

    assert failed_ids(handler(EVENTS["queue"], context(seconds))) == ["1"]
    assert store.asked == []


def test_a_process_that_the_kernel_protects_from_itself_claims_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first process of a container ignores its own signals."""
    store = CountingStore(None)  # type: ignore[arg-type]

    def consume(body: dict) -> None: ...

    handler = sqs_consumer(store, end_process_at_deadline=True)(consume)
    monkeypatch.setattr(os, "getpid", lambda: 1)

    with pytest.raises(RuntimeError, match="docker run --init"):
        handler(EVENTS["queue"], context())
    assert store.asked == []


def test_a_process_dies_with_its_parent_and_at_once_if_that_is_already_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []
    monkeypatch.setattr(process_end, "_call", lambda *given: asked.append(given))
    monkeypatch.setattr(os, "kill", lambda *given: asked.append(given))
    wish = ("prctl", 1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    process_end.die_with(os.getppid())
    assert asked == [wish]
    process_end.die_with(os.getppid() + 1)
    assert asked[1:] == [wish, (os.getpid(), signal.SIGKILL)]


def test_a_timer_that_cannot_be_created_stops_the_invocation_before_its_first_claim(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A user's pending signals are limited, and each timer takes one."""
    store = CountingStore(None)  # type: ignore[arg-type]

    def consume(body: dict) -> None: ...

    handler = sqs_consumer(store, end_process_at_deadline=True)(consume)
    monkeypatch.setattr(process_end, "_CLOCK_BOOTTIME", 999)

    with pytest.raises(OSError, match="Invalid argument"):
        handler(EVENTS["queue"], context())
    assert store.asked == []


@pytest.mark.parametrize("way_in", [sqs_consumer, http_endpoint])
def test_a_system_without_such_a_timer_is_refused_at_set_up(way_in: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The promise would silently not hold there."""
    process_end._library.cache_clear()
    monkeypatch.setattr(sys, "platform", "darwin")

    with pytest.raises(RuntimeError, match=r"end_process_at_deadline needs Linux .* \(darwin\)"):
        way_in(MemoryStore("orders"), end_process_at_deadline=True)


@pytest.mark.parametrize(("passed", "stepped", "armed"), [(0, 0, [30]), (10, 0, [20]), (10, 5, [15]), (30, 0, [])])
def test_the_process_ends_at_what_is_left_by_the_clock_that_leaves_less(
    passed: float, stepped: float, armed: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that was suspended has no more time than its wall clock tells."""
    clock, told = ManualClock(), list[float]()
    monkeypatch.setattr(process_end, "Timer", lambda: SimpleNamespace(arm=told.append, delete=lambda: None))
    deadline = Deadline.after(clock, 30_000)
    clock.seconds, clock.stepped_seconds = passed, stepped

    with process_end.lifetime(end_process_at_deadline=True)(deadline):
        assert told == pytest.approx(armed)


@pytest.mark.parametrize("way_in", [sqs_consumer, http_endpoint])
@pytest.mark.parametrize("value", [None, "", "false", "1", 0])
def test_only_true_and_false_say_whether_the_process_ends(way_in: Any, value: object) -> None:
    """None, or the text of a variable, is neither."""
    with pytest.raises(TypeError, match="end_process_at_deadline must be True or False"):
        way_in(MemoryStore("orders"), end_process_at_deadline=value)


@pytest.mark.parametrize("module", ["app.consumer", "app.api"])
@pytest.mark.parametrize("managed", [True, False])
def test_the_application_ends_its_processes_where_lambda_does_not(
    module: str, managed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On managed instances an environment variable gives the number of concurrent invocations."""
    given = []

    def spied(way_in: Any) -> Any:
        def spy(*arguments: Any, **options: Any) -> Any:
            given.append(options["end_process_at_deadline"])
            return way_in(*arguments, **options)

        return spy

    monkeypatch.delitem(sys.modules, module, raising=False)  # runpy warns of what another test has imported
    monkeypatch.setattr(idempotent_receiver, "sqs_consumer", spied(sqs_consumer))
    monkeypatch.setattr(idempotent_receiver, "http_endpoint", spied(http_endpoint))
    for name in ("RECORDS", "ACCOUNTS", "ENTRIES", "TRANSFERS"):
        monkeypatch.setenv(f"{name}_TABLE", name)
    monkeypatch.setenv("QUEUE_URL", "https://sqs.us-east-1.amazonaws.com/123456789012/transfers")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    if managed:
        monkeypatch.setenv("AWS_LAMBDA_MAX_CONCURRENCY", "10")
    else:
        monkeypatch.delenv("AWS_LAMBDA_MAX_CONCURRENCY", raising=False)

    runpy.run_module(module)

    assert given == [managed]
