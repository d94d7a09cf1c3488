"""The report of a run. It stands between two marks in the documentation, so all figures there come from one run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks import cost

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

BEGIN, END = "<!-- results: written by `make bench` -->", "<!-- end of results -->"


def fill(results: Mapping[str, Any], path: Path) -> None:
    """Replace what is between the marks. Raises ValueError if a mark is missing."""
    before, begin, rest = path.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path} has no place for results: {BEGIN} and {END}")
    path.write_text(f"{before}{begin}\n\n{report(results)}\n\n{end}{after}")


def report(results: Mapping[str, Any]) -> str:
    """All figures of a run in Markdown."""
    return "\n".join([*_measured(results), "", *cost.rows(results["cost"]), "", *_accepted(results)])


def _measured(results: Mapping[str, Any]) -> Iterator[str]:
    host = results["machine"]
    versions = ", ".join(f"{name} {host[name]}" for name in ("aws-lambda-powertools", "idemkit", "botocore"))
    yield (
        f"Measured {results['measured']} on {host['cpus']} CPUs at load {host['load_average'][0]:.1f}, Python"
        f" {host['python']}, {versions}, round trips of 5 ms. Medians, with minimum and maximum:"
    )
    yield ""
    yield "| batch | | milliseconds | CPU ms a message | requests | write units | read units |"
    yield "|---|---|---:|---:|---:|---:|---:|"
    for cell in results["cells"]:
        for subject, one in cell["subjects"].items():
            wall = one["wall_ms"]
            counts = " | ".join(f"{one[name]['median']:,.0f}" for name in ("requests", "write_units", "read_units"))
            spread = f"{wall['median']:,.1f} ({wall['least']:,.1f} to {wall['most']:,.1f})"
            yield f"| {cell['name']} | {subject} | {spread} | {one['cpu_ms_a_message']:.3f} | {counts} |"


def _accepted(results: Mapping[str, Any]) -> Iterator[str]:
    yield "The targets, and what this run measured:"
    yield ""
    yield "| what | target | measured | |"
    yield "|---|---|---|---|"
    for line in results["acceptance"]:
        yield f"| {line['what']} | {line['wanted']} | {line['measured']} | {'met' if line['met'] else '**not met**'} |"
