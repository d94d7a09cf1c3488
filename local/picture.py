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
OUTCOMES = ("Completed", "Duplicates", "InProgress", "Released", "Failed", "Permanent")


def drawn(figures: dict[str, Any]) -> Any:
    """Return the figure."""
    with mpl.rc_context(STYLE):
        page, axes = plt.subplots(4, 2, figsize=(11, 11), layout="constrained")
        panels = iter(axes.flat)
        _lines(next(panels), figures, "Throughput: messages claimed, completed", ("Claimed", "Completed"))
        _stack(next(panels), figures, "Outcomes", OUTCOMES)
        _lines(
            next(panels),
            figures,
            "Duplicates recognised, and work taken over",
            ("Duplicates", "InProgress", "TakenOver"),
        )
        _lines(next(panels), figures, "Never expected: lost claims, unsettled messages", ("LostClaims", "Unsettled"))
        _failures(next(panels), figures["failures"])
        _depths(next(panels), figures["depths"])
        _durations(next(panels), figures)
        _errors(next(panels), figures)
        for panel in axes[:, 1].flat:
            panel.set_ylim(bottom=0)
        page.suptitle(
            f"The story of make run, {figures['number']} messages, seed {figures['seed']}: counts in {BIN_SECONDS} s, "
            "by seconds since the first was sent",
            x=0.01,
            horizontalalignment="left",
        )
    return page


def _bins(figures: dict[str, Any]) -> list[int]:
    last = max(seconds for seconds, *_ in (*figures["durations_ms"], *figures["depths"]))
    return list(range(0, math.ceil(last) + BIN_SECONDS, BIN_SECONDS))


def _sums(figures: dict[str, Any], name: str) -> list[float]:
    points = figures["metrics"].get(name, [])
    return [
        sum(value for seconds, value in points if start <= seconds < start + BIN_SECONDS) for start in _bins(figures)
    ]


def _lines(panel: Any, figures: dict[str, Any], title: str, names: Sequence[str]) -> None:
    for name in names:
        sums = _sums(figures, name)
        panel.plot(_bins(figures), sums, label=f"{name} ({sum(sums):g})")
    if not any(sum(_sums(figures, name)) for name in names):
        panel.set_ylim(0, 1)
    panel.set_title(title)
    panel.legend()


def _stack(panel: Any, figures: dict[str, Any], title: str, names: Sequence[str]) -> None:
    sums = [_sums(figures, name) for name in names]
    labels = [f"{name} ({sum(each):g})" for name, each in zip(names, sums, strict=True)]
    panel.stackplot(_bins(figures), *sums, labels=labels)
    panel.set_title(title)
    panel.legend(ncols=2)


def _failures(panel: Any, failures: dict[str, int]) -> None:
    names = list(failures)[::-1]
    bars = panel.barh(names, [failures[name] for name in names], color="C3")
    panel.bar_label(bars, padding=3)
    panel.set_title("Failures by type")


def _depths(panel: Any, depths: Sequence[Sequence[float]]) -> None:
    seconds = [each[0] for each in depths]
    for place, name in enumerate(("waiting", "in flight", "dead letters"), start=1):
        panel.plot(seconds, [each[place] for each in depths], label=name)
    panel.set_title("Waiting, in flight, and dead letters")
    panel.legend()


def _durations(panel: Any, figures: dict[str, Any]) -> None:
    panel.plot(*zip(*figures["durations_ms"], strict=True), ".", markersize=4, label="Duration")
    panel.plot(*zip(*figures["metrics"]["BatchDuration"], strict=True), ".", markersize=4, label="BatchDuration")
    panel.axhline(figures["timeout_ms"], color="C3", linestyle="--", label="timeout")
    panel.set_title("Duration against timeout (ms)")
    panel.legend()


def _errors(panel: Any, figures: dict[str, Any]) -> None:
    counts = [sum(start <= seconds < start + BIN_SECONDS for seconds in figures["errors"]) for start in _bins(figures)]
    panel.bar(
        _bins(figures),
        counts,
        width=BIN_SECONDS,
        align="edge",
        color="C3",
        label=f"Errors ({sum(counts)}): workers that were killed",
    )
    panel.set_title("Errors")
    panel.legend()


def main() -> int:
    """Draw the figures in the first file that is named into the second."""
    figures, picture = map(Path, sys.argv[1:])
    page = drawn(json.loads(figures.read_text()))
    page.savefig(picture, dpi=90)
    return 0


if __name__ == "__main__":
    sys.exit(main())
