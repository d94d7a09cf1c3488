"""Reads SQS's answers to batch requests, which list each entry as successful or failed."""

from collections.abc import Mapping
from typing import Any

UNCONFIRMED = "Unconfirmed"
"""The code for an entry that SQS's answer does not list: the entry may or may not have taken effect."""


def failed_entries(answer: Mapping[str, Any], count: int) -> dict[int, Mapping[str, Any]]:
    """The entries that `answer` does not list as successful, in SQS's form (`Code`, `SenderFault`), by place from 0.
    `count` is the number of entries in the request; each entry's id is its place.
    """
    failed = {each["Id"]: each for each in answer.get("Failed", ())}
    successful = {each["Id"] for each in answer.get("Successful", ())}
    unlisted = {"Code": UNCONFIRMED, "SenderFault": False}
    return {place: failed.get(id, unlisted) for place in range(count) if (id := str(place)) not in successful}
