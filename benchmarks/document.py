"""The report of a run. It goes between marks in the documentation, so all figures there come from one run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks import cost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

COMPARED = (
    ("new", "100 fresh", "ours"),
    ("each with a write of its own, in a `Transaction` here", "100 fresh, each with a write of its own", "ours"),
)
"""The batches that the README compares, and the subject of ours that handles them."""
PEERS = {"idemkit": "idemkit", "powertools": "Powertools"}
BATCHES = ("ours", *PEERS)
WRITES = ("ours", "unclaimed", "powertools")
"""Who is compared in batches without and with writes. The limits are only in the charts."""


def fill(path: Path, name: str, text: str) -> None:
    """Replace the text between the marks of this name. Raises ValueError if a mark is missing."""
    begin, end = marks(name)
    before, found, rest = path.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{path} has no place for {name}: {begin} and {end}")
    path.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}")


def marks(name: str) -> tuple[str, str]:
    """The marks before and after a part that a run writes."""
    return f"<!-- {name}: written by `make bench` -->", f"<!-- end of {name} -->"


def comparison(results: Mapping[str, Any]) -> str:
    """The README's table: the requests of a batch of 100 to DynamoDB, and its duration."""
    lines = ["| 100 messages | this library | " + " | ".join(PEERS.values()) + " |", "|---|---|" + "---|" * len(PEERS)]
    cells = {cell["name"]: cell["subjects"] for cell in results["cells"]}
    for title, name, ours in COMPARED:
        measured = (_requests_and_time(cells[name].get(subject)) for subject in (ours, *PEERS))
        lines.append(f"| {title} | " + " | ".join(measured) + " |")
    return "\n".join(lines)


def _requests_and_time(measured: Mapping[str, Any] | None) -> str:
    if measured is None:
        return "not offered"
    requests = measured["requests"]["median"]
    return f"{requests:,.0f} request{'s' * (requests != 1)}, {measured['wall_ms']['median']:,.0f} ms"


def report(results: Mapping[str, Any]) -> str:
    """The figures of a run in Markdown: medians; results.json has the spreads."""
    return "\n".join(
        [
            *_measured(results),
            "",
            *_writing(results),
            "",
            *cost.needs(results["cost"]),
            "",
            *accepted(results, "acceptance"),
        ]
    )


def _measured(results: Mapping[str, Any]) -> Iterator[str]:
    host, priced = results["machine"], results["cost"]
    versions = ", ".join(f"{name} {host[name]}" for name in ("aws-lambda-powertools", "idemkit", "botocore"))
    yield (
        f"Measured {results['measured']} on {host['cpus']} CPUs at load {host['load_average'][0]:.1f}, Python"
        f" {host['python']}, {versions}, round trips of 5 ms. Medians; `benchmarks/results.json` has all spreads."
        f" Dollars of Lambda and DynamoDB for a million messages: us-east-1, prices of {priced['priced']},"
        f" {priced['memory_mb']:,} MB."
    )
    yield ""
    yield from _table("batch", BATCHES, "CPU ms a message")
    for cell in results["cells"]:
        if not cell["writes"]:
            yield _row(results, cell, cell["name"], BATCHES, _cpu)


def _writing(results: Mapping[str, Any]) -> Iterator[str]:
    yield "100 fresh messages with one write each, to items of their own, to ten or one; some fail, or read first:"
    yield ""
    yield from _table("items", WRITES, "requests")
    for cell in results["cells"]:
        items = str(cell["hot_items"] or "own")
        if cell["reads"]:
            items = f"{items}, read first, {cell['concurrency']} at once"
        items = f"{items}, and a message sent" if cell["sends"] else items
        items = f"{items}, {cell['failing']:.0%} fail" if cell["failing"] else items
        if cell["writes"] and cell["messages"] == 100 and cell["failing"] in (0, 0.1):
            yield _row(results, cell, items, WRITES, _requests)


def _table(first: str, subjects: Sequence[str], figure: str) -> Iterator[str]:
    """The head of a table with three figures, each of all subjects."""
    named = " | ".join(PEERS.get(subject, subject) for subject in subjects)
    yield f"| {first} | " + " | ".join(f"{one}: {named}" for one in ("ms", figure, "dollars")) + " |"
    yield "|---|" + "---:|" * 3 * len(subjects)


def _row(
    results: Mapping[str, Any], cell: Mapping[str, Any], name: str, subjects: Sequence[str], figure: Callable[..., str]
) -> str:
    """A batch in such a table. What was not measured is empty."""
    found = [cell["subjects"].get(subject) for subject in subjects]
    times = [one and f"{one['wall_ms']['median']:,.1f}" for one in found]
    figures = [one and figure(one) for one in found]
    dollars = [_dollars(results, cell, subject) for subject in subjects]
    return f"| {name} | " + " | ".join(one or "" for one in (*times, *figures, *dollars)) + " |"


def _cpu(one: Mapping[str, Any]) -> str:
    return f"{one['cpu_ms_a_message']:.3f}"


def _requests(one: Mapping[str, Any]) -> str:
    return f"{one['requests']['median']:,.0f}"


def _dollars(results: Mapping[str, Any], cell: Mapping[str, Any], subject: str) -> str:
    """The cost of a million messages; empty for a batch that is not priced."""
    prices = {(one["what"], one["subject"]): one["total"] for one in results["cost"]["dollars_a_million"]}
    price = prices.get((cell["name"], subject))
    return "" if price is None else f"{price:.2f}"


def accepted(results: Mapping[str, Any], module: str) -> Iterator[str]:
    """The number of targets met, and those that were not."""
    lines = results["acceptance"]
    missed = [line for line in lines if not line["met"]]
    yield f"Of {len(lines)} targets (`benchmarks/{module}.py`) this run met {len(lines) - len(missed)}."
    if not missed:
        return
    yield ""
    yield "| not met | target | measured |"
    yield "|---|---|---|"
    for line in missed:
        yield f"| {line['what']} | {line['wanted']} | {line['measured']} |"
