"""How doctor asks AWS: a request that is refused, or that an emulator does not know, leaves one fact unavailable."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from idempotent_receiver.dynamodb.codes import code_of

Fact = TypeVar("Fact")
Answer = Mapping[str, Any]
"""What an AWS API answered, under its names."""
Problem = tuple[str, str]
"""What a check finds wrong, and its remedy."""


class NotAnswered(Exception):
    """Stands for a fact that AWS did not give, and is raised where that fact is needed; its text says why."""


def known(fact: Fact | NotAnswered) -> Fact:
    """The fact. Raises Unavailable if it is not there."""
    if isinstance(fact, NotAnswered):
        raise fact
    return fact


def asked(ask: Callable[..., Fact], *given: Any) -> Fact | NotAnswered:
    """What AWS answers; Unavailable where it does not, or where one of the `given` facts to ask with is."""
    try:
        return ask(*map(known, given))
    except ClientError as error:
        return NotAnswered(f"{error.operation_name} was answered with {code_of(error)}")
    except BotoCoreError as error:
        return NotAnswered(f"AWS could not be asked: {type(error).__name__}")
    except NotAnswered as unavailable:
        return unavailable
