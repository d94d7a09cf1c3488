"""The results as pictures for the documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

LOOKS = {
    "ours": ("idempotent receiver", "#0b6e4f", "o", "-"),
    "powertools": ("Lambda Powertools", "#c8553d", "s", "-"),
    "idemkit": ("idemkit", "#588b8b", "^", "-"),
    "bare": ("bare client: the limit", "#555555", "x", ":"),
}


def draw(results: Mapping[str, Any], folder: Path) -> None:
    """Draw all pictures into the folder."""
    import matplotlib as mpl  # noqa: PLC0415  # slow to import, and only needed at the end

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "benchmark", "svg.fonttype": "none", "font.size": 10})
    _overhead(results, folder / "bench-overhead.svg")
    _cpu(results, folder / "bench-cpu.svg")
    _cost(results, folder / "bench-cost.svg")


def _overhead(results: Mapping[str, Any], path: Path) -> None:
    figure, axes = _axes("Time of a batch: fresh messages, instant handlers, 5 ms round trip", "milliseconds")
    for subject, sizes, values in _lines(results, lambda one, messages: one["wall_ms"]["median"]):
        _line(axes, subject, sizes, values)
    _finish(figure, axes, path)


def _cpu(results: Mapping[str, Any], path: Path) -> None:
    figure, axes = _axes("CPU a message: fresh messages, instant handlers", "milliseconds of CPU")
    for subject, sizes, values in _lines(results, lambda one, messages: one["cpu_ms_a_message"]):
        _line(axes, subject, sizes, values)
    _finish(figure, axes, path)


def _cost(results: Mapping[str, Any], path: Path) -> None:
    import matplotlib.pyplot as plt  # noqa: PLC0415  # after the backend has been chosen

    fresh = ("10 fresh", "100 fresh", "1,000 fresh")
    costs = [one for one in results["cost"]["dollars_a_million"] if one["what"] in fresh]
    figure, axes = plt.subplots(figsize=(7, 3.6))
    names = [f"{LOOKS[one['subject']][0]}, {one['batch']:,}" for one in costs][::-1]
    database = [one["dynamodb"] for one in costs][::-1]
    compute = [one["lambda_time"] + one["lambda_invocations"] for one in costs][::-1]
    axes.barh(names, database, color="#8d99ae", label="DynamoDB, on demand")
    axes.barh(names, compute, left=database, color="#c8553d", label="Lambda")
    axes.set_title("Cost of a million messages, by batch size")
    axes.set_xlabel(f"dollars ({results['cost']['priced']}, us-east-1)")
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))
    _save(figure, path)


def _lines(results: Mapping[str, Any], value: Any) -> Iterator[tuple[str, list[int], list[float]]]:
    alike = [cell for cell in results["cells"] if cell["pinned"]]
    cells = [cell for cell in alike if not cell["duplicates"] and not cell["writes"]]
    for subject in LOOKS:
        there = [cell for cell in cells if subject in cell["subjects"]]
        sizes = [cell["messages"] for cell in there]
        yield subject, sizes, [value(cell["subjects"][subject], cell["messages"]) for cell in there]


def _axes(title: str, unit: str) -> tuple[Any, Any]:
    import matplotlib.pyplot as plt  # noqa: PLC0415  # after the backend has been chosen

    figure, axes = plt.subplots(figsize=(7, 4))
    axes.set(title=title, xlabel="messages in the batch", ylabel=unit, xscale="log", yscale="log")
    return figure, axes


def _line(axes: Any, subject: str, sizes: list[int], values: list[float]) -> None:
    label, color, marker, style = LOOKS[subject]
    axes.plot(sizes, values, label=label, color=color, marker=marker, linestyle=style)


def _finish(figure: Any, axes: Any, path: Path) -> None:
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend()
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
