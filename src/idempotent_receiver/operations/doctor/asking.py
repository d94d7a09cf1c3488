"""Doctor's requests to AWS. A request that is refused, or unsupported by an emulator, leaves only its own fact
unavailable.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from idempotent_receiver.dynamodb.codes import code_of

Fact = TypeVar("Fact")
Answer = Mapping[str, Any]
"""An AWS API response, with AWS's field names."""
Problem = tuple[str, str]
"""A problem that a check found, and its remedy."""


class NotAnswered(Exception):
    """Takes the place of a fact that AWS did not provide; raised where the fact is needed. The text says why."""


class Missing(NotAnswered):
    """AWS's answer that a table or queue does not exist. The text names it."""


_GONE = ("ResourceNotFoundException", "QueueDoesNotExist", "NonExistentQueue")


@contextmanager
def missing_if_gone(what: str) -> Iterator[None]:
    """Raise Missing where AWS says that what the block asks about does not exist."""
    try:
        yield
    except ClientError as error:
        if code_of(error).rpartition(".")[2] in _GONE:
            raise Missing(f"there is no {what}") from None
        raise


def name_of_queue(queue: Answer) -> str:
    """The queue's name, from its ARN."""
    return str(queue["QueueArn"]).rpartition(":")[2]


def known(fact: Fact | NotAnswered) -> Fact:
    """The fact. Raises NotAnswered if it is missing."""
    if isinstance(fact, NotAnswered):
        raise fact
    return fact


def asked(ask: Callable[..., Fact], *given: Any) -> Fact | NotAnswered:
    """AWS's answer; NotAnswered if the request fails, or if one of the `given` facts is missing."""
    try:
        return ask(*map(known, given))
    except ClientError as error:
        return NotAnswered(f"{error.operation_name} failed: {code_of(error)}")
    except BotoCoreError as error:
        return NotAnswered(f"the request to AWS failed: {type(error).__name__}")
    except NotAnswered as unavailable:
        return unavailable
