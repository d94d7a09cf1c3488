"""Sends transactions' messages, each stamped with its key."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from idempotent_receiver.batch.settings import SendAnswer
from idempotent_receiver.sqs.batch_answers import failed_entries
from idempotent_receiver.sqs.dead_letter import stamped

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

_OWN_FAULTS = frozenset({"InvalidMessageContents", "MessageTooLong"})
"""The SQS error codes for a message that can never be accepted. The cause of any other code, such as a missing
permission, can be fixed and must not dead-letter ten thousand messages.
"""

_TRIES, _TRIES_OF_REQUESTS = 3, 2
"""How often one batch sends a message that SQS could not accept, or whose request failed."""

_OF_QUEUE = frozenset({
    "AccessDenied", "AccessDeniedException", "AuthorizationError", "ExpiredToken", "ExpiredTokenException",
    "InvalidAddress", "InvalidClientTokenId", "InvalidSecurity", "KmsAccessDenied", "KmsDisabled",
    "KmsInvalidKeyUsage", "KmsInvalidState", "KmsNotFound", "KmsOptInRequired", "MissingAuthenticationToken",
    "NonExistentQueue", "OptInRequired", "QueueDeletedRecently", "QueueDoesNotExist", "SignatureDoesNotMatch",
    "UnrecognizedClientException", "UnsupportedOperation",
})  # fmt: skip
"""Codes of a refused request that concern the queue, its key or the credentials: no other request would be accepted.
After any other error, such as a throttled or unanswered request, the next one may be.
"""


def send_messages(
    sqs: "SQSClient", queue_url: str, messages: Sequence[tuple[str, Mapping[str, Any]]]
) -> Sequence[SendAnswer]:
    """Send up to ten messages, given as pairs of key and arguments, in one request. Never raises.

    A message whose answer is lost counts as not sent: it is sent again under the same key.
    """
    try:
        entries: list[Any] = [
            {"Id": str(place), **sendable(queue_url, key, arguments)} for place, (key, arguments) in enumerate(messages)
        ]
        answer = sqs.send_message_batch(QueueUrl=queue_url, Entries=entries)
    except Exception as error:  # noqa: BLE001  # whatever the client raises, nothing is confirmed
        code = _code(error)
        of_one = code.startswith("Invalid") and code not in _OF_QUEUE
        if of_one and len(messages) > 1:
            # One message is at fault, and SQS does not say which.
            return [answer for one in messages for answer in send_messages(sqs, queue_url, [one])]
        why = f"SendMessageBatch on {queue_url} failed: {type(error).__name__} {code}".rstrip()
        if of_one:
            return [SendAnswer(False, why, refused=True)] * len(messages)
        if code in _OF_QUEUE:
            why += ": check that the queue exists, and allow sqs:SendMessage"
            return [SendAnswer(False, why, of_queue=True, refused=True)] * len(messages)
        return [SendAnswer(False, why, tries=_TRIES_OF_REQUESTS)] * len(messages)
    failed = failed_entries(answer, len(entries))
    return [
        _refusal(queue_url, failed[place]) if place in failed else SendAnswer(True) for place in range(len(entries))
    ]


def sendable(queue_url: str, key: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """SendMessage's arguments except the queue URL, with the message's key."""
    attributes = {**arguments.get("MessageAttributes", {}), **stamped(key)}
    once = {"MessageDeduplicationId": key} if queue_url.endswith(".fifo") else {}
    return {**arguments, "MessageAttributes": attributes, **once}


def _refusal(queue_url: str, failed: Mapping[str, Any]) -> SendAnswer:
    code = failed["Code"]
    own = code in _OWN_FAULTS
    refused = own or failed["SenderFault"]
    why, tries = f"SQS answered {code} on {queue_url}", 1 if refused else _TRIES
    return SendAnswer(False, why, own=own, tries=tries, refused=refused and "Throttle" not in code)


def _code(error: Exception) -> str:
    response = getattr(error, "response", None)
    code = response.get("Error", {}).get("Code") if isinstance(response, dict) else None
    return str(code or "").rpartition(".")[2]
