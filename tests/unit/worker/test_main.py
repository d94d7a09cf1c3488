"""What a worker process refuses before its first poll."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from botocore.config import Config

from idempotent_receiver import MemoryStore, sqs_consumer
from idempotent_receiver.worker.__main__ import limits_of, loaded, main
from tests.unit.test_request_counts import session

if TYPE_CHECKING:
    from pathlib import Path

    from idempotent_receiver.sqs.consumer import Consumer


def consumer(**options: Any) -> Consumer:
    def handle(body: dict) -> None:
        """Nothing."""

    return sqs_consumer(MemoryStore(), **options)(handle)


def sqs(**options: Any) -> Any:
    return session().client("sqs", config=Config(region_name="us-east-1", **options))


def test_elsewhere_than_on_linux_it_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing there ends a process that is stopped before its lease is over."""
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(ValueError, match="receiver work needs Linux"):
        main({})


def test_the_margin_is_the_consumers() -> None:
    assert limits_of(consumer(lease_margin_seconds=7), {"lease_seconds": 30.0}).margin_seconds == 7


@pytest.mark.parametrize(("read_timeout", "waits"), [(60, 10), (11, 10), (3, 2), (2, 1)])
def test_a_poll_waits_no_longer_than_its_client(read_timeout: float, waits: int) -> None:
    """On Lambda, short time-outs are right. What SQS answers to nobody is hidden until its visibility ends."""
    assert limits_of(consumer(sqs=sqs(read_timeout=read_timeout)), {}).wait_seconds == waits


def test_a_client_that_cannot_wait_for_any_poll_is_refused() -> None:
    with pytest.raises(ValueError, match="waits 1 seconds for an answer, which is too short for a poll"):
        limits_of(consumer(sqs=sqs(read_timeout=1)), {})


def test_a_module_that_fails_when_it_is_imported_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With what it raised, such as a KeyError for a variable that is not set."""
    (tmp_path / "unset.py").write_text("import os\n\nos.environ['A_TABLE_NAME']\n")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ValueError, match="'unset:handle' cannot be imported: KeyError: 'A_TABLE_NAME'"):
        loaded("unset:handle")
