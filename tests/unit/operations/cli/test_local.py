"""`receiver local`, on a cloud that only notes what is asked of it: what it is told, and what it answers."""

from __future__ import annotations

import io
import json
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError
from rich.console import Console

from idempotent_receiver.local.cloud import NotInstalled
from idempotent_receiver.local.deployment import NO_ARRIVALS, DeployError
from idempotent_receiver.local.samples import TrialError
from idempotent_receiver.local.server import ServerError
from idempotent_receiver.local.trial import Consumer
from idempotent_receiver.local.verdict import Ended, Evidence, Verdict
from idempotent_receiver.operations.cli import local
from idempotent_receiver.operations.cli.terminal import Exit
from tests.unit.operations.cli.stack import Receiver
from tests.unit.operations.cli.transcripts import figures

if TYPE_CHECKING:
    from collections.abc import Iterator

ORDERS, RETURNS = (
    Consumer(name=each, function=f"f-{each}", queue_url="q", partial=True) for each in ("Orders", "Returns")
)
RUN = {"process": 1, "key": "m-0", "record": "m-0", "attempt": 1, "error": None}
LINES = [
    {"at_ms": 0, "what": "consumer", "claims": True},
    {"at_ms": 1, "what": "delivered", "process": 1, "ids": ["m-0"]},
    {"at_ms": 2, "what": "started", **RUN},
    {"at_ms": 3, "what": "killed", "process": 1, "place": "before it was recorded", "ids": []},
    {"at_ms": 4, "what": "delivered", "process": 2, "ids": ["m-0"]},
    {"at_ms": 5, "what": "started", **RUN, "process": 2},
    {"at_ms": 6, "what": "ended", **RUN, "process": 2},
    {"at_ms": 7, "what": "answered", "process": 2, "ids": ["m-0"]},
]
DONE: dict[str, Any] = {"records": {"m-0": {"status": "COMPLETED"}}, "dead": frozenset({"m-1"})}


class Noted:
    """What was asked of the local cloud and the trial, in order; and what the trial found."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.found = Evidence(sent={"m-0": "order.json", "m-1": "bad.json"}, lines=LINES, **DONE)
        self.fails: Exception | None = None
        self.resources = {"DeadLetterAlarm": "alarm"}

    @contextmanager
    def embedded_cloud(self, program: Any) -> Iterator[str]:
        assert program == "ministack"
        yield "cloud"
        self.asked.append("over")

    def deployed(self, cloud: str, template: Path, folder: Path, parameters: dict[str, str]) -> Any:
        if self.fails is not None:
            raise self.fails
        assert (cloud, folder.name, folder.parent.is_dir()) == ("cloud", "build", True)
        self.asked.append((str(template), parameters))
        return SimpleNamespace(resources=self.resources)

    def consumers_of(self, cloud: str, stack: Any) -> list[Consumer]:
        assert (cloud, stack.resources) == ("cloud", self.resources)
        return [ORDERS, RETURNS]

    def trial(self, cloud: str, consumer: Consumer, folder: Path) -> Any:
        assert (cloud, folder.name.startswith("receiver-local-"), folder.is_dir()) == ("cloud", True, True)
        self.asked.append(consumer.name)
        return SimpleNamespace(
            prepare=lambda: 7,
            send=lambda samples: self.asked.append([each.name for each in samples]),
            wait=lambda seconds, say: self.asked.append((seconds, say(1, 2))),
            evidence=lambda: self.found,
        )


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch, receiver: Receiver) -> Noted:
    """A project in the current folder, with two sample events."""
    made = Noted()
    for name, fake in (("embedded_cloud", made.embedded_cloud), ("deployed", made.deployed), ("Trial", made.trial)):
        monkeypatch.setattr(local, name, fake)
    monkeypatch.setattr(local, "consumers_of", made.consumers_of)
    monkeypatch.setattr(local, "Ministack", lambda: "ministack")  # it wants the extra
    Path("template.yaml").write_text("Resources: {}")
    for folder in ("events", "others"):
        Path(folder).mkdir()
        for name in ("order.json", "bad.json"):
            (Path(folder) / name).write_text(json.dumps({"Records": [{"messageId": "1", "body": folder}]}))
    return made


def test_a_trial_deploys_sends_waits_and_tells_how_each_message_ended(
    receiver: Receiver, noted: Noted, bars: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    given = "--parameter Stage=a=b --parameter Empty= --seconds 12"
    ran = receiver(f"local --function Orders {given}")
    sent = ["bad.json", "order.json"]
    asked = [("template.yaml", {"Stage": "a=b", "Empty": ""}), "Orders", sent, (12.0, None), "over"]
    assert (ran.code, noted.asked) == (Exit.OK, asked), ran.err
    lines = ["order.json 1 2 2 COMPLETED", "bad.json 1 0 0", "1", "current_claim().idempotency_key", "2 1 1"]
    assert figures(ran.out) == lines
    assert "1 worker killed: before it was recorded" in ran.out
    assert (NO_ARRIVALS in ran.err, local.AGAIN in ran.out) == (True, True)
    assert figures(ran.err.replace(NO_ARRIVALS, "")) == ["template.yaml", "7 11", "2"]
    assert bars == [["out of queue", 2, (1, 2)]]
    noted.resources = {"Orders": "f-Orders"}
    local.local(function="Returns", events=Path("others"))
    said = capsys.readouterr()
    assert (NO_ARRIVALS in said.err, figures(said.out)) == (False, figures(ran.out))
    assert noted.asked[6:] == ["Returns", sent, (90.0, None), "over"]


def test_a_trial_answers_scripts_too_and_fails_where_a_message_took_effect_twice(
    receiver: Receiver, noted: Noted
) -> None:
    noted.found = Evidence(sent={"m-0": "order.json"}, lines=[*LINES, {**LINES[2], "at_ms": 9}], left=1)
    ran = receiver("local --function Orders --json")
    told = {"name": "order.json", "key": "m-0", "sent": 1, "deliveries": 2, "runs": 3, "twice": 1, "record": None}
    counts = {"once": 0, "twice": 1, "never": 0, "dead_letter": 0, "unfinished": 0}
    (message,) = ran.json["messages"]
    messages = [{**told, "verdict": "TWICE", "why": message["why"]}]
    assert ran.json == {"messages": messages, "workers_killed": ["before it was recorded"], **counts}
    assert ran.code == Exit.LEFT


def ended(verdict: Verdict = Verdict.ONCE, runs: int = 1) -> Ended:
    return Ended(name="n", key="k", sent=1, deliveries=2, runs=runs, twice=0, record=None, verdict=verdict)


@pytest.mark.parametrize(
    ("messages", "given", "says"),
    [
        ([ended(), ended(Verdict.DEAD_LETTER)], {}, set()),
        ([ended(), ended(runs=2)], {}, {local.AGAIN}),
        ([ended(Verdict.TWICE, runs=2)], {}, set()),
        ([ended(runs=2)], {"plain": True}, {local.PLAIN}),
        ([ended()], {"claims": False}, {local.CLAIMLESS}),
        ([ended(Verdict.DEAD_LETTER)], {}, {local.NOTHING}),
    ],
)
def test_what_a_trial_cannot_see_or_the_handler_has_to_do_is_said(
    messages: list[Ended], given: dict[str, bool], says: set[str]
) -> None:
    console = Console(width=100, file=io.StringIO())
    for died in ([], ["here", "there"]):
        console.print(local.text(messages, died, **{"plain": False, **given}))
    told = console.file.getvalue()  # type: ignore[attr-defined]
    assert {each for each in (local.AGAIN, local.PLAIN, local.CLAIMLESS, local.NOTHING) if each in told} == says
    assert "0 workers killed: no handler came to its end" in told
    assert "2 workers killed: here; there" in told
    assert "none" in told


@pytest.mark.parametrize(
    ("fails", "code", "says"),
    [
        (TrialError("no function"), Exit.USAGE, "receiver: no function"),
        (DeployError("no start"), Exit.USAGE, "receiver: no start"),
        (NotInstalled("no cloud"), Exit.USAGE, "receiver: no cloud"),
        (ServerError("no port"), Exit.AWS, "receiver: no port"),
        (
            ClientError({"Error": {"Code": "ValidationError", "Message": "no table"}}, "CreateStack"),
            Exit.USAGE,
            "receiver: template.yaml cannot be deployed: An error occurred (ValidationError)",
        ),
    ],
)
def test_a_trial_that_cannot_be_made_says_why(
    receiver: Receiver, noted: Noted, fails: Exception, code: Exit, says: str
) -> None:
    noted.fails = fails
    ran = receiver("local")
    assert (ran.code, ran.out, says in ran.err) == (code, "", True)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("nosuch.yaml", "there is no template nosuch.yaml"),
        ("binary.yaml", "binary.yaml is no text"),
        ("--parameter Stage", "--parameter Stage: write it as NAME=VALUE"),
        ("--parameter A=1 --parameter =b", "--parameter : write it as NAME=VALUE"),
        ("--events nowhere", "there is no SQS event in nowhere"),
        ("--function Refunds", "Refunds consumes no queue"),
        ("", "which function? use --function: Orders, Returns"),
    ],
)
def test_what_a_trial_cannot_be_told_is_refused(receiver: Receiver, noted: Noted, given: str, says: str) -> None:
    Path("binary.yaml").write_bytes(b"\xff\xfe\xff")
    ran = receiver(f"local {given}")
    assert (ran.code, ran.out, says in ran.said) == (Exit.USAGE, "", True)


def test_a_handler_that_no_consumer_wraps_is_told_apart(receiver: Receiver, noted: Noted) -> None:
    assert local.PLAIN not in receiver("local --function Orders").out
    noted.found = Evidence(sent=noted.found.sent, lines=LINES[1:], **DONE)
    assert local.PLAIN in receiver("local --function Orders").out
    claimless = [{**LINES[0], "claims": False}, *LINES[1:]]
    noted.found = Evidence(sent=noted.found.sent, lines=claimless, **DONE)
    assert local.CLAIMLESS in receiver("local --function Orders").out
