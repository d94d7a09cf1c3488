"""From what was measured to dollars: a million messages on Lambda and DynamoDB, and what a day's load needs.

All handlers are instant, so that what is priced is the protocol's own work. Lambda bills wall time; the function has
the memory that comes with a whole CPU, as those that were measured had. Units are billed whether a conditional write
succeeds or is refused. SQS costs all of them the same, and is left out.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

PRICED = "2025-11"
"""The prices' date: us-east-1, dollars, no free tier. Sources: AWS's pricing pages for Lambda and DynamoDB."""

PRICES = {
    "lambda_gb_second_arm64": 0.0000133334,
    "lambda_million_invocations": 0.20,
    "dynamodb_million_write_units": 0.625,
    "dynamodb_million_read_units": 0.125,
}
MEMORY_MB = 1769
"""At which Lambda gives a function one CPU."""

SECONDS_A_DAY = 86_400
DAYS = {"1 million": 1e6, "100 million": 1e8, "10 billion": 1e10}

# Limits; an account's and a table's quotas are AWS's defaults and can be raised. Sources: AWS Lambda Developer Guide,
# "Configuring scaling behavior for SQS event source mappings" and "Lambda quotas"; Amazon DynamoDB Developer Guide,
# "Quotas" and "Best practices for designing and using partition keys".
PARTITION_WRITE_UNITS = 1_000
TABLE_WRITE_UNITS = 40_000
ACCOUNT_CONCURRENCY = 1_000
MAPPING_CONCURRENCY = 1_250
MAPPING_CONCURRENCY_A_MINUTE = 300
MAPPING_CONCURRENCY_AT_FIRST = 5
PROVISIONED_CONCURRENCY = 20_000
PROVISIONED_CONCURRENCY_A_MINUTE = 1_000
POLLER_CONCURRENCY = 10
POLLER_BYTES_A_SECOND = 1_000_000
POLLER_MESSAGES_A_SECOND = 100
"""Ten receives a second, of ten messages at most."""
MESSAGE_BYTES = 1_300


@dataclass(frozen=True, slots=True)
class Cost:
    """What a million messages cost, in dollars."""

    what: str
    batch: int
    subject: str
    lambda_time: float
    lambda_invocations: float
    dynamodb: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.lambda_time + self.lambda_invocations + self.dynamodb


@dataclass(frozen=True, slots=True)
class Need:
    """What a day's load needs, spread evenly; a peak needs as many times more as it is higher."""

    a_day: str
    subject: str
    batch: int
    messages_a_second: float
    invocations_at_once: int
    write_units_a_second: float
    partitions: int
    minutes_to_scale: float
    provisioned_pollers: int
    first_limit: str


def estimate(results: Mapping[str, Any]) -> dict[str, Any]:
    """Costs and needs from a run's results, for the file."""
    cells = [cell for cell in results["cells"] if cell["pinned"]]
    costs = [cost_of(cell, who) for cell in cells for who in cell["subjects"] if who != "bare"]
    hundred = next(cell for cell in cells if cell["name"] == "100 fresh")
    needs = [need_of(hundred, who, a_day) for a_day in DAYS for who in ("ours", "powertools")]
    return {
        "priced": PRICED,
        "prices": PRICES,
        "memory_mb": MEMORY_MB,
        "dollars_a_million": [asdict(one) | {"total": one.total} for one in costs],
        "needs": [asdict(one) for one in needs],
    }


def cost_of(cell: Mapping[str, Any], subject: str) -> Cost:
    """What a million messages of a cell cost."""
    one, messages = cell["subjects"][subject], cell["messages"]
    batches = 1e6 / messages
    billed_seconds = ceil(one["wall_ms"]["median"]) / 1000  # Lambda bills whole milliseconds
    return Cost(
        what=cell["name"],
        batch=messages,
        subject=subject,
        lambda_time=batches * billed_seconds * MEMORY_MB / 1024 * PRICES["lambda_gb_second_arm64"],
        lambda_invocations=batches / 1e6 * PRICES["lambda_million_invocations"],
        dynamodb=_units_price(one) / messages,
    )


def _units_price(one: Mapping[str, Any]) -> float:
    writes = one["write_units"]["median"] * PRICES["dynamodb_million_write_units"]
    return float(writes + one["read_units"]["median"] * PRICES["dynamodb_million_read_units"])


def need_of(cell: Mapping[str, Any], subject: str, a_day: str) -> Need:
    """What a load needs, handled in batches like the cell's."""
    one, messages = cell["subjects"][subject], cell["messages"]
    rate = DAYS[a_day] / SECONDS_A_DAY
    at_once = max(1, ceil(rate / messages * one["wall_ms"]["median"] / 1000))
    writes = rate * one["write_units"]["median"] / messages
    more = max(0, at_once - MAPPING_CONCURRENCY_AT_FIRST)
    return Need(
        a_day=a_day,
        subject=subject,
        batch=messages,
        messages_a_second=rate,
        invocations_at_once=at_once,
        write_units_a_second=writes,
        partitions=max(1, ceil(writes / PARTITION_WRITE_UNITS)),
        minutes_to_scale=more / MAPPING_CONCURRENCY_A_MINUTE,
        provisioned_pollers=_pollers(at_once, rate),
        first_limit=_first_limit(at_once, writes),
    )


def _pollers(at_once: int, rate: float) -> int:
    """As many as the invocations, the bytes and the receives need; two at least."""
    by_bytes, by_receives = rate * MESSAGE_BYTES / POLLER_BYTES_A_SECOND, rate / POLLER_MESSAGES_A_SECOND
    return max(2, ceil(at_once / POLLER_CONCURRENCY), ceil(by_bytes), ceil(by_receives))


def _first_limit(at_once: int, writes: float) -> str:
    """Of the limits that stand in the way, the one that is met at the smallest share of this load."""
    limits = {
        f"the account's {ACCOUNT_CONCURRENCY:,} invocations at once": at_once / ACCOUNT_CONCURRENCY,
        f"the mapping's {MAPPING_CONCURRENCY:,} invocations at once": at_once / MAPPING_CONCURRENCY,
        f"the table's {TABLE_WRITE_UNITS:,} write units a second": writes / TABLE_WRITE_UNITS,
    }
    name, share = max(limits.items(), key=lambda limit: limit[1])
    return f"{name}, {share:.1f} times over" if share > 1 else f"none; nearest is {name}, used to {share:.1%}"


def shown(costs: Mapping[str, Any]) -> str:
    """For people, and for the documentation: two tables."""
    rows = [
        f"Dollars a million messages, us-east-1, prices of {costs['priced']}, {costs['memory_mb']:,} MB:",
        "",
        "| batch | | Lambda | DynamoDB | together |",
        "|---|---|---:|---:|---:|",
    ]
    for one in costs["dollars_a_million"]:
        compute = one["lambda_time"] + one["lambda_invocations"]
        rows.append(
            f"| {one['what']} | {one['subject']} | {compute:.3f} | {one['dynamodb']:.3f} | {one['total']:.3f} |"
        )
    rows += [
        "",
        "What a day's fresh messages need, spread evenly, in batches of 100 with instant handlers:",
        "",
        "| a day | | invocations at once | minutes to get there | pollers | write units/s | partitions | limit |",
        "|---|---|---:|---:|---:|---:|---:|---|",
    ]
    return "\n".join([*rows, *(_need_row(need) for need in costs["needs"])])


def _need_row(need: Mapping[str, Any]) -> str:
    numbers = (
        f"{need['invocations_at_once']:,} | {need['minutes_to_scale']:.1f} | {need['provisioned_pollers']:,} | "
        f"{need['write_units_a_second']:,.0f} | {need['partitions']:,}"
    )
    return f"| {need['a_day']} | {need['subject']} | {numbers} | {need['first_limit']} |"
