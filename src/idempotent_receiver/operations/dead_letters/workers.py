"""Concurrent requests: an operator's commands spend most of their time waiting for AWS."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from idempotent_receiver.dynamodb.codes import code_of

WORKERS = 8
"""Fewer than the ten connections in a boto3 client's pool."""

T = TypeVar("T")
R = TypeVar("R")

RequestFailed = ClientError | BotoCoreError
"""Raised by a request that AWS refused or that did not reach AWS."""

_REFUSING = ("AccessDenied", "KMS", "Kms", "InvalidClientToken", "UnrecognizedClient", "ExpiredToken", "OptInRequired")
"""Prefixes of error codes that mean AWS did nothing, whatever the HTTP status."""


def refused(error: RequestFailed) -> bool:
    """Whether AWS certainly did nothing: it refused the whole request because of permissions, a key or the content."""
    if not isinstance(error, ClientError):
        return False
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
    code = code_of(error).removeprefix("AWS.SimpleQueueService.")
    return 400 <= status < 500 or code.startswith(_REFUSING)  # an HTTP status


class Workers:
    """Makes up to `count` requests at a time in threads, or one by one in the caller's thread if `count` is one."""

    def __init__(self, count: int = WORKERS) -> None:
        self.count = count
        self._threads = ThreadPoolExecutor(count) if count > 1 else None

    def outcomes(self, request: Callable[[T], R], of: Iterable[T]) -> list[tuple[T, R | RequestFailed]]:
        """Every request's argument with its result or failure, in order. One failure does not stop the others."""

        def outcome(one: T) -> tuple[T, R | RequestFailed]:
            try:
                return one, request(one)
            except (ClientError, BotoCoreError) as error:
                return one, error

        return list(map(outcome, of) if self._threads is None else self._threads.map(outcome, of))

    def results(self, request: Callable[[T], R], of: Iterable[T]) -> list[R]:
        """Every request's result, in order. Raises the first failure after all requests have ended."""
        found = []
        for _, each in self.outcomes(request, of):
            if isinstance(each, ClientError | BotoCoreError):
                raise each
            found.append(each)
        return found
