"""What a trial on AWS may cost: an upper estimate from the capacity it uses and AWS's prices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.prices import PRICED, PRICES

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_MESSAGES = 40_000
"""The soak ends at this number of messages, whatever its duration."""
STORIES = 3 * 500
"""Messages of the same workload, before and after the soak."""

UNITS_A_MESSAGE = {
    "dynamodb_million_write_units": 14,  # a claim, and a transaction of five items; some are claimed again
    "dynamodb_million_read_units": 10,  # the consumer's, and the reconciliation's
    "sqs_million_requests": 3,
    "lambda_gb_second_arm64": 0.05,
    "lambda_million_invocations": 1,
    "logs_gb": 4e-6,
}
UNITS_OF_CONTRACT = {"dynamodb_million_write_units": 400_000, "dynamodb_million_read_units": 200_000}
UNITS_AN_HOUR = {"sqs_million_requests": 40_000, "metric_months": 60 / 730, "alarm_months": 30 / 730}
"""Lambda's polls of two queues, the consumers' custom metrics, and the alarms of all stacks."""

MORE_PRICES = {"sqs_million_requests": 0.40, "logs_gb": 0.50, "metric_months": 0.30, "alarm_months": 0.10}
"""Like PRICES, from AWS's pricing pages for SQS and CloudWatch."""


def dollars(messages: int, hours: float) -> float:
    """An upper estimate for this many messages and hours, including the contract, without a free tier."""
    parts: list[tuple[Mapping[str, float], float]] = [
        (UNITS_A_MESSAGE, messages),
        (UNITS_OF_CONTRACT, 1),
        (UNITS_AN_HOUR, hours),
    ]
    return sum(units * times * _price(name) for table, times in parts for name, units in table.items())


def _price(name: str) -> float:
    price = (PRICES | MORE_PRICES)[name]
    return price / 1e6 if "_million_" in name else price


REHEARSAL_MINUTES = 15
BESIDES_MINUTES = 45
"""Minutes to deploy three stacks, update one and remove all; and for the contract, the commands and three stories."""
LEAST_MINUTES = 35
"""For a soak in which each disturbance occurs once."""


def minutes(soak: int) -> int:
    """The approximate duration of everything, with a soak of this many minutes."""
    return REHEARSAL_MINUTES + BESIDES_MINUTES + max(soak, LEAST_MINUTES)


def told(soak: int) -> str:
    """The estimate in words."""
    on_aws = minutes(soak) - REHEARSAL_MINUTES
    return (
        f"at most about ${dollars(MOST_MESSAGES + STORIES, on_aws / 60):.2f}: {MOST_MESSAGES:,} messages in {on_aws} "
        f"minutes, at the prices of us-east-1 in {PRICED}, without a free tier"
    )
