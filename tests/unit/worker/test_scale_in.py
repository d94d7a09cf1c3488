"""ECS's task scale-in protection, asked of a real server on loopback that stands for ECS's agent."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver.worker.scale_in import (
    EXPIRES_MINUTES,
    RENEWAL_SECONDS,
    SCALE_IN_LOOK_SECONDS,
    ScaleInProtection,
)
from tests.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator

ON = {"ProtectionEnabled": True, "ExpiresInMinutes": EXPIRES_MINUTES}
OFF = {"ProtectionEnabled": False}


class Agent:
    """What stands for ECS's agent: `asked` is what it was told, and `answer` what it says."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answer: tuple[int, bytes] = (200, b'{"protection": {}}')
        self.some = threading.Event()
        agent = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                agent.asked.append((self.path, body))
                agent.some.set()
                status, text = agent.answer
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.uri = f"http://127.0.0.1:{self.server.server_port}/api/task-1"

    @property
    def states(self) -> list[dict[str, Any]]:
        return [state for _, state in self.asked]


@pytest.fixture
def agent() -> Iterator[Agent]:
    agent = Agent()
    serving = threading.Thread(target=agent.server.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    yield agent
    agent.server.shutdown()
    agent.server.server_close()
    serving.join()


class Worker:
    """A supervisor's view of its task, a look at a time."""

    def __init__(self, uri: str) -> None:
        self.clock = ManualClock()
        self.protection = ScaleInProtection(uri, self.clock)

    def looks(self, count: int, *running: str) -> None:
        self.protection.running = frozenset(running)
        for _ in range(count):
            self.protection.look()
            self.clock.sleep(SCALE_IN_LOOK_SECONDS)


def test_a_task_is_protected_while_a_handler_runs_and_not_afterwards(agent: Agent) -> None:
    worker = Worker(agent.uri)
    worker.looks(2)
    worker.looks(5, "long")
    worker.looks(5)

    assert agent.asked == [("/api/task-1/task-protection/v1/state", ON), ("/api/task-1/task-protection/v1/state", OFF)]


def test_the_protection_is_renewed_long_before_it_expires(agent: Agent) -> None:
    worker = Worker(agent.uri)
    worker.looks(int(3 * RENEWAL_SECONDS / SCALE_IN_LOOK_SECONDS) + 2, "long")

    assert agent.states == [ON] * 4
    assert 2 * RENEWAL_SECONDS <= EXPIRES_MINUTES * 60


def test_handlers_that_end_between_two_looks_do_not_protect_their_task(agent: Agent) -> None:
    """A task that is busy with quick messages can be scaled in: it drains in time."""
    worker = Worker(agent.uri)
    for number in range(5):
        worker.looks(1, f"quick-{number}")

    assert agent.asked == []


@pytest.mark.parametrize("answer", [(400, b'{"error": {}}'), (200, b'{"failure": {}}'), (500, b"no JSON")])
def test_a_refusal_is_warned_of_once_and_tried_again(
    agent: Agent, answer: tuple[int, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    worker = Worker(agent.uri)
    taken, agent.answer = agent.answer, answer
    worker.looks(3, "long")
    assert agent.states == [ON] * 2
    assert len(caplog.records) == 1

    agent.answer = taken
    worker.looks(3, "long")
    assert agent.states == [ON] * 3

    agent.answer = answer
    worker.looks(2)
    agent.answer = taken
    worker.looks(3)
    assert agent.states[3:] == [OFF] * 3


def test_an_agent_that_is_not_there_is_warned_of_and_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        Worker(f"http://127.0.0.1:{nobody.getsockname()[1]}").looks(4, "long")

    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "Refused" in caplog.text


def test_it_looks_by_itself_where_the_environment_names_an_agent(agent: Agent) -> None:
    protection = ScaleInProtection.started({"ECS_AGENT_URI": agent.uri})
    assert protection is not None
    protection.running = frozenset({"long"})

    assert agent.some.wait(30)
    assert agent.states[0] == ON
    protection.over = True
    looking = [thread for thread in threading.enumerate() if thread.name == "scale-in protection"]
    for thread in looking:
        thread.join(10 * SCALE_IN_LOOK_SECONDS)
    assert not any(thread.is_alive() for thread in looking)


def test_elsewhere_than_on_ecs_nobody_is_asked() -> None:
    assert ScaleInProtection.started({}) is None
