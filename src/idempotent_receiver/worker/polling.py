"""Messages from SQS as Lambda would hand them over, and what is told to SQS about each: deleted, later, or still held.

Ten messages share a request. What was refused of a request is asked once more, alone; whatever goes wrong then, the
message comes again and its record tells what has become of it.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from idempotent_receiver.sqs.received import lambda_record
from idempotent_receiver.sqs.visibility import MOST_ENTRIES

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

POLL_WAIT_SECONDS = 10
"""How long a poll waits for a message: a process that shall end waits for its last one."""

LONGEST_LINGER_SECONDS = 0.005
"""How long a deletion may wait for company: about a round trip."""


@dataclass(frozen=True, slots=True)
class PolledQueue:
    """A queue as a worker sees it. Safe to use from several threads."""

    sqs: "SQSClient"
    url: str
    arn: str

    @classmethod
    def at(cls, sqs: "SQSClient", url: str) -> "PolledQueue":
        """The queue of that URL. Raises ClientError or BotoCoreError if it is not there, or not for us."""
        attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
        return cls(sqs, url, attributes["QueueArn"])

    def receive(self, most: int, *, wait_seconds: int, visibility_seconds: int) -> list[dict[str, Any]]:
        """Up to ten messages, as the records of Lambda's event; waits for the first."""
        answer = self.sqs.receive_message(
            QueueUrl=self.url,
            MaxNumberOfMessages=min(most, MOST_ENTRIES),
            WaitTimeSeconds=wait_seconds,
            VisibilityTimeout=visibility_seconds,
            AttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        return [lambda_record(message, self.arn) for message in answer.get("Messages", [])]

    def delete(self, handles: Sequence[str]) -> list[str]:
        """Delete these, and return those that were refused."""
        entries = [{"Id": str(place), "ReceiptHandle": handle} for place, handle in enumerate(handles)]
        answer = self.sqs.delete_message_batch(QueueUrl=self.url, Entries=entries)  # type: ignore[arg-type]  # they are
        return [handles[int(failed["Id"])] for failed in answer.get("Failed", [])]

    def change(self, visibilities: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
        """Let each come again so many seconds from now, and return those that were refused."""
        entries = [
            {"Id": str(place), "ReceiptHandle": handle, "VisibilityTimeout": seconds}
            for place, (handle, seconds) in enumerate(visibilities)
        ]
        answer = self.sqs.change_message_visibility_batch(QueueUrl=self.url, Entries=entries)  # type: ignore[arg-type]
        return [visibilities[int(failed["Id"])] for failed in answer.get("Failed", [])]


class Acknowledgements:
    """Deletions and visibilities on their way to SQS: they leave ten at a time, or a moment after the oldest.

    SQS keeps the visibility that it is told last. So renewals and changes are sent one after the other: a renewal that
    landed after a change would hide its message for as long as a lease.
    """

    def __init__(self, queue: PolledQueue, log: logging.Logger) -> None:
        self._queue = queue
        self._log = log
        self._deletions: list[str] = []
        self._changes: list[tuple[str, int]] = []
        self._closing = False
        self._changing = threading.Lock()
        self._some = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="acknowledgements", daemon=True)
        self._thread.start()

    def delete(self, handle: str) -> None:
        """Delete this message."""
        with self._some:
            self._deletions.append(handle)
            self._some.notify()

    def change(self, handle: str, seconds: int) -> None:
        """Let this message come again so many seconds from now."""
        with self._some:
            self._changes.append((handle, seconds))
            self._some.notify()

    def renew(self, handles: Callable[[], Sequence[str]], seconds: int) -> None:
        """Hide these for so long from now on. `handles` must tell of none whose change waits here."""
        with self._changing:
            send_in_tens(self._queue.change, [(handle, seconds) for handle in handles()], self._log)

    def close(self, within_seconds: float) -> None:
        """Send what waits."""
        with self._some:
            self._closing = True
            self._some.notify()
        self._thread.join(within_seconds)

    def _run(self) -> None:
        while True:
            with self._some:
                self._some.wait_for(lambda: self._deletions or self._changes or self._closing)
                if not self._closing:
                    self._some.wait_for(
                        lambda: max(len(self._deletions), len(self._changes)) >= MOST_ENTRIES or self._closing,
                        LONGEST_LINGER_SECONDS,
                    )
                deletions, self._deletions = self._deletions[:MOST_ENTRIES], self._deletions[MOST_ENTRIES:]
                changes, self._changes = self._changes[:MOST_ENTRIES], self._changes[MOST_ENTRIES:]
            if not deletions and not changes:
                return
            send_in_tens(self._queue.delete, deletions, self._log)
            if changes:
                with self._changing:
                    send_in_tens(self._queue.change, changes, self._log)


def send_in_tens(ask: Callable[[Sequence[Any]], list[Any]], entries: Iterable[Any], log: logging.Logger) -> None:
    """Ask SQS for these, ten a request, and once more alone for each that was refused. Best effort: whatever is raised
    must not end the thread that asks.
    """
    entries = list(entries)
    for start in range(0, len(entries), MOST_ENTRIES):
        chunk = entries[start : start + MOST_ENTRIES]
        try:
            refused = ask(chunk)
        except Exception as error:  # noqa: BLE001
            log.warning("SQS did not take %d entries: %s", len(chunk), error_name(error))
            refused = chunk
        for entry in refused:
            with suppress(Exception):
                ask([entry])


def error_name(error: Exception) -> str:
    """What an error is called: by SQS's own code for it where there is one, such as ExpiredToken."""
    code = error.response.get("Error", {}).get("Code") if isinstance(error, ClientError) else None
    return str(code or type(error).__name__)
