"""The model of the protocol, in its small worlds; `make model` checks the larger ones."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from tests.model.check import (
    AGAIN,
    CROSSED,
    JAR,
    LEFT_OUT,
    REDRIVEN,
    RENEWED,
    SENDS,
    SETUPS,
    TRANSACTION,
    checked,
    main,
)

pytestmark = pytest.mark.skipif(
    shutil.which("java") is None or not JAR.exists(), reason="no Java or Maven here: the model is not checked"
)


PROMISES = {
    "death": "OneAtATime",
    "reading": "NothingLost",
    "announcing": "NoRunInVain",
    "unsent": "ExactlyOnce",
    "sending": "SentIfCommitted",
    "taking": "OneSender",
    "keeping": "NoneAgain",
    "record": "OneRuns",
    "order": "NothingVanishes",
    "another": "NothingVanishes",
    "open": "NothingVanishes",
}
"""What is broken without a rule, if not `Fenced`."""


@pytest.mark.parametrize(
    "setup",
    [
        TRANSACTION,
        SETUPS["transaction-recovers"],
        replace(RENEWED, failures=1),
        replace(SENDS, failures=0),
        replace(AGAIN, starts=2, crashes=1),
        replace(REDRIVEN, claims=False, starts=2, crashes=1),
        replace(CROSSED, starts=3, crashes=1),
    ],
    ids=["safe", "recovers", "renewed", "sends", "resent again", "resent and redriven", "crossed"],
)
def test_every_promise_holds_in_a_small_world(setup: object) -> None:
    found = checked(setup)  # type: ignore[arg-type]
    assert found.finished, found.printed
    assert found.states > 2_000


@pytest.mark.parametrize("rule", LEFT_OUT)
def test_no_rule_can_be_left_out(rule: str) -> None:
    assert checked(replace(LEFT_OUT[rule], without=rule)).violated == PROMISES.get(rule, "Fenced")


def test_a_name_that_is_no_setup_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claim"]) == 2
    assert "no such setup: claim; there are transaction" in capsys.readouterr().err
