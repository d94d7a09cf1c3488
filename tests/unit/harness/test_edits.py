"""An edit of the documents fits one place of a template, or is refused."""

from __future__ import annotations

import pytest

from harness.edits import EditError, applied, edited, edits, with_values
from tests.template import TEMPLATE

TEXT = """\
Resources:
  Queue:
    Timeout: 30 # seconds
    Size: 1

  Other:
    Size: 1
    Name: other
"""


@pytest.mark.parametrize(
    ("diff", "was", "becomes"),
    [
        ("-    Timeout: 30\n+    Timeout: 60\n", "    Timeout: 30 # seconds\n", "    Timeout: 60\n"),
        ("     Timeout: 30\n+    More: 1\n", "# seconds\n", "# seconds\n    More: 1\n"),
        ("   Queue:\n-    Timeout: 30\n", "    Timeout: 30 # seconds\n", ""),
        ("-  Queue:\n-...\n", "  Queue:\n    Timeout: 30 # seconds\n    Size: 1\n\n", ""),
        ("   Queue:\n ...\n+  New:\n", "    Size: 1\n\n  Other", "    Size: 1\n\n  New:\n  Other"),
        ("-    Name: other\n", "    Name: other\n", ""),
    ],
    ids=["replaced", "added", "removed", "a whole block", "after a block", "at the end"],
)
def test_a_hunk_changes_its_lines_and_no_other(diff: str, was: str, becomes: str) -> None:
    """A comment at a line's end may be left out, and goes with its line."""
    assert TEXT.count(was) == 1
    assert applied(TEXT, diff) == TEXT.replace(was, becomes)


def test_hunks_are_divided_by_blank_lines_and_applied_in_turn() -> None:
    both = applied(TEXT, "-    Timeout: 30\n+    Timeout: 60\n\n-    Name: other\n")
    assert both == applied(applied(TEXT, "-    Timeout: 30\n+    Timeout: 60\n"), "-    Name: other\n")


@pytest.mark.parametrize(
    ("diff", "says"),
    [
        ("-    Timeout: 31\n", "an edit fits 0 places, not one:\n-    Timeout: 31"),
        ("-    Timeout: 3\n", "fits 0 places"),
        ("-  Timeout: 30\n", "fits 0 places"),
        ("   Queue:\n-    Size: 1\n", "fits 0 places"),
        ("-    Size: 1\n+    Size: 2\n", "an edit fits 2 places, not one:\n-    Size: 1"),
        ("-    Timeout: 30\n\n-    Timeout: 30\n", "fits 0 places"),
        ("     Name: other\n-    More: 1\n", "fits 0 places"),
    ],
)
def test_an_edit_that_fits_nowhere_or_twice_is_refused_and_named(diff: str, says: str) -> None:
    with pytest.raises(EditError, match=f"(?s){says}"):
        applied(TEXT, diff)


def test_edits_are_taken_by_the_headings_of_the_pages() -> None:
    (diff,) = edits()["Longer time-outs"]
    template = TEMPLATE.read_text()
    assert edited(template, "Longer time-outs") == applied(template, diff) != template
    assert edited(template) == template
    with pytest.raises(KeyError, match="Longer timeouts"):
        edited(template, "Longer timeouts")


def test_the_same_edit_is_not_made_twice() -> None:
    with pytest.raises(EditError, match="fits 0 places"):
        edited(TEMPLATE.read_text(), "FIFO", "FIFO")


def test_a_value_is_set_where_the_template_has_the_property_once() -> None:
    assert with_values(TEXT, Timeout=10, Name="x") == TEXT.replace(": 30 #", ": 10 #").replace(": other", ": x")
    for name, found in (("Size", 2), ("Missing", 0)):
        with pytest.raises(EditError, match=f"the template has {found} properties {name}, not one"):
            with_values(TEXT, **{name: 3})
