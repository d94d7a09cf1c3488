"""What counts as words alone, so that no decision hides behind them."""

from __future__ import annotations

import pytest

from tests.mutation.words import only_words

F = "operations.cli.dlq.move"


@pytest.mark.parametrize(
    ("was", "now", "words"),
    [
        ('say("it was moved")', 'say("XXit was movedXX")', True),
        ('say(f"{count} were moved")', 'say(f"{count} WERE MOVED")', True),
        ('return Text(line, style="bold")', "return Text(line, style=None)", True),
        ('return Text(line, overflow="fold")', "return Text(line, )", True),
        ("Text(line, style=style, end=end)", "Text(line, end=end)", True),
        ('", ".join(names)', '"XX, XX".join(names)', False),
        ('say(f"{counted(moved)} moved")', 'say(f"{counted(None)} moved")', False),
        ('say(f"{moved} of {all}")', 'say(f"XX{moved} of {all}XX")', True),
        ('say(f"{give[0]} or {give[1]}")', 'say(f"{give[0]} or {give[2]}")', False),
        ('say(f"give --key {key}")', 'say(f"XXgive --key {key}XX")', False),
        ('asked["Filter"] = "#act >= :since AND #act < :until"', 'asked["Filter"] = "#ACT >= :SINCE"', False),
        ('get(key="#key = :key")', 'get(key="XX#key = :keyXX")', False),
        ('say("of the record: it is free")', 'say("XXof the record: it is freeXX")', True),
        ('text.split(" ")', 'text.split("XX XX")', False),
        ('fingerprint=""', 'fingerprint="XXXX"', False),
        ('name.replace("_", " ")', 'name.replace("XX_XX", " ")', False),
        ('values["why"]', 'values["XXwhyXX"]', False),
        ('if "--yes" in given:', 'if "XX--yesXX" in given:', False),
        ('say("it was moved")', "say(None)", False),
        ("return Exit.LEFT", "return None", False),
        ("if left and moved:", "if left or moved:", False),
        ("say(text, markup=False)", "say(text, )", False),
        ("count + 1", "count - 1", False),
    ],
)
def test_only_a_sentence_or_a_look_is_words(was: str, now: str, words: bool) -> None:
    assert only_words((F, was, now)) is words
    for elsewhere in ("protocol.record.decide", "operations.starter.project.contents"):
        assert not only_words((elsewhere, was, now)), "only where people are spoken to"
