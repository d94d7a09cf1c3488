"""`receiver local` sends what the sample events hold, to the function that is meant."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from idempotent_receiver.local.cloud import NotInstalled, interpreter
from idempotent_receiver.local.consumers import chosen_function
from idempotent_receiver.local.samples import Sample, TrialError, samples_in

if TYPE_CHECKING:
    from pathlib import Path


def test_the_messages_of_all_sqs_events_are_samples(tmp_path: Path) -> None:
    bodies = [{"messageId": "1", "body": "a"}, {"messageId": "2", "body": "b"}]
    for name, event in {
        "batch": {"Records": bodies},
        "one": {"Records": bodies[:1]},
        "http": {"httpMethod": "GET"},
        "number": {"Records": 5},
    }.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(event))
    (tmp_path / "folder.json").mkdir()
    assert [(each.name, each.record["body"]) for each in samples_in(tmp_path)] == [
        ("batch.json 1", "a"),
        ("batch.json 2", "b"),
        ("one.json", "a"),
    ]


def test_samples_that_cannot_be_read_are_told_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(TrialError, match="there is no SQS event in"):
        samples_in(tmp_path / "events")
    (tmp_path / "half.json").write_text("{")
    with pytest.raises(TrialError, match=r"half\.json is not JSON"):
        samples_in(tmp_path)


def test_a_sample_is_sent_with_its_attributes_and_group() -> None:
    attributes = {"a": {"stringValue": "x", "dataType": "String"}, "b": {"binaryValue": "eQ==", "dataType": "Binary"}}
    record = {"body": "{}", "messageAttributes": attributes, "attributes": {"MessageGroupId": "g"}}
    sent = Sample("one", record).sendable(fifo=True)
    assert sent["MessageAttributes"] == {
        "a": {"DataType": "String", "StringValue": "x"},
        "b": {"DataType": "Binary", "BinaryValue": b"y"},
    }
    assert sent["MessageGroupId"] == "g"
    assert sent["MessageDeduplicationId"] != Sample("one", record).sendable(fifo=True)["MessageDeduplicationId"]
    assert "MessageGroupId" not in Sample("one", record).sendable(fifo=False)


def test_which_consumer_is_meant_is_asked_where_there_are_several() -> None:
    several = ["Orders", "Returns"]
    assert chosen_function(several, "Returns") == "Returns"
    assert chosen_function(several[:1], None) == "Orders"
    for name in (None, "Refunds"):
        with pytest.raises(TrialError, match="use --function: Orders, Returns"):
            chosen_function(several, name)


def test_without_the_extra_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ministack", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NotInstalled, match=r"pip install 'idempotent-receiver\[cli,local\]'"):
        interpreter()
