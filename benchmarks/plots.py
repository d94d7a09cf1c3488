"""The results as plots for the documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

LOOKS = {
    "ours": ("idempotent receiver", "#0b6e4f", "o", "-"),
    "powertools": ("Lambda Powertools", "#c8553d", "s", "-"),
    "idemkit": ("idemkit", "#588b8b", "^", "-"),
    "bare": ("bare client: the limit", "#555555", "x", ":"),
}


def draw(results: Mapping[str, Any], folder: Path) -> None:
    """Draw all plots into the folder."""
    import matplotlib as mpl  # noqa: PLC0415  # slow to import, and only needed at the end

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "benchmark", "svg.fonttype": "none", "font.size": 10})
    title = "Time of a batch: fresh messages, instant handlers, 5 ms round trip"
    _curves(results, folder / "bench-overhead.svg", title, "milliseconds", lambda one: one["wall_ms"]["median"])
    title = "CPU a message: fresh messages, instant handlers"
    _curves(results, folder / "bench-cpu.svg", title, "milliseconds of CPU", lambda one: one["cpu_ms_a_message"])
    _cost(results, folder / "bench-cost.svg")


def _curves(results: Mapping[str, Any], path: Path, title: str, unit: str, value: Callable[[Any], float]) -> None:
    """A curve over the batch size for each subject."""
    import matplotlib.pyplot as plt  # noqa: PLC0415  # after the backend has been chosen

    figure, axes = plt.subplots(figsize=(7, 4))
    axes.set(title=title, xlabel="messages in the batch", ylabel=unit, xscale="log", yscale="log")
    cells = [cell for cell in results["cells"] if cell["pinned"] and not cell["duplicates"] and not cell["writes"]]
    for subject, (label, color, marker, style) in LOOKS.items():
        points = [(cell["messages"], value(cell["subjects"][subject])) for cell in cells if subject in cell["subjects"]]
        axes.plot(*zip(*points, strict=True), label=label, color=color, marker=marker, linestyle=style)
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend()
    _save(figure, path)


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


def _save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
