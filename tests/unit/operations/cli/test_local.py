"""`receiver local`, with runs that only note what is asked of them: what it is told, and what it answers."""

from __future__ import annotations

import io
import json
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError
from rich.console import Console

from idempotent_receiver.local.cloud import NotInstalled
from idempotent_receiver.local.deployment import DeployError
from idempotent_receiver.local.effects import Attribute
from idempotent_receiver.local.runs import Found
from idempotent_receiver.local.samples import TrialError
from idempotent_receiver.local.server import ServerError
from idempotent_receiver.local.verdict import EffectVerdict, Ended
from idempotent_receiver.operations.cli import local
from idempotent_receiver.operations.cli.terminal import Exit
from tests.unit.operations.cli.stack import Receiver
from tests.unit.operations.cli.transcript import figures

if TYPE_CHECKING:
    from collections.abc import Iterator


def ended(verdict: EffectVerdict = EffectVerdict.ONCE, runs: int = 1, **more: Any) -> Ended:
    said = {"name": "order.json", "key": "k", "sent": 1, "deliveries": 2, "twice": 0, "record": None, "tables": None}
    return Ended(**{**said, "runs": runs, "verdict": verdict, **more})


DOUBLED = "Totals customer=alice: cents is 3250, but 2000 in fault-free runs"
TWICE = ended(EffectVerdict.TWICE, 2, record="COMPLETED", tables=EffectVerdict.TWICE, differs=(DOUBLED,))
FOUND = Found(
    messages=[
        ended(runs=2, record="COMPLETED", why="its first worker was killed before recording the result"),
        ended(EffectVerdict.DEAD_LETTER, 5, name="bad.json"),
    ],
    killed=["before recording the result"],
    inside=True,
    claims=True,
)


class Noted:
    """What was asked of the runs, and of the cloud that stays; and what they answer."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.found = FOUND
        self.fails: Exception | None = None
        self.contained = True
        self.polls = 3

    def runs(self, project: Any, samples: Any, function: str | None, seconds: float, **means: Any) -> Any:
        assert project.folder.name.startswith("receiver-local-")
        assert project.folder.is_dir()
        printed = project.folder / "printed.log"
        printed.write_text("order-1\n\x1b[2J\n")

        def found() -> Found:
            if self.fails is not None:
                raise self.fails
            means["tell"]("building")
            names = [each.name for each in samples]
            with means["cloud"]() as cloud, means["progress"]("out of queue", 2) as say:
                self.asked.append(
                    (str(project.template), project.parameters, names, function, seconds, cloud, say(1, 2))
                )
            return self.found

        return SimpleNamespace(found=found, printed=[("without faults", printed), ("killed", Path("nowhere"))])

    @contextmanager
    def embedded_cloud(self, program: Any) -> Iterator[str]:
        assert program == "ministack"
        yield "cloud"

    @contextmanager
    def staying(self, project: Any, port: int) -> Iterator[Any]:
        if self.fails is not None:
            raise self.fails
        self.asked.append((str(project.template), port))
        yield SimpleNamespace(cloud=self, stack=SimpleNamespace(name="local"), contained=self.contained)
        self.asked.append("over")

    endpoint_url = "http://127.0.0.1:4566"

    @property
    def alive(self) -> bool:
        """Ctrl-C is pressed at the third look, or else it ends by itself."""
        self.polls -= 1
        if self.polls == 0:
            raise KeyboardInterrupt
        return self.polls > 0


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch, receiver: Receiver) -> Noted:
    """A project in the current folder, with two sample events."""
    made = Noted()
    for name, fake in (("embedded_cloud", made.embedded_cloud), ("TrialRuns", made.runs), ("staying", made.staying)):
        monkeypatch.setattr(local, name, fake)
    monkeypatch.setattr(local, "Ministack", lambda: "ministack")  # it wants the extra
    monkeypatch.setattr(
        local, "commands", lambda stays, sample: [(f"tries {sample.name}", ["sam", f"{stays.stack.name} invoke"])]
    )
    monkeypatch.setattr(local, "WATCH_SECONDS", 0.0)
    Path("template.yaml").write_text("Resources: {}")
    for folder in ("events", "others"):
        Path(folder).mkdir()
        for name in ("order.json", "bad.json"):
            (Path(folder) / name).write_text(json.dumps({"Records": [{"messageId": "1", "body": folder}]}))
    return made


def test_it_makes_the_runs_and_tells_how_each_message_ended(
    receiver: Receiver, noted: Noted, bars: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    given = "--parameter Stage=a=b --parameter Empty= --seconds 12"
    ran = receiver(f"local --function Orders {given}")
    sent = ["bad.json", "order.json"]
    assert noted.asked == [("template.yaml", {"Stage": "a=b", "Empty": ""}, sent, "Orders", 12.0, "cloud", None)], (
        ran.err
    )
    assert ran.code == Exit.OK
    lines = ["order.json 1 2 2 COMPLETED -", "bad.json 1 2 5 -", "1", "2 1 1"]
    assert figures(ran.out) == lines
    assert "1 worker killed: before recording the result" in ran.out
    assert ran.err == "building\n"
    assert bars == [["out of queue", 2, (1, 2)]]
    local.local(function="Returns", events=Path("others"))
    assert figures(capsys.readouterr().out) == lines
    assert noted.asked[1][2:5] == (sent, "Returns", 90.0)


def test_it_answers_scripts_too_and_fails_where_a_message_took_effect_twice(receiver: Receiver, noted: Noted) -> None:
    noted.found = replace(
        FOUND, messages=[TWICE], incomparable=[Attribute("Totals", "at")], missing=["no redrive policy"]
    )
    ran = receiver("local --json")
    told = {"name": "order.json", "key": "k", "sent": 1, "deliveries": 2, "runs": 2, "twice": 0, "record": "COMPLETED"}
    message = {**told, "tables": "TWICE", "verdict": "TWICE", "why": None, "differs": [DOUBLED]}
    counts = {"once": 0, "twice": 1, "never": 0, "dead_letter": 0, "unseen": 0, "unfinished": 0, "unrecorded": 0}
    more = {"not_compared": ["Totals.at"], "unexplained": [], "missing": ["no redrive policy"]}
    assert ran.json == {
        "schema": 1,
        "messages": [message],
        "workers_killed": ["before recording the result"],
        **more,
        **counts,
    }
    assert ran.code == Exit.LEFT


@pytest.mark.parametrize(("given", "code"), [("", Exit.LEFT), ("--accept-unseen", Exit.OK)])
@pytest.mark.parametrize("messages", [[], [ended()], [ended(EffectVerdict.DEAD_LETTER)]])
def test_effects_that_cannot_be_seen_are_a_success_only_for_a_caller_who_knows(
    receiver: Receiver, noted: Noted, messages: list[Ended], given: str, code: Exit
) -> None:
    """They are counted apart from those that took effect once."""
    noted.found = replace(FOUND, messages=[ended(EffectVerdict.UNSEEN, 2), *messages])
    ran = receiver(f"local {given}")
    assert ran.code == code, ran.err
    assert "1 ran twice, effects unseen" in ran.out
    ran = receiver(f"local --json {given}")
    once = sum(each.verdict is EffectVerdict.ONCE for each in messages)
    assert (ran.code, ran.json["unseen"], ran.json["once"]) == (code, 1, once)


@pytest.mark.parametrize("verdict", [EffectVerdict.TWICE, EffectVerdict.NEVER])
def test_who_accepts_what_is_unseen_does_not_accept_what_is_seen(
    receiver: Receiver, noted: Noted, verdict: EffectVerdict
) -> None:
    noted.found = replace(FOUND, messages=[ended(EffectVerdict.UNSEEN, 2), ended(verdict, 2)])
    assert receiver("local --accept-unseen").code == Exit.LEFT


def test_what_the_function_printed_is_shown_where_it_is_asked_for(receiver: Receiver, noted: Noted) -> None:
    """Of every run, even if the next one fails; and nothing that moves a terminal's cursor."""
    assert "order-1" not in receiver("local").err
    noted.fails = DeployError("no start")
    ran = receiver("local --logs")
    assert "without faults: the function printed this:\norder-1\n" in ran.err
    assert "killed: the function printed nothing\n" in ran.err
    assert "\x1b" not in ran.err
    assert "receiver: no start" in ran.err


IN_ITS_MODULE = local.IN_ITS_MODULE.format(names="orders, refunds")
SAID = {local.UNSEEN, local.PLAIN, IN_ITS_MODULE, local.CLAIMLESS, local.NOTHING, local.NOT_COMPARED}


@pytest.mark.parametrize(
    ("messages", "given", "says"),
    [
        ([ended(), ended(EffectVerdict.DEAD_LETTER)], {}, set()),
        ([ended(EffectVerdict.UNSEEN, 2)], {}, {local.UNSEEN}),
        ([ended(runs=2, tables=EffectVerdict.ONCE)], {}, set()),
        ([TWICE], {}, set()),
        ([ended(runs=2)], {"inside": False}, {local.PLAIN}),
        ([ended(runs=2)], {"inside": False, "named": ["orders", "refunds"]}, {IN_ITS_MODULE}),
        ([ended()], {"claims": False}, {local.CLAIMLESS}),
        ([ended(EffectVerdict.DEAD_LETTER)], {}, {local.NOTHING}),
        ([ended()], {"incomparable": [Attribute("Totals", "at")]}, {local.NOT_COMPARED}),
    ],
)
def test_what_the_runs_cannot_see_or_the_handler_has_to_do_is_said(
    messages: list[Ended], given: dict[str, Any], says: set[str]
) -> None:
    console = Console(width=100, file=io.StringIO())
    for died in ([], ["here", "there"]):
        console.print(local.verdict_text(replace(FOUND, messages=messages, killed=died, **given)))
    told = console.file.getvalue()  # type: ignore[attr-defined]
    assert {each for each in SAID if each in told} == says
    assert "0 workers killed: no handler finished" in told
    assert "2 workers killed: here; there" in told
    assert (DOUBLED in told) is (messages == [TWICE])


def test_what_the_template_lacks_and_what_no_message_explains_is_said(receiver: Receiver, noted: Noted) -> None:
    noted.found = replace(FOUND, missing=["no redrive policy"], unexplained=["Retries: 1 item"])  # type: ignore[list-item]
    ran = receiver("local")
    assert ran.code == Exit.LEFT
    assert {"no redrive policy", "No message writes here in fault-free runs: Retries: 1 item"} <= {
        *ran.out.splitlines()
    }


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
@pytest.mark.parametrize("stay", ["", "--stay"])
def test_what_cannot_be_done_says_why(
    receiver: Receiver, noted: Noted, fails: Exception, code: Exit, *, says: str, stay: str
) -> None:
    noted.fails = fails
    ran = receiver(f"local {stay}")
    assert (ran.code, ran.out, says in ran.err) == (code, "", True)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("--parameter Stage", "--parameter Stage: write it as NAME=VALUE"),
        ("--parameter A=1 --parameter =b", "--parameter : write it as NAME=VALUE"),
        ("--events nowhere", "there is no SQS event in nowhere"),
        ("--port 4567", "--port needs --stay"),
    ],
)
def test_what_it_cannot_be_told_is_refused(receiver: Receiver, noted: Noted, given: str, says: str) -> None:
    ran = receiver(f"local {given}")
    assert (ran.code, ran.out, says in ran.said) == (Exit.USAGE, "", True)


# A cloud that stays.


@pytest.mark.parametrize(("given", "port"), [("", 4566), ("--port 4567", 4567)])
def test_it_stays_until_somebody_interrupts_and_says_what_to_type(
    receiver: Receiver, noted: Noted, given: str, port: int
) -> None:
    ran = receiver(f"local --stay {given}")
    assert (ran.code, noted.asked) == (Exit.OK, [("template.yaml", port)])
    assert "    # tries bad.json\n    sam local invoke\n" in ran.out
    assert "The stack is called local, at http://127.0.0.1:4566." in ran.out
    assert local.NO_ENGINE not in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80


def test_without_a_container_engine_that_is_said(receiver: Receiver, noted: Noted) -> None:
    noted.contained = False
    assert local.NO_ENGINE in receiver("local --stay").out


def test_it_tells_scripts_what_to_type(receiver: Receiver, noted: Noted) -> None:
    told = {"schema": 1, "endpoint_url": "http://127.0.0.1:4566", "stack": "local", "commands": ["sam local invoke"]}
    assert receiver("local --stay --json").json == told


def test_a_cloud_that_ends_by_itself_is_told(receiver: Receiver, noted: Noted) -> None:
    noted.polls = 0
    ran = receiver("local --stay")
    assert (ran.code, "receiver: the local cloud stopped unexpectedly" in ran.err) == (Exit.AWS, True)
