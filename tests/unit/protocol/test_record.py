"""A record, its item in the table, and what a change expects to find there."""

from __future__ import annotations

from decimal import Decimal

import pytest

from idempotent_receiver.protocol.record import ATTRIBUTES, Change, Record, Status, attributes, from_attributes
from tests.unit.protocol.records import DAY, NOW, by_powertools, existing


def test_an_insert_expects_nothing_to_be_there() -> None:
    """The id itself must be absent."""
    assert Change(existing(Status.INPROGRESS), None).expected == {"id": None}


def test_a_replacement_names_the_version_that_it_replaces_and_no_more() -> None:
    """The version alone identifies the record."""
    assert Change(existing(Status.INPROGRESS), existing(Status.FAILED)).expected == {"version": "theirs"}


def test_a_record_without_a_version_is_unchanged_if_status_lease_and_expiration_are() -> None:
    """There is no version to name, so the change names everything that a writer would change."""
    seen = by_powertools(Status.INPROGRESS, in_progress_expiration=5)

    assert Change(existing(Status.INPROGRESS), seen).expected == {
        "version": None,
        "status": "INPROGRESS",
        "expiration": NOW + DAY,
        "in_progress_expiration": 5,
    }


def test_attributes_and_back() -> None:
    """A record is read as it was written, and absent attributes stay absent."""
    texts = {"data": "1", "error": "{}", "execution": "arn", "input": "{}", "resent": "{}"}
    full = existing(Status.FAILED, in_progress_expiration=5, **texts)
    bare = Record(id="k", status="COMPLETED")

    assert from_attributes(attributes(full)) == full
    assert attributes(bare) == {"id": "k", "status": "COMPLETED"}
    assert from_attributes(attributes(bare)) == bare
    assert set(attributes(full)) == set(ATTRIBUTES)


def test_numbers_may_come_as_decimals_and_other_attributes_are_ignored() -> None:
    """boto3's resource interface returns Decimal; an item may have other attributes."""
    item = {"id": "k", "status": "COMPLETED", "expiration": Decimal(5), "attempts": Decimal("2.0"), "note": "theirs"}

    assert from_attributes(item) == Record(id="k", status="COMPLETED", expiration=5, attempts=2)


@pytest.mark.parametrize(
    "attribute",
    [
        {"expiration": "5"},
        {"expiration": Decimal("NaN")},
        {"expiration": float("inf")},
        {"attempts": True},
        {"attempts": Decimal("1.5")},
        {"version": 7},
        {"data": None},
    ],
)
def test_an_attribute_of_a_foreign_type_is_named(attribute: dict[str, object]) -> None:
    """The name helps whoever must repair it."""
    seen = from_attributes({"id": "k", "status": "COMPLETED"} | attribute)

    assert seen.unreadable == f"unexpected type of {next(iter(attribute))}"


def test_the_size_is_dynamodbs() -> None:
    """It counts names and values in UTF-8; a number takes one byte for two digits, and one more."""
    seen = Record(id="é", status="FAILED", attempts=123)

    assert seen.size_bytes == len("id") + 2 + len("status") + len("FAILED") + len("attempts") + 3
