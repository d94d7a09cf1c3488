"""`receiver local` judges by what was noted, sends what the sample events hold, and builds what the template names."""

from __future__ import annotations

import json
import sys
import zipfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from harness.cloud import ROOT
from idempotent_receiver.local import build as building
from idempotent_receiver.local import witness
from idempotent_receiver.local.build import build
from idempotent_receiver.local.cloud import NotInstalled, interpreter
from idempotent_receiver.local.deployment import DeployError, packaged
from idempotent_receiver.local.samples import Sample, TrialError, samples_in
from idempotent_receiver.local.trial import Consumer, chosen
from idempotent_receiver.local.verdict import OVERRAN, Evidence, Line, Verdict, fine, judged, kills
from tests.template import COMPONENT, load

if TYPE_CHECKING:
    from pathlib import Path

# The verdict.


def line(at_ms: int, what: str, process: int = 1, **said: Any) -> Line:
    return {"at_ms": at_ms, "what": what, "process": process, **said}


def run(at_ms: int, key: str, process: int = 1, error: str | None = None) -> list[Line]:
    """A delivery, and a run from its start to its end."""
    return [
        line(at_ms, "delivered", process, ids=[key]),
        line(at_ms + 1, "started", process, key=key, record=key, attempt=1),
        line(at_ms + 5, "ended", process, key=key, error=error),
    ]


def killed(at_ms: int, process: int = 1, *done: str) -> Line:
    place = "before it had answered" if done else "before it was recorded"
    return line(at_ms, "killed", process, place=place, ids=list(done))


def answered(at_ms: int, *ids: str, lost: tuple[str, ...] = ()) -> Line:
    return line(at_ms, "answered", ids=list(ids), lost=list(lost))


COMPLETED = {"m": {"status": "COMPLETED"}}


def verdict(*lines: Line | list[Line], **found: Any) -> tuple[Verdict, int]:
    """What is said of the one message `m`: how it ended, and how often it ran without need."""
    flat = [each for one in lines for each in (one if isinstance(one, list) else [one])]
    (message,) = judged(Evidence(sent={"m": "order.json"}, lines=flat, **found))
    return message.verdict, message.twice


AGAIN = [run(20, "m"), answered(30, "m")]
OTHERS = [run(20, "m", 2), answered(30, "m")]
DEAD = {"dead": frozenset({"m"})}
ENDED: dict[str, tuple[list[Any], dict[str, Any], tuple[Verdict, int]]] = {
    "recognised when it came again": (
        [run(1, "m"), answered(10, lost=("m",)), line(20, "delivered", ids=["m"]), answered(21, "m")],
        {"records": COMPLETED},
        (Verdict.ONCE, 0),
    ),
    "run when its answer was lost": ([run(1, "m"), answered(10, lost=("m",)), *AGAIN], {}, (Verdict.TWICE, 1)),
    "run when it was answered": ([run(1, "m"), answered(10, "m"), *AGAIN], {}, (Verdict.TWICE, 1)),
    "run when its worker was killed afterwards": ([run(1, "m"), killed(10, 1, "m"), *AGAIN], {}, (Verdict.TWICE, 1)),
    "run when its worker was killed before": (
        [run(1, "m"), killed(7), *OTHERS],
        {"records": COMPLETED},
        (Verdict.ONCE, 0),
    ),
    "two runs at once": (
        [run(1, "m"), run(3, "m", 2), answered(30, "m")],
        {"records": COMPLETED},
        (Verdict.TWICE, 1),
    ),
    "failed, and nowhere": ([run(1, "m", error="ValueError")], {}, (Verdict.NEVER, 0)),
    "not run, and nowhere": ([line(1, "delivered", ids=["m"])], {}, (Verdict.NEVER, 0)),
    "still queued": ([run(1, "m", error="ValueError")], {"left": 1}, (Verdict.UNFINISHED, 0)),
    "dead": ([run(1, "m", error="PermanentError"), answered(10, "m")], DEAD, (Verdict.DEAD_LETTER, 0)),
    "dead, and done": ([run(1, "m"), answered(10, "m")], {**DEAD, "records": COMPLETED}, (Verdict.ONCE, 0)),
}


@pytest.mark.parametrize("name", ENDED)
def test_a_message_ends_as_was_noted(name: str) -> None:
    lines, found, ended = ENDED[name]
    assert verdict(*lines, **found) == ended


@pytest.mark.parametrize("again", [run(13, "m", 2), run(40, "m", 2)], ids=["at once", "when it was done"])
def test_without_claims_two_runs_are_not_twice(again: list[Line]) -> None:
    """One of them commits, with the record."""
    ran = [*run(10, "m"), answered(30, "m"), *again]
    assert verdict(ran, line(1, "consumer", claims=True))[0] is Verdict.TWICE
    assert verdict(ran, line(1, "consumer", claims=False))[0] is Verdict.ONCE


def test_a_run_after_one_whose_time_was_up_is_none() -> None:
    overran = [line(1, "delivered", ids=["m"], until_ms=10), line(2, "started", key="m", record="m", attempt=1)]
    assert verdict(overran, run(20, "m", 2), answered(30, "m"), records=COMPLETED) == (Verdict.ONCE, 0)
    assert verdict(overran, run(5, "m", 2), answered(30, "m"), records=COMPLETED) == (Verdict.TWICE, 1)
    assert verdict(overran, line(12, "delivered", ids=["m"], until_ms=22), left=1) == (Verdict.UNFINISHED, 0)
    for dead, left, ends in ((frozenset[str](), 1, Verdict.UNFINISHED), (frozenset({"m"}), 0, Verdict.NEVER)):
        (message,) = judged(Evidence(sent={"m": "order.json"}, lines=overran, dead=dead, left=left))
        assert (message.verdict, message.why) == (ends, f"its handler fails: {OVERRAN}")


def test_dead_letters_alone_are_no_success() -> None:
    """As when the handler's model has changed, and the sample events have not."""
    dead, done = line(1, "delivered", ids=["d"]), [*run(1, "m"), answered(10, "m")]
    ended = judged(Evidence(sent={"d": "refused.json", "m": "order.json"}, lines=[dead, *done], dead=frozenset({"d"})))
    assert [each.verdict for each in ended] == [Verdict.DEAD_LETTER, Verdict.ONCE]
    assert (fine(ended), fine(ended[1:]), fine(ended[:1])) == (True, True, False)
    for verdict in (Verdict.UNFINISHED, Verdict.TWICE, Verdict.NEVER):
        assert not fine([*ended, replace(ended[1], verdict=verdict)])


def test_messages_of_one_key_are_one() -> None:
    lines = [
        *(line(0, "keyed", id=id, key="order-1") for id in ("m", "n")),
        *run(1, "order-1"),
        answered(10, "m"),
        answered(11, "n"),
    ]
    (message,) = judged(Evidence(sent={"m": "order.json", "n": "order.json"}, lines=lines))
    assert (message.sent, message.runs, message.verdict) == (2, 1, Verdict.ONCE)


def test_the_reason_is_the_records_own() -> None:
    error = json.dumps({"type": "PermanentError", "text": "no such customer"})
    evidence = Evidence(
        sent={"m": "order.json"},
        lines=run(1, "m", error="PermanentError"),
        records={"m": {"status": "FAILED", "error": error}},
        dead=frozenset({"m"}),
    )
    assert judged(evidence)[0].why == "no such customer"


def test_kills_are_told_by_their_places() -> None:
    assert kills([killed(1), killed(2, 1, "m")]) == ["before it was recorded", "before it had answered"]


# The witness.


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(witness, "settings", {"folder": str(tmp_path), "queue_url": "q", "partial": True})
    monkeypatch.setattr(witness, "offer_again", list)
    witness.first("killed-after")
    monkeypatch.setattr(witness, "deliveries", witness.Deliveries())
    witness.deliveries.take(
        [{"messageId": "m", "receiptHandle": "h"}, {"messageId": "n", "receiptHandle": "i"}], 10_000
    )
    return tmp_path


def test_only_the_first_acknowledgement_of_a_message_is_lost(folder: Path) -> None:
    assert folder
    answer = {"batchItemFailures": [{"itemIdentifier": "n"}]}
    lost = {"batchItemFailures": [{"itemIdentifier": "n"}, {"itemIdentifier": "m"}]}
    assert witness._answered(answer, ["m"]) == lost
    assert witness._answered(answer, ["m"]) == answer


def test_without_partial_responses_the_whole_answer_is_lost(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert folder
    monkeypatch.setitem(witness.settings, "partial", False)
    with pytest.raises(ConnectionError):
        witness._answered(None, ["m", "n"])
    assert witness._answered(None, ["m", "n"]) is None


def test_a_message_that_was_sent_back_is_known_by_the_key_it_carries(folder: Path) -> None:
    stamp = {"idempotent-receiver": {"stringValue": '{"key": "first", "original_id": "first"}'}}
    witness.deliveries.read_stamps([{"messageId": "m", "messageAttributes": stamp}, {"messageId": "n"}])
    noted = [(each["id"], each["key"]) for each in witness.lines() if each["what"] == "keyed"]
    assert noted == [("m", "first")]
    assert witness.deliveries.ids == {"first": "m"}


# Samples, code and templates.


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
    several = [Consumer(name=name, function=f"f-{name}", queue_url="q", partial=True) for name in ("Orders", "Returns")]
    assert chosen(several, "Returns").function == "f-Returns"
    assert chosen(several[:1], None).function == "f-Orders"
    for name in (None, "Refunds"):
        with pytest.raises(TrialError, match="use --function: Orders, Returns"):
            chosen(several, name)


def wheel(folder: Path) -> str:
    """The smallest wheel there is, in this folder; its file's name."""
    name = "tiny_wheel-1.0-py3-none-any.whl"
    with zipfile.ZipFile(folder / name, "w") as archive:
        archive.writestr("tiny_wheel.py", "")
        information = "tiny_wheel-1.0.dist-info"
        archive.writestr(f"{information}/METADATA", "Metadata-Version: 2.1\nName: tiny-wheel\nVersion: 1.0\n")
        archive.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        files = ("tiny_wheel.py", f"{information}/METADATA", f"{information}/WHEEL", f"{information}/RECORD")
        archive.writestr(f"{information}/RECORD", "".join(f"{each},,\n" for each in files))
    return name


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(ROOT / ".tools" / "uv" / "bin"), prepend=":")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "handler.py").write_text("import tiny_wheel\n")
    return tmp_path / "src"


def test_code_is_built_once_with_what_its_requirements_name(code: Path, tmp_path: Path) -> None:
    """A wheel beside the requirements, too."""
    (code / "requirements.txt").write_text(f"./{wheel(code)}\n")
    (code / "__pycache__").mkdir()
    built = build(code, tmp_path / "build", tmp_path)
    assert {"handler.py", "tiny_wheel.py"} <= {each.name for each in built.iterdir()}
    assert not (built / "__pycache__").exists()
    (code / "requirements.txt").write_text("no such requirement\n")
    assert build(code, tmp_path / "build", tmp_path) == built


def test_requirements_beside_the_template_are_for_every_function(code: Path, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text(f"./{wheel(tmp_path)}\n")
    built = build(code, tmp_path / "build", tmp_path)
    assert {each.name for each in built.iterdir()} >= {"handler.py", "tiny_wheel.py"}


def test_requirements_that_cannot_be_installed_are_told(code: Path, tmp_path: Path) -> None:
    (code / "requirements.txt").write_text("./no-such-wheel-1.0-py3-none-any.whl\n")
    with pytest.raises(
        DeployError, match=r"requirements\.txt could not be installed(.|\n)*no-such-wheel|no_such_wheel"
    ):
        build(code, tmp_path / "build", tmp_path)


def test_without_an_installer_it_says_how_to_get_one(
    code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code / "requirements.txt").write_text("")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(building, "_has_pip", lambda: False)
    with pytest.raises(DeployError, match="ensurepip"):
        build(code, tmp_path / "build", tmp_path)


def test_without_the_extra_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ministack", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NotInstalled, match=r"pip install 'idempotent-receiver\[cli,local\]'"):
        interpreter()


class Bucket:
    """The clients of a cloud that only stores."""

    endpoint_url = "http://127.0.0.1:1"

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}

    def client(self, service: str) -> Bucket:
        return self

    def create_bucket(self, **asked: Any) -> None:
        """There is one."""

    def put_object(self, **asked: Any) -> None:
        self.stored[asked["Key"]] = asked["Body"]


def test_the_alarm_on_arrivals_is_off_and_what_a_stack_says_itself_stays(tmp_path: Path) -> None:
    """In the component, and in a template that passes it on."""
    shipped = COMPONENT.read_text()
    made = packaged(Bucket(), shipped, tmp_path, str)
    assert sum(was != now for was, now in zip(shipped.splitlines(), made.splitlines(), strict=True)) == 1
    (tmp_path / "made.yaml").write_text(made)
    assert load(tmp_path / "made.yaml")["Parameters"]["DeadLetterArrivals"]["Default"] == "false"
    passing = "        DeadLetterArrivals: 'true'\n"
    assert packaged(Bucket(), passing, tmp_path, str) == passing


def test_every_local_path_of_a_template_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "child.yaml").write_text("    CodeUri: inner/\n")
    template = """
      CodeUri: ./src # here
      CodeUri: "other src"
      DefinitionUri: machine.json
      DefinitionS3Location: machine.json # too
      TemplateURL: child.yaml
      CodeUri: s3://there/key
      CodeUri: !Ref Somewhere
      # CodeUri: commented
    """
    cloud = Bucket()
    made = packaged(cloud, template, tmp_path, lambda path: f"s3://code/{path.relative_to(tmp_path)}")
    (child,) = cloud.stored
    assert (
        made
        == f"""
      CodeUri: s3://code/src # here
      CodeUri: s3://code/other src
      DefinitionUri: s3://code/machine.json
      DefinitionS3Location: {{Bucket: code, Key: machine.json}} # too
      TemplateURL: http://127.0.0.1:1/code/{child}
      CodeUri: s3://there/key
      CodeUri: !Ref Somewhere
      # CodeUri: commented
    """
    )
    assert cloud.stored[child] == b"    CodeUri: s3://code/inner\n"
