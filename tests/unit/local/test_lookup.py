"""What the run looks up while the story is played."""

from __future__ import annotations

import json
from typing import Any

from local.run import readable
from local.story import tell


class Growing(dict[str, Any]):
    """Records to which other threads add: whoever goes through them all is caught at it, here always."""

    def _caught(self) -> Any:
        raise RuntimeError("dictionary changed size during iteration")

    __iter__ = items = keys = values = _caught


def test_records_that_others_add_to_are_looked_up_and_not_gone_through() -> None:
    story = tell(1, 40)
    body = next(part.body for part in story.parts if part.name in story.sides)
    records = Growing({"asked-for": {"body": body}, "garbage": {"body": "{"}})
    known = next(iter(story.sides))
    transfer = json.loads(body)
    assert readable([known, "asked-for", "garbage", "unheard-of"], story.sides, records) == {
        known: story.sides[known],
        "asked-for": (transfer["from_account"], transfer["to_account"]),
    }
