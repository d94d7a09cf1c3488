"""The checker of histories can fail: each rule is broken by one change to a history that keeps them all."""

from __future__ import annotations

import ast
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness import by_key, checker, history
from harness.checker import check
from harness.history import (
    Acknowledged,
    Answered,
    Balance,
    DeadLettered,
    Delivered,
    Effect,
    Ended,
    Event,
    Left,
    Paused,
    Sent,
    Settled,
    Started,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

MOVES = (("payer", -10), ("payee", 10))
SENT = Sent(at=0, message="m", key="k", payload="p", moves=MOVES)
GIVEN = Delivered(at=1, message="m", worker="w1")
START = Started(at=2, message="m", worker="w1", until=20)
END = Ended(at=4, message="m", worker="w1", ok=True)
EFFECT = Effect(at=5, since=4.5, key="k", payload="p", worker="w1", moves=MOVES, result="r")
ACKNOWLEDGED = Acknowledged(at=6, message="m", worker="w1")
BALANCES = [
    Balance(at=99, account="payer", opening=50, closing=40),
    Balance(at=99, account="payee", opening=0, closing=10),
]
ONCE: list[Event] = [SENT, GIVEN, START, END, EFFECT, ACKNOWLEDGED]
"""A message that took effect."""
MAY_REPEAT = replace(EFFECT, once=False)
REPEATABLE: list[Event] = [*ONCE[:4], MAY_REPEAT, ACKNOWLEDGED]
"""The same without a transaction."""
AGAIN = Delivered(at=7, message="m", worker="w2")
FAILED = Ended(at=4, message="m", worker="w1", ok=False)
LETTER = DeadLettered(at=5, message="m", worker="w1")
DEAD: list[Event] = [SENT, GIVEN, START, FAILED, LETTER, replace(ACKNOWLEDGED, at=6)]
"""A message that its worker dead-lettered."""
DUPLICATE: list[Event] = [
    AGAIN,
    Started(at=8, message="m", worker="w2", until=30),
    replace(EFFECT, at=9, since=9, worker="w2"),
    Acknowledged(at=10, message="m", worker="w2"),
]
"""A later delivery, which took effect."""
REDRIVEN: list[Event] = [
    Sent(at=7, message="m2", key="k", payload="p"),
    *[replace(event, message="m2") if hasattr(event, "message") else event for event in DUPLICATE],
]
STAYS = Left(at=99, message="m")
ANOTHER_PAYLOAD: list[Event] = [
    Sent(at=6, message="m2", key="k", payload="q"),
    Delivered(at=7, message="m2", worker="w2"),
    Started(at=8, message="m2", worker="w2", until=30),
    Left(at=99, message="m2"),
]


def named(name: str, of: Sequence[Event], later: float = 0.0) -> list[Event]:
    """The same, of another message with another key."""
    told = []
    for event in of:
        names = {field: f"{getattr(event, field)}-{name}" for field in ("message", "key") if hasattr(event, field)}
        since = getattr(event, "since", None)
        times = {"at": event.at + later, **({} if since is None else {"since": since + later})}
        told.append(replace(event, **names, **times))
    return told


def grouped(of: Sequence[Event]) -> list[Event]:
    return [replace(event, group="g") if isinstance(event, Sent) else event for event in of]


def rules(events: Sequence[Event]) -> set[str]:
    return {finding.rule for finding in check(events)}


FIRST, SECOND = grouped(named("1", ONCE)), grouped(named("2", ONCE, later=10))
ANSWER = Answered(at=7, since=1, key="k", payload="p", result="r")
REPLAYED = replace(ANSWER, at=8, since=7.5, replayed=True)

FINE: dict[str, list[Event]] = {
    "it took effect once": [*ONCE, *BALANCES],
    "what it had read has changed, and it runs again": [
        *ONCE[:3],
        replace(END, at=3),
        *(replace(event, at=event.at + 2) for event in ONCE[2:]),
        *BALANCES,
    ],
    "it is a dead letter": DEAD,
    "a late duplicate of a dead letter is done": [*DEAD, *DUPLICATE],
    "the queue moved it": [SENT, GIVEN, START, FAILED, replace(LETTER, worker=None)],
    "it is still in the queue": [SENT, GIVEN, STAYS],
    "a duplicate is acknowledged and does not run": [*ONCE, AGAIN, Acknowledged(at=8, message="m", worker="w2")],
    "nobody knows when it was applied": [*ONCE[:4], replace(EFFECT, at=50, since=2), ACKNOWLEDGED],
    "taken over when the claim had ended": [*ONCE[:3], *(replace(event, at=event.at + 20) for event in DUPLICATE)],
    "it runs again after a failure": [SENT, GIVEN, START, FAILED, *DUPLICATE],
    "without claims it runs beside another and when it is done": [
        *[replace(event, until=None) if isinstance(event, Started) else event for event in ONCE],
        AGAIN,
        Started(at=8, message="m", worker="w2"),
    ],
    "any other effect may be repeated until it is acknowledged": [
        *REPEATABLE[:-1],
        *[replace(event, once=False) if isinstance(event, Effect) else event for event in DUPLICATE],
    ],
    "a paused worker starts late": [
        *ONCE,
        AGAIN,
        Paused(at=7, worker="w2"),
        Started(at=30, message="m", worker="w2", until=29),
    ],
    "a group in order": [*FIRST, *SECOND],
    "a group goes on after a dead letter": [*grouped(named("1", DEAD)), *SECOND],
    "one answer, and replays of it": [*ONCE, ANSWER, REPLAYED],
    "a redriven message is done": [*DEAD, *REDRIVEN],
}

BROKEN: dict[str, tuple[str, list[Event]]] = {
    "it is gone": ("LOST", [SENT, GIVEN, START, FAILED]),
    "it must be done, and is a dead letter": ("LOST", [replace(SENT, must=True), *DEAD[1:]]),
    "it was applied twice": ("DOUBLED", [*ONCE, replace(EFFECT, at=9)]),
    "what may be repeated, when it was done": ("DOUBLED", [*REPEATABLE, replace(MAY_REPEAT, at=9, since=9)]),
    "likewise, and nobody saw by whom": ("DOUBLED", [*REPEATABLE, replace(MAY_REPEAT, at=9, since=9, worker=None)]),
    "likewise, without a claim": (
        "DOUBLED",
        [*REPEATABLE, AGAIN, replace(DUPLICATE[1], until=None), replace(MAY_REPEAT, at=9, since=9, worker="w2")],
    ),
    "two payloads under one key": (
        "DOUBLED",
        [*ONCE, Sent(at=6, message="m2", key="k", payload="q"), replace(EFFECT, at=9, payload="q")],
    ),
    "it moved more": ("WRONG", [replace(e, moves=(("payer", -10),)) if e is EFFECT else e for e in ONCE]),
    "it must not be done": ("WRONG", [replace(SENT, must=False), *ONCE[1:]]),
    "it moved less, and was redriven": (
        "WRONG",
        [*DEAD, *REDRIVEN[:-2], replace(EFFECT, at=9, since=9, worker="w2", moves=())],
    ),
    "its handler failed, and it took effect": ("WRONG", [*ONCE[:3], FAILED, *ONCE[4:]]),
    "its handler failed, and it was acknowledged": ("EARLY", [*ONCE[:3], FAILED, *REPEATABLE[4:]]),
    "acknowledged before it was applied": ("EARLY", [*ONCE, replace(ACKNOWLEDGED, at=4.4)]),
    "acknowledged, and never applied": ("EARLY", [SENT, GIVEN, ACKNOWLEDGED, STAYS]),
    "acknowledged before its letter was there": ("EARLY", [*DEAD, replace(ACKNOWLEDGED, at=4.9)]),
    "acknowledged with a letter that nobody confirmed": (
        "EARLY",
        [*DEAD[:4], replace(LETTER, confirmed=False), *DEAD[5:]],
    ),
    "answered before it was applied": ("EARLY", [*ONCE, replace(ANSWER, at=4.4)]),
    "another result was answered": ("ANSWER", [*ONCE, replace(ANSWER, result="other")]),
    "no result was answered": ("ANSWER", [*ONCE, replace(ANSWER, result=None)]),
    "two results were answered": (
        "ANSWER",
        [replace(e, result=None) if e is EFFECT else e for e in ONCE] + [ANSWER, replace(REPLAYED, result="s")],
    ),
    "had it done before it was asked for": ("ANSWER", [*ONCE, replace(ANSWER, at=8, since=7)]),
    "two had it done": ("ANSWER", [*ONCE, ANSWER, replace(REPLAYED, replayed=False)]),
    "it ran when it was done": ("AGAIN", [*ONCE, *DUPLICATE[:2]]),
    "it ran after it was acknowledged": (
        "AGAIN",
        [*REPEATABLE, *DUPLICATE[:2]],
    ),
    "it ran after it was answered": ("AGAIN", [*REPEATABLE[:-1], ANSWER, *DUPLICATE[:2], STAYS]),
    "another payload ran when its key was done": ("AGAIN", [*ONCE, *ANOTHER_PAYLOAD]),
    "a dead letter of what was done": (
        "BOTH",
        [*ONCE, AGAIN, Started(at=8, message="m", worker="w2"), DeadLettered(at=9, message="m", worker="w2")],
    ),
    "a dead letter of what is done meanwhile": (
        "BOTH",
        [
            *DEAD,
            replace(AGAIN, at=2),
            replace(START, at=3, worker="w2", until=None),
            replace(EFFECT, at=7, worker="w2"),
        ],
    ),
    "its own worker runs it twice at once": ("OVERLAP", [*ONCE[:3], replace(START, at=3), *ONCE[3:]]),
    "two at once": ("OVERLAP", [*ONCE, replace(AGAIN, at=2), replace(START, at=3, worker="w2")]),
    "while a handler runs on after its effect": (
        "OVERLAP",
        [
            *ONCE[:3],
            replace(MAY_REPEAT, at=3, since=3),
            *DUPLICATE[:2],
            replace(END, at=9),
            replace(ACKNOWLEDGED, at=10),
        ],
    ),
    "while a handler runs on after its claim was settled": (
        "OVERLAP",
        [*ONCE[:3], Settled(at=3, key="k", worker="w1"), *DUPLICATE[:2], replace(END, at=9), STAYS],
    ),
    "while a claim is not settled": (
        "OVERLAP",
        [SENT, GIVEN, START, FAILED, AGAIN, DUPLICATE[1], Settled(at=9, key="k", worker="w1"), *DUPLICATE[2:]],
    ),
    "started after its claim": ("LATE", [SENT, GIVEN, replace(START, at=20), *ONCE[3:]]),
    "a group out of order": ("ORDER", [*FIRST, *grouped(named("2", ONCE, later=1))]),
    "a group goes on after a failure": ("ORDER", [*grouped(named("1", DEAD[:4])), *SECOND]),
    "a group goes on after a failure with an effect": (
        "ORDER",
        [*grouped(named("1", [*ONCE[:3], FAILED, MAY_REPEAT, STAYS])), *SECOND],
    ),
    "effects out of order where nobody saw runs": (
        "ORDER",
        [FIRST[0], replace(SECOND[0], at=0), replace(FIRST[4], at=6, since=6), replace(SECOND[4], at=5, since=5)],
    ),
    "money came from nowhere": ("MONEY", [*ONCE, BALANCES[0], replace(BALANCES[1], closing=11)]),
    "money went nowhere": ("MONEY", [*ONCE, BALANCES[0]]),
    "nobody sent it": ("STRANGER", ONCE[1:]),
    "an effect of what nobody sent": ("STRANGER", [*ONCE, Effect(at=3, key="other")]),
    "it took effect in a worker that did not run it": (
        "STRANGER",
        [*ONCE[:4], replace(EFFECT, worker="w2"), ACKNOWLEDGED],
    ),
    "it took effect before it ran": ("STRANGER", [*ONCE, replace(EFFECT, at=1.5, since=1.5)]),
    "it ended and had not started": ("STRANGER", [*ONCE, AGAIN, replace(END, at=8, worker="w2")]),
    "what nobody sent is in the queue": ("STRANGER", [*ONCE, Left(at=99, message="other")]),
    "nobody gave it to this worker": ("STRANGER", [SENT, *ONCE[2:]]),
}


@pytest.mark.parametrize("name", FINE)
def test_what_may_be_is_not_found(name: str) -> None:
    assert check(FINE[name]) == []


@pytest.mark.parametrize("name", BROKEN)
def test_what_must_not_be_is_found_by_its_rule(name: str) -> None:
    rule, events = BROKEN[name]
    assert rule in rules(events)


def test_every_rule_is_broken_by_some_history() -> None:
    written = {
        line.split()[0]
        for line in (checker.__doc__ or "").splitlines()
        if line[:1].isupper() and line.split()[0].isupper()
    }
    assert {rule for rule, _ in BROKEN.values()} == written


@pytest.mark.parametrize("module", [checker, by_key, history])
def test_it_shares_nothing_with_what_it_judges(module: object) -> None:
    """Of this project it imports its own form of history, and beside that the standard library."""
    tree = ast.parse(Path(str(module.__file__)).read_text())  # type: ignore[attr-defined]
    names = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert {name for name in names if name.partition(".")[0] not in sys.stdlib_module_names} <= {
        "harness.history",
        "harness.by_key",
    }
