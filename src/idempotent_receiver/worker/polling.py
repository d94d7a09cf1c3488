"""Receives messages from SQS as Lambda event records, and acknowledges them: deletes, delays, or keeps them hidden.

Up to ten messages share a request. A refused entry is retried once, alone. If that fails too, the message is
redelivered, and its record shows how it ended.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from idempotent_receiver.raw_requests import RawList, accept_raw
from idempotent_receiver.sqs.batch_answers import failed_entries
from idempotent_receiver.sqs.received import lambda_record
from idempotent_receiver.sqs.visibility import MOST_ENTRIES

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

POLL_WAIT_SECONDS = 10
"""How long a poll waits for a message. A process that is shutting down waits for its last poll to end."""

LONGEST_LINGER_SECONDS = 0.005
"""How long a deletion may wait to share a request: about one round trip."""


@dataclass(frozen=True, slots=True)
class PolledQueue:
    """A queue as a worker sees it. Thread-safe."""

    sqs: "SQSClient"
    url: str
    arn: str

    @classmethod
    def at(cls, sqs: "SQSClient", url: str) -> "PolledQueue":
        """The queue at this URL. Raises ClientError or BotoCoreError if it does not exist or access is denied."""
        attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
        return cls(accept_raw(sqs), url, attributes["QueueArn"])

    def receive(self, most: int, *, wait_seconds: int, visibility_seconds: int) -> list[dict[str, Any]]:
        """Receive up to ten messages, as Lambda event records; wait for the first."""
        answer = self.sqs.receive_message(
            QueueUrl=self.url,
            MaxNumberOfMessages=min(most, MOST_ENTRIES),
            WaitTimeSeconds=wait_seconds,
            VisibilityTimeout=visibility_seconds,
            AttributeNames=RawList(["All"]),
            MessageAttributeNames=RawList(["All"]),
        )
        return [lambda_record(message, self.arn) for message in answer.get("Messages", [])]

    def delete(self, handles: Sequence[str]) -> list[str]:
        """Delete messages; returns the handles that SQS did not confirm."""
        entries = RawList({"Id": str(place), "ReceiptHandle": handle} for place, handle in enumerate(handles))
        answer = self.sqs.delete_message_batch(QueueUrl=self.url, Entries=entries)
        return [handles[place] for place in failed_entries(answer, len(handles))]

    def change(self, visibilities: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
        """Make each message visible again after its number of seconds; returns the entries that SQS did not confirm."""
        entries = RawList(
            {"Id": str(place), "ReceiptHandle": handle, "VisibilityTimeout": seconds}
            for place, (handle, seconds) in enumerate(visibilities)
        )
        answer = self.sqs.change_message_visibility_batch(QueueUrl=self.url, Entries=entries)
        return [visibilities[place] for place in failed_entries(answer, len(visibilities))]


class Acknowledgements:
    """Sends deletions and visibility changes to SQS, ten at a time or shortly after the oldest.

    SQS keeps the latest visibility timeout, so renewals and changes are never sent concurrently: a renewal that arrived
    after a change would hide its message for a whole lease.
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
            self._tell(len(self._deletions))

    def change(self, handle: str, seconds: int) -> None:
        """Make this message visible again after `seconds`."""
        with self._some:
            self._changes.append((handle, seconds))
            self._tell(len(self._changes))

    def renew(self, handles: Callable[[], Sequence[str]], seconds: int) -> None:
        """Hide these messages for `seconds` from now. `handles` must omit messages with a pending change."""
        with self._changing:
            send_in_tens(self._queue.change, [(handle, seconds) for handle in handles()], self._log)

    def close(self, within_seconds: float) -> None:
        """Send everything pending, waiting up to `within_seconds`."""
        with self._some:
            self._closing = True
            self._some.notify()
        self._thread.join(within_seconds)

    def _tell(self, pending: int) -> None:
        """Wake the thread only for the first and for a full request: each waking costs a switch of threads."""
        if pending == 1 or pending >= MOST_ENTRIES:
            self._some.notify()

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
    """Send entries to SQS, ten per request, and retry each refused entry once, alone. Best effort: no exception may end
    the sending thread.
    """
    entries = list(entries)
    for start in range(0, len(entries), MOST_ENTRIES):
        chunk = entries[start : start + MOST_ENTRIES]
        try:
            refused = ask(chunk)
        except Exception as error:  # noqa: BLE001
            log.warning("SQS did not accept %d entries: %s", len(chunk), error_name(error))
            refused = chunk
        for entry in refused:
            with suppress(Exception):
                ask([entry])


def error_name(error: Exception) -> str:
    """The AWS error code, such as ExpiredToken, or else the exception's class name."""
    code = error.response.get("Error", {}).get("Code") if isinstance(error, ClientError) else None
    return str(code or type(error).__name__)
