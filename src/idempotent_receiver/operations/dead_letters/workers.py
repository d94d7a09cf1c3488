"""Several requests at a time: an operator's commands wait for AWS far longer than they compute."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from idempotent_receiver.dynamodb.codes import code_of

WORKERS = 8
"""Fewer than the ten connections that a boto3 client keeps."""

T = TypeVar("T")
R = TypeVar("R")

RequestFailed = ClientError | BotoCoreError
"""What a request raises that AWS refused, or that did not reach it."""

_REFUSING = ("AccessDenied", "KMS", "Kms", "InvalidClientToken", "UnrecognizedClient", "ExpiredToken", "OptInRequired")
"""How codes begin by which AWS says that it has done nothing, whatever the status of the response."""


def refused(error: RequestFailed) -> bool:
    """Whether AWS has done nothing, for sure: it refused the whole request, by a permission, a key or its content."""
    if not isinstance(error, ClientError):
        return False
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
    code = code_of(error).removeprefix("AWS.SimpleQueueService.")
    return 400 <= status < 500 or code.startswith(_REFUSING)  # HTTP's


class Workers:
    """Makes up to `count` requests at a time, each in a thread; with one, all in the caller's thread, in order."""

    def __init__(self, count: int = WORKERS) -> None:
        self.count = count
        self._threads = ThreadPoolExecutor(count) if count > 1 else None

    def outcomes(self, request: Callable[[T], R], of: Iterable[T]) -> list[tuple[T, R | RequestFailed]]:
        """What each request was made of, in order, and what it returned or how it failed. All are made, even where one
        fails.
        """

        def outcome(one: T) -> tuple[T, R | RequestFailed]:
            try:
                return one, request(one)
            except (ClientError, BotoCoreError) as error:
                return one, error

        return list(map(outcome, of) if self._threads is None else self._threads.map(outcome, of))

    def results(self, request: Callable[[T], R], of: Iterable[T]) -> list[R]:
        """What each request returned, in order. Raises the first failure once all were made."""
        found = []
        for _, each in self.outcomes(request, of):
            if isinstance(each, ClientError | BotoCoreError):
                raise each
            found.append(each)
        return found
