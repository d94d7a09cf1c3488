"""The dashboard as a picture: `python -m local.picture FIGURES PICTURE` draws what `local/figures.py` has kept.

The widgets are those of template.yaml, in their order, but for what only AWS counts.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

mpl.use("agg")
from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from collections.abc import Sequence

BIN_SECONDS = 2
STYLE = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "figure.facecolor": "white",
}
LINES = (
    ("Throughput: messages claimed, completed", "Claimed Completed"),
    ("Outcomes", "Completed Duplicates InProgress Released Failed Permanent"),
    ("Duplicates recognised, and work taken over", "Duplicates InProgress TakenOver"),
    ("Never expected: lost claims, unsettled messages", "LostClaims Unsettled"),
)
"""Panels of metrics, by their names; the second is stacked."""


def drawn(figures: dict[str, Any]) -> Any:
    last = max(seconds for seconds, *_ in (*figures["durations_ms"], *figures["depths"]))
    starts = list(range(0, math.ceil(last) + BIN_SECONDS, BIN_SECONDS))
    with mpl.rc_context(STYLE):
        page, axes = plt.subplots(4, 2, figsize=(11, 11), layout="constrained")
        panels = list(axes.flat)
        for place, (panel, (title, names)) in enumerate(zip(panels, LINES, strict=False)):
            panel.set_title(title)
            _metrics(panel, figures["metrics"], names.split(), starts, stacked=place == 1)
        _failures(panels[4], figures["failures"])
        _depths(panels[5], figures["depths"])
        _durations(panels[6], figures)
        _errors(panels[7], figures["errors"], starts)
        for panel in axes[:, 1].flat:
            panel.set_ylim(bottom=0)
        for panel in (*panels[:4], *panels[5:]):
            panel.legend(ncols=1 + (panel is panels[1]))
        page.suptitle(
            f"make run, {figures['number']} messages, seed {figures['seed']}: counts in {BIN_SECONDS} s, "
            "by seconds since the first was sent",
            x=0.01,
            horizontalalignment="left",
        )
    return page


def _binned(points: Sequence[Sequence[float]], starts: Sequence[int]) -> list[float]:
    return [sum(value for at, value in points if start <= at < start + BIN_SECONDS) for start in starts]


def _metrics(panel: Any, metrics: Any, names: Sequence[str], starts: Sequence[int], *, stacked: bool) -> None:
    sums = [_binned(metrics.get(name, []), starts) for name in names]
    labels = [f"{name} ({sum(each):g})" for name, each in zip(names, sums, strict=True)]
    if stacked:
        panel.stackplot(starts, *sums, labels=labels)
        return
    for each, label in zip(sums, labels, strict=True):
        panel.plot(starts, each, label=label)
    if not any(map(sum, sums)):
        panel.set_ylim(0, 1)


def _failures(panel: Any, failures: dict[str, int]) -> None:
    names = list(failures)[::-1]
    panel.bar_label(panel.barh(names, [failures[name] for name in names], color="C3"), padding=3)
    panel.set_title("Failures by type")


def _depths(panel: Any, depths: Sequence[Sequence[float]]) -> None:
    seconds, *counts = zip(*depths, strict=True)
    for name, count in zip(("waiting", "in flight", "dead letters"), counts, strict=True):
        panel.plot(seconds, count, label=name)
    panel.set_title("Waiting, in flight, and dead letters")


def _durations(panel: Any, figures: dict[str, Any]) -> None:
    for name, points in (("Duration", figures["durations_ms"]), ("BatchDuration", figures["metrics"]["BatchDuration"])):
        panel.plot(*zip(*points, strict=True), ".", markersize=4, label=name)
    panel.axhline(figures["timeout_ms"], color="C3", linestyle="--", label="timeout")
    panel.set_title("Duration against timeout (ms)")


def _errors(panel: Any, errors: Sequence[float], starts: Sequence[int]) -> None:
    label = f"Errors ({len(errors)}): workers that were killed"
    counts = _binned([(at, 1) for at in errors], starts)
    panel.bar(starts, counts, width=BIN_SECONDS, align="edge", color="C3", label=label)
    panel.set_title("Errors")


def main() -> int:
    figures, picture = map(Path, sys.argv[1:])
    page = drawn(json.loads(figures.read_text()))
    page.savefig(picture, dpi=90)
    return 0


if __name__ == "__main__":
    sys.exit(main())
