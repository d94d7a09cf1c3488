"""ECS task scale-in protection while handlers run, so that neither a scale-in nor a deployment ends this task.

Best effort, in its own thread, and only where an ECS agent is available. A message counts once it has been running at
two successive checks: shorter handlers finish while the task drains.

Source: https://docs.aws.amazon.com/AmazonECS/latest/developerguide/task-scale-in-protection-endpoint.html
"""

import http.client
import json
import logging
import threading
from collections.abc import Mapping
from contextlib import closing
from http import HTTPStatus
from urllib.parse import urlsplit

from idempotent_receiver.clock import Clock, SystemClock

logger = logging.getLogger("idempotent_receiver.worker")

SCALE_IN_LOOK_SECONDS = 1.0
RENEWAL_SECONDS = 60.0
EXPIRES_MINUTES = 5
LONGEST_REQUEST_SECONDS = 5.0


class ScaleInProtection:
    """Scale-in protection for this task, through the agent at `uri`."""

    def __init__(self, uri: str, clock: Clock) -> None:
        self.running: frozenset[str] = frozenset()
        """The messages whose handlers are running; any thread may set this at any time."""
        self.over = False
        """Set once nothing needs protection any more, to stop the checks."""
        self._uri = urlsplit(uri)
        self._clock = clock
        self._seen: frozenset[str] = frozenset()
        self._asked_seconds: float | None = None
        self._warned = False

    @classmethod
    def started(cls, environment: Mapping[str, str]) -> "ScaleInProtection | None":
        """Start checking, if the environment names an agent."""
        uri = environment.get("ECS_AGENT_URI")
        if not uri:
            return None
        protection = cls(uri, SystemClock())
        threading.Thread(target=protection.keep, name="scale-in protection", daemon=True).start()
        return protection

    def keep(self) -> None:
        """Check repeatedly."""
        while not self.over:
            self.look()
            self._clock.sleep(SCALE_IN_LOOK_SECONDS)

    def look(self) -> None:
        """Request protection if a message has been running since the last check; otherwise end the protection."""
        running = self.running
        lasting, self._seen = running & self._seen, running
        now, asked = self._clock.monotonic_seconds(), self._asked_seconds
        due = asked is None or now - asked >= RENEWAL_SECONDS
        if lasting and due and self._put({"ProtectionEnabled": True, "ExpiresInMinutes": EXPIRES_MINUTES}):
            self._asked_seconds = now
        elif not lasting and asked is not None and self._put({"ProtectionEnabled": False}):
            self._asked_seconds = None

    def _put(self, state: Mapping[str, object]) -> bool:
        """Request a state; returns whether the agent accepted it. Logs only the first of successive refusals."""
        try:
            refusal = self._refusal(json.dumps(state))
        except (OSError, ValueError, http.client.HTTPException) as error:
            refusal = f"{type(error).__name__}: {error}"
        if refusal is not None and not self._warned:
            logger.warning("ECS did not change this task's scale-in protection: %s", refusal)
        self._warned = refusal is not None
        return refusal is None

    def _refusal(self, body: str) -> str | None:
        with closing(
            http.client.HTTPConnection(str(self._uri.hostname), self._uri.port, timeout=LONGEST_REQUEST_SECONDS)
        ) as agent:
            path = f"{self._uri.path}/task-protection/v1/state"
            agent.request("PUT", path, body, {"Content-Type": "application/json"})
            response = agent.getresponse()
            told = response.read().decode(errors="replace")
            taken = response.status == HTTPStatus.OK and "failure" not in json.loads(told)
            return None if taken else f"{response.status} {told}"
