"""A record, its item in the table, and what a change expects to find there."""

from __future__ import annotations

from decimal import Decimal

import pytest

from idempotent_receiver.protocol.limits import item_bytes
from idempotent_receiver.protocol.record import ATTRIBUTES, Change, Record, Status, attributes, from_attributes
from tests.unit.protocol.records import DAY, NOW, by_powertools, existing


def test_a_change_names_the_version_that_it_replaces_and_no_more() -> None:
    """The version alone identifies a record; for an insert, the id itself must be absent."""
    assert Change(existing(Status.INPROGRESS), existing(Status.FAILED)).expected == {"version": "theirs"}
    assert Change(existing(Status.INPROGRESS), None).expected == {"id": None}


def test_a_record_without_a_version_is_unchanged_if_status_lease_and_expiration_are() -> None:
    """There is no version to name, so the change names everything that a writer would change."""
    seen = by_powertools(Status.INPROGRESS, in_progress_expiration=5)
    expected = {"version": None, "status": "INPROGRESS", "expiration": NOW + DAY, "in_progress_expiration": 5}
    assert Change(existing(Status.INPROGRESS), seen).expected == expected


def test_attributes_and_back() -> None:
    """A record is read as it was written, and absent attributes stay absent."""
    kept = dict.fromkeys(("data", "error", "execution", "input", "resent", "outbox", "charged"), "{}")
    full = existing(Status.FAILED, in_progress_expiration=5)._replace(**kept)
    bare = Record(id="k", status="COMPLETED")
    assert [from_attributes(attributes(each)) for each in (full, bare)] == [full, bare]
    assert attributes(bare) == {"id": "k", "status": "COMPLETED"}
    assert set(attributes(full)) == set(ATTRIBUTES)


def test_numbers_may_come_as_decimals_and_other_attributes_are_ignored() -> None:
    """boto3's resource interface returns Decimal; an item may have other attributes."""
    item = {"id": "k", "status": "COMPLETED", "expiration": Decimal(5), "attempts": Decimal("2.0"), "note": "theirs"}
    assert from_attributes(item) == Record(id="k", status="COMPLETED", expiration=5, attempts=2)


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        *(("expiration", value) for value in ("5", Decimal("NaN"), float("inf"))),
        *(("attempts", value) for value in (True, Decimal("1.5"))),
        ("version", 7),
        ("data", None),
    ],
)
def test_an_attribute_of_a_foreign_type_is_named(attribute: str, value: object) -> None:
    """The name helps whoever must repair it."""
    seen = from_attributes({"id": "k", "status": "COMPLETED", attribute: value})
    assert seen.unreadable == f"unexpected type of {attribute}"


def test_the_size_is_dynamodbs() -> None:
    """`size_bytes` has its own arithmetic, since it is computed for each message."""
    seen = Record(id="é", status="FAILED", version="v", data="{}", expiration=1_234_567_891, attempts=123)
    assert seen.size_bytes == item_bytes(attributes(seen))
