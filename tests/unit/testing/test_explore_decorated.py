"""`explore` finds a consumer below what decorates it, and names those of a module where it finds none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from aws_lambda_powertools.utilities.data_classes import SQSEvent, event_source
from aws_lambda_powertools.utilities.parser import event_parser

from idempotent_receiver import MemoryStore, sqs_consumer
from idempotent_receiver.testing import explore
from tests.unit.testing import handlers
from tests.unit.testing.handlers import ORDER, accounts

if TYPE_CHECKING:
    from collections.abc import Callable


def test_what_powertools_decorates_is_played_as_it_is_deployed() -> None:
    decorated = event_source(data_class=SQSEvent)(event_parser(handlers.transactional))
    result = explore(decorated, ORDER, tables=accounts())
    assert result.schedules == 164
    assert result.effects == {"accounts": [{"account": "alice", "balance": 95}]}


def dispatcher(event: Any, context: Any) -> Any:
    return handlers.transactional(event, context) if "Records" in event else None


class Hiding:
    """A decorator that is an object without `__wrapped__`, as Datadog's is."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, event: Any, context: Any) -> Any:
        return self.function(event, context)


@sqs_consumer(MemoryStore())
def refund(order: dict) -> None: ...


hiding = Hiding(refund)


@pytest.mark.parametrize("handler", [dispatcher, hiding])
def test_a_handler_in_which_no_consumer_is_found_is_told_those_of_its_module(handler: Any) -> None:
    with pytest.raises(TypeError, match=r"explore needs: use a consumer that its module has: (\w+, )*refund\b"):
        explore(handler, ORDER)
