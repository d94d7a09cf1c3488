"""From measurements to dollars: the cost of a million messages on Lambda and DynamoDB, and the needs of a day's load.

All handlers are instant, so the price is that of the protocol alone. Lambda bills wall time; the function has the
memory at which Lambda gives it one whole CPU, as the measured subjects had. DynamoDB bills a conditional write whether
or not its condition holds. SQS costs the same for every subject and is left out.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

from harness.prices import PRICED, PRICES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LIMITS = ("bare", "bare_unclaimed")
"""The subjects that handle nothing, so they have no price."""

MEMORY_MB = 1769
"""The memory at which Lambda gives a function one CPU."""

SECONDS_A_DAY = 86_400
DAYS = {"1 million": 1e6, "100 million": 1e8, "10 billion": 1e10}

# The quotas of accounts and tables are AWS's defaults and can be raised. Sources: AWS Lambda Developer Guide,
# "Configuring scaling behavior for SQS event source mappings" and "Lambda quotas"; Amazon DynamoDB Developer Guide,
# "DynamoDB on-demand capacity mode" and "Service, account, and table quotas".
TABLE_WRITE_UNITS = 40_000
ACCOUNT_CONCURRENCY = 1_000
MAPPING_CONCURRENCY = 1_250
POLLER_CONCURRENCY = 10
POLLER_BYTES_A_SECOND = 1_000_000
POLLER_MESSAGES_A_SECOND = 100
"""Ten receives a second, with at most ten messages each."""
MESSAGE_BYTES = 1_300


def estimate(results: Mapping[str, Any]) -> dict[str, Any]:
    """The costs and needs that follow from a run's results."""
    cells = [cell for cell in results["cells"] if cell["pinned"]]
    hundred = next(cell for cell in cells if cell["name"] == "100 fresh")
    return {
        "priced": PRICED,
        "prices": PRICES,
        "memory_mb": MEMORY_MB,
        "dollars_a_million": [_cost(cell, who) for cell in cells for who in cell["subjects"] if who not in LIMITS],
        "needs": [_need(hundred, who, a_day) for a_day in DAYS for who in ("ours", "powertools")],
    }


def _cost(cell: Mapping[str, Any], subject: str) -> dict[str, Any]:
    """The cost of a cell's million messages, in dollars."""
    one, messages = cell["subjects"][subject], cell["messages"]
    billed_seconds = ceil(one["wall_ms"]["median"]) / 1000  # Lambda bills whole milliseconds
    units = {kind: one[kind]["median"] for kind in ("write_units", "read_units")}
    costs = {
        "lambda_time": 1e6 / messages * billed_seconds * MEMORY_MB / 1024 * PRICES["lambda_gb_second_arm64"],
        "lambda_invocations": PRICES["lambda_million_invocations"] / messages,
        "dynamodb": sum(units[kind] * PRICES[f"dynamodb_million_{kind}"] for kind in units) / messages,
    }
    named = {"what": cell["name"], "batch": messages, "writes": cell["writes"], "subject": subject}
    return {**named, **costs, "total": sum(costs.values())}


def _need(cell: Mapping[str, Any], subject: str, a_day: str) -> dict[str, Any]:
    """The needs of a load that is spread evenly over the day and handled in batches like the cell's."""
    one, messages = cell["subjects"][subject], cell["messages"]
    rate = DAYS[a_day] / SECONDS_A_DAY
    invocations = max(1, ceil(rate / messages * one["wall_ms"]["median"] / 1000))
    writes = rate * one["write_units"]["median"] / messages
    by_bytes, by_receives = rate * MESSAGE_BYTES / POLLER_BYTES_A_SECOND, rate / POLLER_MESSAGES_A_SECOND
    return {
        "a_day": a_day,
        "subject": subject,
        "batch": messages,
        "messages_a_second": rate,
        "invocations_at_once": invocations,
        "write_units_a_second": writes,
        "provisioned_pollers": max(2, ceil(invocations / POLLER_CONCURRENCY), ceil(by_bytes), ceil(by_receives)),
        "first_limit": _first_limit(invocations, writes),
    }


def _first_limit(invocations: int, writes: float) -> str:
    """The limit that a growing load reaches first."""
    limits = {
        f"the account's {ACCOUNT_CONCURRENCY:,} invocations at once": invocations / ACCOUNT_CONCURRENCY,
        f"the mapping's {MAPPING_CONCURRENCY:,} invocations at once": invocations / MAPPING_CONCURRENCY,
        f"the table's {TABLE_WRITE_UNITS:,} write units a second": writes / TABLE_WRITE_UNITS,
    }
    name, share = max(limits.items(), key=lambda limit: limit[1])
    return f"{name}, {share:.1f} times over" if share > 1 else f"none; nearest is {name}, used to {share:.1%}"


def needs(costs: Mapping[str, Any]) -> Iterator[str]:
    """The needs of loads, as a Markdown table. The cost of messages is next to their figures."""
    yield "What a day's fresh messages need, spread evenly, in batches of 100 with instant handlers:"
    yield ""
    yield "| a day | invocations at once | pollers | write units/s | limit |"
    yield "|---|---:|---:|---:|---|"
    for need in (one for one in costs["needs"] if one["subject"] == "ours"):
        numbers = (
            f"{need['invocations_at_once']:,} | {need['provisioned_pollers']:,} | {need['write_units_a_second']:,.0f}"
        )
        yield f"| {need['a_day']} | {numbers} | {need['first_limit']} |"
