"""The picture in docs/tracing.md is what a run on the local cloud gives today."""

from __future__ import annotations

import re

from tests.e2e.traced import PICTURE, drawn, in_rows, spans_of_a_run


def told(picture: str) -> set[str]:
    """Its spans' names and outcomes. How many requests settle a batch depends on how fast its handlers are."""
    return set(re.findall(r'<text x="\d+" y="\d+">([^<]+)', picture))


def test_the_picture_has_the_spans_of_a_run() -> None:
    rows = [*in_rows(spans_of_a_run())]
    assert told(drawn(rows)) == told(PICTURE.read_text())
    assert {len(row.span.links) for row in rows if row.span.name.startswith("process")} == {1}
