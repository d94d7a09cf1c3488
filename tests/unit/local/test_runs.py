"""Which runs are made, with which messages, and how they come together."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver.local import project as projects
from idempotent_receiver.local import witness
from idempotent_receiver.local.effects import ContentByTable, TableContent
from idempotent_receiver.local.project import LocalProject
from idempotent_receiver.local.runs import NO_REDRIVE, TrialRuns
from idempotent_receiver.local.samples import Sample, TrialError
from idempotent_receiver.local.verdict import EffectVerdict, Evidence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

SAMPLES = [
    Sample(name, {"body": "{}", "attributes": {"MessageGroupId": name[0]}}) for name in ("b", "refused", "a", "ax")
]
CENTS = {"a": 5, "ax": 7, "b": 300, "refused": 1}


@dataclass
class Cloud:
    """A run of a handler that adds the sample's cents, and refuses one sample."""

    faults: str
    inside: bool = True
    named: Sequence[str] = ()
    fifo: bool = False
    redrive_policy: dict[str, Any] = field(default_factory=lambda: {"maxReceiveCount": 5})
    refuses: frozenset[str] = frozenset({"refused"})
    leaves_something: bool = False
    late: frozenset[str] = frozenset()
    """These fail at first, and are done once the run is waited for."""
    waited: bool = False
    strange: str | None = None
    """The faults with which there is an item that no message writes."""
    sent: dict[str, str] = field(default_factory=dict)
    at_once: bool = False

    def send(self, samples: Sequence[Sample]) -> None:
        self.sent.update({each.name: each.name for each in samples})

    def send_at_once(self, samples: Sequence[Sample]) -> None:
        self.at_once = True
        self.send(samples)

    def wait_for(self, name: str, seconds: float) -> bool:
        return True

    def wait(self, seconds: float, say: Any = None) -> bool:
        self.waited = True
        return True

    def failed(self, name: str) -> bool:
        return name in self.refuses | self.late

    @property
    def twice(self) -> set[str]:
        """Its worker is killed when it has added them."""
        return {"a"} if self.faults == witness.KILLS and not self.inside else set()

    def tables(self) -> ContentByTable:
        done = [name for name in (*self.sent, *self.twice) if name not in self.refuses or self.leaves_something]
        done = [name for name in done if self.waited or name not in self.late]
        total = sum(CENTS[name] for name in done if name in self.sent)
        items = [{"of": {"S": "all"}, "cents": {"N": str(total)}}] if done else []
        strange = [{"of": {"S": "nobody"}}] if self.faults == self.strange else []
        return {"Totals": TableContent(("of",), [*items, *strange])}

    def evidence(self, reference: Any = None) -> Evidence:
        lines: list[dict[str, Any]] = [{"what": "consumer", "claims": True, "table": "t", "process": 1, "at_ms": 0}]
        for name in (*self.sent, *self.twice):
            run = {"key": name, "record": name, "process": 1, "error": "refused" if name in self.refuses else None}
            lines += [{"what": what, "at_ms": len(lines), **run} for what in ("started", "ended")]
        if self.faults == witness.KILLS:
            lines.append({"what": "killed", "place": "here", "ids": [], "process": 2, "at_ms": 0})
        able = [name for name in self.sent if name not in self.refuses]
        lines.append({"what": "answered", "ids": able, "lost": [], "process": 1, "at_ms": len(lines)})
        return Evidence(
            sent=self.sent,
            lines=lines if self.inside else lines[1:],
            records={name: {"status": "COMPLETED"} for name in able},
            dead=frozenset(self.refuses & {*self.sent}) if self.redrive_policy else frozenset(),
            left=0 if self.redrive_policy else len(self.refuses & {*self.sent}),
            tables=self.tables(),
            reference=reference,
        )


@dataclass
class Clouds:
    """What runs are made, on clouds with these properties."""

    monkeypatch: pytest.MonkeyPatch
    folder: Path
    runs: list[Cloud] = field(default_factory=list)

    def found(self, **properties: Any) -> Any:
        (self.folder / "template.yaml").write_text("Resources: {}")

        @contextmanager
        def run(runs: TrialRuns, what: str, faults: str) -> Iterator[Cloud]:
            assert what
            self.runs.append(Cloud(faults, **properties))
            yield self.runs[-1]

        self.monkeypatch.setattr(TrialRuns, "_run", run)
        return runs_of(self.folder).found()

    @property
    def made(self) -> list[tuple[str, list[str]]]:
        return [(each.faults, [*each.sent]) for each in self.runs]


@contextmanager
def progress(what: str, total: int) -> Iterator[Any]:
    yield lambda done, of: None


def runs_of(folder: Path, function: str | None = None) -> TrialRuns:
    def cloud() -> Any:
        raise AssertionError("a cloud is started")

    project = LocalProject(folder / "template.yaml", folder)
    return TrialRuns(project, SAMPLES, function, 90.0, cloud, tell=lambda text: None, progress=progress)


@pytest.fixture
def clouds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Clouds:
    return Clouds(monkeypatch, tmp_path)


def test_what_always_fails_is_in_the_first_run_alone(clouds: Clouds) -> None:
    found = clouds.found()
    able = ["b", "a", "ax"]
    assert clouds.made == [
        (witness.NONE, ["b", "refused", "a", "ax"]),
        (witness.KILLS, able),
        (witness.NONE, able[::-1]),
        (witness.ONE_FAILS, able),
    ]
    assert [each.at_once for each in clouds.runs] == [False, False, True, True]
    assert [(each.name, each.verdict) for each in found.messages] == [
        ("b", EffectVerdict.ONCE),
        ("refused", EffectVerdict.DEAD_LETTER),
        ("a", EffectVerdict.ONCE),
        ("ax", EffectVerdict.ONCE),
    ]
    assert (found.killed, found.fine, found.inside, found.claims) == (["here"], True, True, True)


def test_what_failing_messages_leave_behind_is_no_reference(clouds: Clouds) -> None:
    """There is one more first run, without them."""
    found = clouds.found(leaves_something=True)
    assert clouds.made[:2] == [(witness.NONE, ["b", "refused", "a", "ax"]), (witness.NONE, ["b", "a", "ax"])]
    assert (len(clouds.made), found.fine, found.incomparable) == (5, True, [])


def test_what_had_to_come_again_is_in_the_reference(clouds: Clouds) -> None:
    found = clouds.found(late=frozenset({"a", "b"}))
    assert ([each.place.table for each in found.unexplained], found.incomparable, found.fine) == ([], [], True)


def test_a_fifo_queues_groups_keep_their_order(clouds: Clouds) -> None:
    clouds.found(fifo=True)
    assert clouds.made[2] == (witness.NONE, ["a", "ax", "b"])


def test_a_handler_without_the_library_cannot_be_made_to_fail(clouds: Clouds) -> None:
    found = clouds.found(inside=False, named=["orders"])
    assert [faults for faults, _ in clouds.made] == [witness.NONE, witness.KILLS, witness.NONE]
    assert (found.inside, found.named) == (False, ["orders"])


def test_where_everything_fails_there_is_nothing_to_compare(clouds: Clouds) -> None:
    found = clouds.found(refuses=frozenset(CENTS))
    assert (len(clouds.made), found.fine) == (1, False)
    assert {each.verdict for each in found.messages} == {EffectVerdict.DEAD_LETTER}


@pytest.mark.parametrize("faults", [witness.KILLS, witness.ONE_FAILS])
def test_what_no_message_writes_is_found_in_every_run_with_faults(clouds: Clouds, faults: str) -> None:
    found = clouds.found(strange=faults)
    assert ([each.place.table for each in found.unexplained], found.fine) == (["Totals"], False)


def test_a_queue_without_a_redrive_policy_is_found(clouds: Clouds) -> None:
    found = clouds.found(redrive_policy={}, refuses=frozenset())
    assert (found.missing, found.fine) == ([NO_REDRIVE], False)


def test_what_is_still_queued_after_the_first_run_is_in_no_other(clouds: Clouds) -> None:
    """Without a dead-letter queue, what always fails never leaves."""
    found = clouds.found(redrive_policy={})
    assert [sent for _, sent in clouds.made[1:]] == [["b", "a", "ax"], ["ax", "a", "b"], ["b", "a", "ax"]]
    assert [each.verdict for each in found.messages if each.name == "refused"] == [EffectVerdict.UNFINISHED]


def test_which_of_several_functions_is_asked_before_anything_is_deployed(tmp_path: Path) -> None:
    function = "{Type: AWS::Serverless::Function, Properties: {Events: {Messages: {Type: SQS}}}}"
    (tmp_path / "template.yaml").write_text(f"Resources:\n  Orders: {function}\n  Returns: {function}\n")
    with pytest.raises(TrialError, match=r"which function\? use --function with one of: Orders, Returns"):
        runs_of(tmp_path).found()
    with pytest.raises(AssertionError, match="a cloud is started"):
        runs_of(tmp_path, "Returns").found()


def test_a_template_that_is_not_there_or_no_text_is_told(tmp_path: Path) -> None:
    with pytest.raises(TrialError, match=r"no template at .*: pass its path"):
        runs_of(tmp_path).found()
    (tmp_path / "template.yaml").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(TrialError, match="is not text"):
        runs_of(tmp_path).found()


@pytest.mark.parametrize("witnessed", [True, False])
def test_a_project_is_deployed_with_its_queues_here_and_the_witness_if_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, witnessed: bool
) -> None:
    """From its own text, or from one that was edited; with the queues that its parameters name."""
    elsewhere, here = "arn:aws:sqs:eu-west-1:123456789012:orders", "arn:aws:sqs:us-east-1:000000000000:orders"
    (tmp_path / "template.yaml").write_text(f"Resources: {{}} # {elsewhere}")
    laid_over: list[dict[str, bytes]] = []
    monkeypatch.setattr(projects, "build", lambda code, folder, project: code)
    monkeypatch.setattr(projects, "build_by_make", lambda target, folder: tmp_path)
    monkeypatch.setattr(projects, "upload", lambda cloud, path, overlay=None: laid_over.append(overlay or {}))
    monkeypatch.setattr(projects, "create", lambda cloud, stack, text, parameters: (text, parameters))
    monkeypatch.setattr(projects, "give_database", lambda cloud, stack, folder: None)

    def packaged(cloud: Any, text: str, folder: Path, uri_of: Any, built: Any) -> str:
        uri_of(folder)
        built(None)
        return text

    monkeypatch.setattr(projects, "packaged", packaged)
    project: Any = LocalProject(tmp_path / "template.yaml", tmp_path, {"Queue": elsewhere, "Stage": "a"})
    parameters = {"Queue": here, "Stage": "a"}

    assert project.deployed(None, "trial", witnessed=witnessed) == (f"Resources: {{}} # {here}", parameters)
    assert project.deployed(None, "local", text="edited", witnessed=witnessed) == ("edited", parameters)
    names = ["receiver_local_witness.py"] if witnessed else []
    assert [[*each] for each in laid_over] == [names] * 4
