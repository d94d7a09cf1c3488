"""The results as plots for the documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    Looks = Mapping[str, tuple[str, str, str, str]]
    """For each subject its label, color, marker and line."""

LOOKS = {
    "ours": ("idempotent receiver", "#0b6e4f", "o", "-"),
    "powertools": ("Lambda Powertools", "#c8553d", "s", "-"),
    "idemkit": ("idemkit", "#588b8b", "^", "-"),
    "bare": ("bare client: the limit", "#555555", "x", ":"),
}
WRITING_LOOKS = {
    "powertools": ("Lambda Powertools: not atomic", "#c8553d", "s", "-"),
    "ours": ("idempotent receiver, with claims", "#0b6e4f", "o", "-"),
    "bare": ("bare client, with claims: the limit", "#0b6e4f", "x", ":"),
    "unclaimed": ("idempotent receiver, without claims", "#7b5ea7", "D", "-"),
    "bare_unclaimed": ("bare client, without claims: the limit", "#7b5ea7", "+", ":"),
}
ITEMS = {0: "items of their own", 10: "ten items", 1: "one item"}


def draw(results: Mapping[str, Any], folder: Path) -> None:
    """Draw all plots into the folder."""
    import matplotlib as mpl  # noqa: PLC0415  # slow to import, and only needed at the end

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "benchmark", "svg.fonttype": "none", "font.size": 10})
    fresh = [cell for cell in results["cells"] if cell["pinned"] and not cell["duplicates"] and not cell["reads"]]
    plain = [cell for cell in fresh if not cell["writes"]]
    title = "Time of a batch: fresh messages, instant handlers, 5 ms round trip"
    _curves(plain, LOOKS, folder / "bench-overhead.svg", _wall_ms, title=title, unit="milliseconds")
    title = "CPU a message: fresh messages, instant handlers"
    _curves(plain, LOOKS, folder / "bench-cpu.svg", _cpu_ms, title=title, unit="milliseconds of CPU")
    writing = [cell for cell in fresh if cell["writes"] and not cell["hot_items"] and not cell["failing"]]
    title = "Time of a batch: one write a message, 5 ms round trip"
    _curves(writing, WRITING_LOOKS, folder / "bench-writes.svg", _wall_ms, title=title, unit="milliseconds")
    _hot([cell for cell in fresh if cell["writes"] and cell["messages"] == 100], folder / "bench-hot.svg")
    _cost(results, folder / "bench-cost.svg")


def _wall_ms(measured: Mapping[str, Any]) -> float:
    return float(measured["wall_ms"]["median"])


def _cpu_ms(measured: Mapping[str, Any]) -> float:
    return float(measured["cpu_ms_a_message"])


def _curves(
    cells: Sequence[Any], looks: Looks, path: Path, value: Callable[[Any], float], *, title: str, unit: str
) -> None:
    """A curve over the batch size for each subject."""
    import matplotlib.pyplot as plt  # noqa: PLC0415  # after the backend has been chosen

    figure, axes = plt.subplots(figsize=(7, 4.6))
    axes.set(title=title, xlabel="messages in the batch", ylabel=unit, xscale="log", yscale="log")
    for subject, (label, color, marker, style) in looks.items():
        points = [(cell["messages"], value(cell["subjects"][subject])) for cell in cells if subject in cell["subjects"]]
        axes.plot(*zip(*points, strict=True), label=label, color=color, marker=marker, linestyle=style)
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2)
    _save(figure, path)


def _hot(cells: Sequence[Any], path: Path) -> None:
    """The requests of a hundred messages, by the items that they share and the conditions that fail."""
    import matplotlib.pyplot as plt  # noqa: PLC0415  # after the backend has been chosen

    figure, axes = plt.subplots(figsize=(7, 4.5))
    names = [f"{ITEMS[cell['hot_items']]}, {cell['failing']:.0%} failing" for cell in cells]
    for offset, subject in ((-0.2, "ours"), (0.2, "unclaimed")):
        label, color, _, _ = WRITING_LOOKS[subject]
        requests = [cell["subjects"][subject]["requests"]["median"] for cell in cells]
        bars = axes.barh([place + offset for place in range(len(cells))], requests, 0.4, label=label, color=color)
        axes.bar_label(bars, fmt="{:,.0f}", padding=2, fontsize=8)
    axes.set(title="Requests of 100 messages with one write each", xlabel="requests", xmargin=0.08)
    axes.set_yticks(range(len(cells)), names)
    axes.invert_yaxis()
    axes.legend()
    _save(figure, path)


def _cost(results: Mapping[str, Any], path: Path) -> None:
    import matplotlib.pyplot as plt  # noqa: PLC0415  # after the backend has been chosen

    shown = ("10 fresh", "100 fresh", "1,000 fresh", "100 fresh, each with a write of its own")
    costs = [one for one in results["cost"]["dollars_a_million"] if one["what"] in shown]
    figure, axes = plt.subplots(figsize=(8, 4.8))
    names = [_bar(one) for one in costs][::-1]
    database = [one["dynamodb"] for one in costs][::-1]
    compute = [one["lambda_time"] + one["lambda_invocations"] for one in costs][::-1]
    axes.barh(names, database, color="#8d99ae", label="DynamoDB, on demand")
    axes.barh(names, compute, left=database, color="#c8553d", label="Lambda")
    axes.set_title("Cost of a million messages, by batch size")
    axes.set_xlabel(f"dollars ({results['cost']['priced']}, us-east-1)")
    axes.legend(loc="upper center", bbox_to_anchor=(0.3, -0.12), ncols=2)
    _save(figure, path)


def _bar(one: Mapping[str, Any]) -> str:
    label = (WRITING_LOOKS if one["writes"] else LOOKS)[one["subject"]][0].partition(":")[0]
    return f"{label}, {one['batch']:,}{' with a write' if one['writes'] else ''}"


def _save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
