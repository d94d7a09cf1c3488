"""What handlers return, and what a record keeps of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from zlib import crc32

from idempotent_receiver.handler.attempt import MARKER

if TYPE_CHECKING:
    from collections.abc import Sequence

FORMS = ("text", "object", "record", "marker", "large", "large")
BUCKET = "results"


def result_of(forms: Sequence[str], key: str, body: str) -> Any:
    """The result for a key and its payload, in the form that falls to it."""
    text = f"done {body}"
    match forms[crc32(key.encode()) % len(forms)]:
        case "object":
            return {"done": text}
        case "record":
            return {"id": key, "status": "INPROGRESS", "version": "w0.0-0", "data": text, "expiration": 0}
        case "marker":
            return {MARKER: {"result": "s3", "bucket": BUCKET, "key": key, "done": text}}
        case "large":
            return text + 1500 * "."
    return text


def keeps(item: dict[str, Any], expected: Any) -> bool:
    """Whether a completed record has this result, or says that it was dropped because it is large."""
    found = json.loads(item.get("data", "null"))
    if found == expected:
        return True
    large = isinstance(expected, str) and len(expected) > 1000
    return large and isinstance(found, dict) and found.keys() == {MARKER} and found[MARKER]["result"] == "dropped"
