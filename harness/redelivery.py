"""What `make run` does besides sending: it requests some transfers over HTTP, and delivers some messages again."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar

from harness.workload.evidence import Delivery, now_ms
from harness.workload.stack_client import StackError
from harness.workload.transfers import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.workload.evidence import Line
    from harness.workload.fake_service import FakeService
    from harness.workload.stack_client import StackClient
    from harness.workload.transfers import TransferMessage, Workload

MOST_UNDER_WAY = 3
POSTS = 3
"""How often a transfer is requested over HTTP."""
DELIVERIES = {Kind.AGAIN: 1, Kind.AT_ONCE: 2}
"""How often a message of this kind is redelivered, all at the same time."""
SILENCE_SECONDS = 30.0
"""How long a function may take to report: it starts in a second or two, or not at all."""


class Redeliveries:
    """The actors of `make run`. The trigger decides when to redeliver a message, and with which record."""

    def __init__(self, client: StackClient, workload: Workload, trigger: ServiceTrigger | LedgerTrigger) -> None:
        self.replayed = 0
        self.delivered_again = 0
        self._client = client
        self._trigger = trigger
        self._waiting = [message for message in workload.messages if message.kind in DELIVERIES]
        self._under_way: list[_Redelivery] = []

    def send(self, messages: Sequence[TransferMessage]) -> dict[str, str]:
        """Send messages, or request them over HTTP; returns their keys by name."""
        sent = {each.name: self._client.post(each, POSTS) for each in messages if each.kind is Kind.POSTED}
        self.replayed += len(sent) * (POSTS - 1)
        queued = [each for each in messages if each.kind is not Kind.POSTED]
        return sent | (self._client.send(queued) if queued else {})

    def act(self, sent: Mapping[str, str], *, all_sent: bool) -> None:
        """Collect finished redeliveries, and start those that are due."""
        self._trigger.check()
        for each in [each for each in self._under_way if each.over]:
            self._under_way.remove(each)
            self._trigger.over(each.message)
            self.delivered_again += DELIVERIES[each.message.kind]
            if each.failure is not None:
                raise each.failure
        for message in [message for message in self._waiting if message.name in sent]:
            if len(self._under_way) == MOST_UNDER_WAY:
                return
            record = self._trigger.due(message, sent[message.name])
            if record is not None:
                self._waiting.remove(message)
                self._under_way.append(_Redelivery(self._client, message, record))

    @property
    def at_rest(self) -> bool:
        return not self._waiting and not self._under_way

    @property
    def counts(self) -> Mapping[str, int]:
        return {"redelivered": self.delivered_again}


class _Redelivery:
    """A message's record, delivered again. Daemon threads, so that a Ctrl-C does not wait for AWS."""

    def __init__(self, client: StackClient, message: TransferMessage, record: Mapping[str, Any]) -> None:
        self.message = message
        self.failure: Exception | None = None
        times = range(DELIVERIES[message.kind])
        self._threads = [threading.Thread(target=self._deliver, args=(client, record), daemon=True) for _ in times]
        for thread in self._threads:
            thread.start()

    @property
    def over(self) -> bool:
        return not any(thread.is_alive() for thread in self._threads)

    def _deliver(self, client: StackClient, record: Mapping[str, Any]) -> None:
        try:
            client.invoke(record)
        except Exception as error:  # noqa: BLE001  # the driver raises it again
            self.failure = error


class ServiceTrigger:
    """Follows the fake service's log, with the record that it saw delivered."""

    witnessed: ClassVar[bool] = True

    def __init__(self, service: FakeService) -> None:
        self._service = service
        self._begun = time.monotonic()

    @property
    def log(self) -> Sequence[Line]:
        return self._service.lines()

    def due(self, message: TransferMessage, key: str) -> Mapping[str, Any] | None:
        """When it is done, or when its handler has started and is held."""
        again = message.kind is Kind.AGAIN
        heard = self._service.is_done(message.name) if again else self._service.reached(message.name, "handler")
        return self._service.records[message.name] if heard else None

    def over(self, message: TransferMessage) -> None:
        """Release the handler that was held for this."""
        if message.kind is Kind.AT_ONCE:
            self._service.let_go(message.name)

    def check(self) -> None:
        if self._service.failure is not None:
            raise StackError("the fake service could not read the ledger") from self._service.failure
        if time.monotonic() - self._begun > SILENCE_SECONDS and not self._service.lines():
            raise StackError(f"the function did not report for {SILENCE_SECONDS:.0f} s: it does not start")


class LedgerTrigger:
    """Follows the ledger alone, and logs what is delivered from here, as the fake service would."""

    witnessed: ClassVar[bool] = False

    def __init__(self, client: StackClient) -> None:
        self.log: list[Line] = []
        self._client = client

    def due(self, message: TransferMessage, key: str) -> Mapping[str, Any] | None:
        """When it is posted; or at once, to race with the queue."""
        done = message.name in self._client.posted([message.name])
        if message.kind is Kind.AGAIN and not done:
            return None
        for place in range(DELIVERIES[message.kind]):
            self.log.append(Delivery(at_ms=now_ms(), worker=f"ours-{place}", name=message.name, done=done))
        return self._client.record_of(message, key)

    def over(self, message: TransferMessage) -> None:
        """Nothing is held."""

    def check(self) -> None:
        """Nothing to check: reading the ledger raises by itself."""
