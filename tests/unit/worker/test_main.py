"""What a worker process refuses before its first poll, and how it ends."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from botocore.config import Config

from idempotent_receiver import DynamoDBStore, MemoryStore, sqs_consumer
from idempotent_receiver.protocol.store import Unknown
from idempotent_receiver.sqs.consumer import Consumer
from idempotent_receiver.worker.__main__ import limits_of, main, queue_of, require_records
from idempotent_receiver.worker.loading import loaded
from tests.unit.dynamodb.wire import session

if TYPE_CHECKING:
    from pathlib import Path


def consumer(**options: Any) -> Consumer:
    def handle(body: dict) -> None:
        """Nothing."""

    return sqs_consumer(MemoryStore(), **options)(handle)


def sqs(**options: Any) -> Any:
    return session().client("sqs", config=Config(region_name="us-east-1", **options))


def test_elsewhere_than_on_linux_it_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing there ends a process that is stopped before its lease is over."""
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(ValueError, match="receiver work needs Linux"):
        main({})


def test_what_a_process_died_with_runs_alone_for_two_leases_after_its_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one that comes again late would take its neighbours along."""
    alone: list[tuple[str, float]] = []
    counted: list[int] = []
    told: list[tuple[str, float]] = []

    def nothing(*given: Any, **named: Any) -> Any: ...

    process = SimpleNamespace(run_alone=lambda *one: alone.append(one), run=nothing)
    reports = SimpleNamespace(owner="o", suspect=lambda *one: told.append(one), works=nothing)
    fakes: dict[str, Any] = {
        **dict.fromkeys(("die_with", "os.register_at_fork", "logging.root.setLevel", "_complete_logging"), nothing),
        **dict.fromkeys(("queue_of", "require_records", "Leases", "ReportedTimer", "signal.signal"), nothing),
        "_told": StringIO,
        "loaded": lambda handler: consumer(),
        "give_back": lambda *given, **named: {"m": 700},
        "Process": lambda *given, restarts, **named: (counted.append(restarts), process)[1],
        "Reports": lambda *given: reports,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(f"idempotent_receiver.worker.__main__.{name}", fake)

    task = {"supervisor": 1, "handler": "h", "limits": {"lease_seconds": 60.0}, "pipe": 1, "queue_url": "q"}
    main({**task, "orphans": [], "suspects": [("n", 5)], "restarts": 2})

    assert (alone, told) == ([("n", 5), ("m", 820)], [("m", 820)])
    assert counted == [2]


def test_the_margin_is_the_consumers() -> None:
    assert limits_of(consumer(lease_margin_seconds=7), {"lease_seconds": 30.0}).margin_seconds == 7


def test_a_store_that_can_have_no_client_is_no_reason_to_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be the same for the next process."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    wanting = consumer()
    wanting = wanting.with_options(replace(wanting.options, store=DynamoDBStore("records")))

    with pytest.raises(Exception, match="You must specify a region") as raised:
        limits_of(wanting, {})
    assert isinstance(raised.value, ValueError)
    assert "the store cannot be used" in str(raised.value)


def test_what_decorates_a_handler_for_lambda_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "decorated.py").write_text(
        "from aws_lambda_powertools import Logger\n"
        "from idempotent_receiver import MemoryStore, sqs_consumer\n"
        "@Logger().inject_lambda_context(clear_state=True)\n"
        "@sqs_consumer(MemoryStore())\n"
        "def handler(body: dict) -> None: ...\n"
    )
    monkeypatch.chdir(tmp_path)

    try:
        found: object = loaded("decorated:handler")
    except TypeError as error:
        found = error
    assert isinstance(found, Consumer)


DISPATCHER = """
from idempotent_receiver import MemoryStore, sqs_consumer
class Hiding:
    def __init__(self, func): self.func = func
    def __call__(self, event, context): return self.func(event, context)
@sqs_consumer(MemoryStore())
def refunds(body: dict) -> None: ...
@sqs_consumer(MemoryStore())
def orders(body: dict) -> None: ...
hidden = Hiding(orders)
def refund(body: dict) -> None: ...
def handler(event, context):
    return (orders if "Records" in event else print)(event, context)
"""


@pytest.mark.parametrize("name", ["handler", "hidden"])
def test_a_handler_in_which_no_consumer_is_found_is_told_those_of_its_module(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """A dispatcher has several, and a decorator that is an object without `__wrapped__` hides its own."""
    (tmp_path / f"dispatching_{name}.py").write_text(DISPATCHER)
    monkeypatch.chdir(tmp_path)
    refused = f"'dispatching_{name}:{name}' is not decorated with @sqs_consumer: use a consumer that its module has: "
    with pytest.raises(TypeError, match=f"^{refused}orders, refunds$"):
        loaded(f"dispatching_{name}:{name}")
    assert loaded(f"dispatching_{name}:refunds").__wrapped__.__name__ == "refunds"
    with pytest.raises(TypeError, match=r": decorate it with @sqs_consumer\(store\)"):
        loaded(f"dispatching_{name}:refund")  # a function for one message


def test_a_consumer_that_has_no_name_but_that_of_what_hides_it_is_asked_for_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "hiding.py").write_text(DISPATCHER.partition("hidden")[0] + "orders, refunds = Hiding(orders), None\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TypeError, match=r"decorate it .* consumer = sqs_consumer\(store\)\(function\), and use that$"):
        loaded("hiding:orders")


@pytest.mark.parametrize(("read_timeout", "waits"), [(60, 10), (11, 10), (3, 2), (2, 1)])
def test_a_poll_waits_no_longer_than_its_client(read_timeout: float, waits: int) -> None:
    """On Lambda, short time-outs are right. What SQS answers to nobody is hidden until its visibility ends."""
    assert limits_of(consumer(sqs=sqs(read_timeout=read_timeout)), {}).wait_seconds == waits


def test_a_client_that_cannot_wait_for_any_poll_is_refused() -> None:
    with pytest.raises(ValueError, match="waits 1 seconds for a response, which is too short for a poll"):
        limits_of(consumer(sqs=sqs(read_timeout=1)), {})


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import os; os.environ['A_TABLE_NAME']", "KeyError: 'A_TABLE_NAME'"),
        ("import a_library_that_is_not_installed", "ModuleNotFoundError: No module named 'a_library_that_is_not"),
        ("from os import nothing_of_this_name", "ImportError: cannot import name 'nothing_of_this_name'"),
        ("import os; os.nothing_of_this_name", "AttributeError: module 'os' has no attribute 'nothing_of"),
        ("raise ValueError('is a variable not set?')", "ValueError: is a variable not set?"),
        ("raise SystemExit('used as a script')", "SystemExit: used as a script"),
        ("syntax error", "SyntaxError: invalid syntax"),
    ],
)
def test_what_is_wrong_in_a_module_is_not_taken_for_a_wrong_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str, why: str
) -> None:
    name = f"wrong_{abs(hash(code))}"
    (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ValueError, match=f"the module in '{name}:handle' cannot be imported: {why}"):
        loaded(f"{name}:handle")


@pytest.mark.parametrize("path", ["nowhere:handle", "nowhere.deeper:handle", "json.nowhere:handle", "json:nothing"])
def test_a_handler_that_is_not_there_is_asked_for_by_its_name(path: str) -> None:
    with pytest.raises(ValueError, match=f"there is no handler '{path}': .*; name it as module:function"):
        loaded(path)


@pytest.mark.parametrize("url", ["", "None", "orders", "arn:aws:sqs:us-east-1:123456789012:orders"])
def test_what_is_no_queues_url_is_named(url: str) -> None:
    with pytest.raises(ValueError, match=f"'{url}' is not a queue URL, .*; a variable may be unset"):
        queue_of(consumer(), url)


@pytest.mark.parametrize("why", ["table orders does not exist", "AccessDeniedException"])
def test_records_that_cannot_be_read_are_named(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    """Else each message would fail, and become a dead letter after a few receives."""
    store = MemoryStore()
    monkeypatch.setattr(store, "read", lambda ids: [Unknown(why, retry=False) for _ in ids])
    with pytest.raises(ValueError, match=f"the records cannot be read: {why}"):
        require_records(store, "me")


def test_records_that_are_away_for_a_moment_are_no_reason_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    require_records(store, "me")
    monkeypatch.setattr(store, "read", lambda ids: [Unknown("ThrottlingException") for _ in ids])
    require_records(store, "me")


STRICT = "from aws_xray_sdk.core import patch_all, xray_recorder; xray_recorder.configure({}); patch_all()"


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        ("from gevent import monkey; monkey.patch_all()", "by gevent's, .* or use monkey.patch_all.thread=False"),
        ("from gevent import monkey; monkey.patch_thread()", "by gevent's, .* or use monkey.patch_all.thread=False"),
        (STRICT.format("context_missing='RUNTIME_ERROR'"), "RUNTIME_ERROR, .* set AWS_XRAY_CONTEXT_MISSING=LOG_ERROR"),
    ],
    ids=["gevent", "gevent's threads", "X-Ray"],
)
def test_a_patch_under_which_no_message_could_be_handled_ends_the_worker(tmp_path: Path, patch: str, why: str) -> None:
    """By status 2 and a text that names the remedy: it would be the same in the next process."""
    (tmp_path / "patched.py").write_text(
        f"{patch}\n"
        "from idempotent_receiver import DynamoDBStore, sqs_consumer\n"
        "@sqs_consumer(DynamoDBStore('records'))\n"
        "def handler(body: dict) -> None: ...\n"
    )
    aws = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
    url = "http://127.0.0.1:9/123456789012/orders"
    with subprocess.Popen(
        [sys.executable, "-m", "idempotent_receiver", "work", url, "patched:handler"],
        cwd=tmp_path,
        env={**os.environ, **aws, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"},
        stderr=subprocess.PIPE,
        text=True,
    ) as worker:
        try:
            _, told = worker.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            told = ""
        finally:
            worker.kill()

    assert worker.returncode == 2, "it goes on"
    assert re.search(why, told), told
    assert "Traceback" not in told


def ended(*lines: str) -> subprocess.CompletedProcess[str]:
    """A process that ends as a worker process does, after these lines."""
    program = ["import atexit, sys, threading", "from idempotent_receiver.worker import __main__ as worker", *lines]
    return subprocess.run(
        [sys.executable, "-c", "\n".join([*program, "worker.end(7)"])],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_what_waits_for_ever_at_its_exit_does_not_keep_a_process() -> None:
    """It would receive nothing any more, and no other would take its place. `multiprocessing` waits so for a process
    that a handler has left.
    """
    done = ended("worker.LONGEST_EXIT_SECONDS = 0.1", "atexit.register(threading.Event().wait, 15)")

    assert (done.returncode, done.stdout) == (7, "")
    assert "exit handlers did not finish within 0.1 seconds" in done.stderr


@pytest.mark.parametrize("closes", ["pass", "sys.stdout.close()"])
def test_a_process_ends_with_its_own_status_after_what_is_registered_for_its_exit(closes: str) -> None:
    """And waits for no thread."""
    done = ended(
        "threading.Thread(target=threading.Event().wait).start()",
        "atexit.register(sys.stderr.write, 'registered')",
        closes,
    )

    assert (done.returncode, done.stderr) == (7, "registered")
