"""Bugs of single calls, which functions and HTTP requests are: how one claims, waits and settles."""

from __future__ import annotations

from tests.mutants.change import always, argument, drop, replace
from tests.mutants.mutant import Mutant, unit

FUNCTION = unit("function/calls", "function/transactions", "function/deadlines")
HTTP = unit("http/endpoint")
CALLS = FUNCTION + HTTP

MUTANTS = {
    "a call in progress elsewhere runs as well": Mutant(
        "calls:Call.claim",
        replace(
            "outcome.of_claim($ANSWER)",
            "Attempt(self._claim.id, self.key, 1, self.deadline, self._claim.owner)"
            " if isinstance($ANSWER, HeldElsewhere) else $0",
        ),
        promise=2,
        where=CALLS,
    ),
    "a call's lease ends before its invocation": Mutant(
        "calls:Call.__init__", argument("lease_until_ms", "self.deadline.now_ms"), promise=2, where=CALLS
    ),
    "a claim that came too late is kept": Mutant("calls:Call.claim", drop("self._settle"), promise=6, where=FUNCTION),
    "a caller that is cancelled while it claims keeps its claim": Mutant(
        "calls:Call.release", drop("transitions.release"), promise=6, where=FUNCTION
    ),
    "a wait has no end": Mutant(  # its bound: ten minutes of the test's clock
        "calls:Call._waited",
        replace("$LEFT <= 0 or self.too_late()", "$LEFT <= -600 or ($LEFT := max($LEFT, 1)) < 0"),
        where=HTTP,
    ),
    "a transaction is committed with an answer that is not final": Mutant(
        "calls:Call.settle", always("keep"), promise=5, where=HTTP
    ),
    "an answer is given that was not recorded": Mutant(
        "handler.outcome:of_completion",
        replace("SettleFailed($WHY)", "Completed(None)"),
        promise=3,
        where=CALLS,
    ),
    "a call's transaction is left out of its completion": Mutant(
        "calls:Call._complete", always("not $ACTIONS"), promise=5, where=FUNCTION
    ),
    "a passing failure is answered for ever": Mutant(
        "calls:Call._allow_retry",
        always("not self._calls.failures_are_answers"),
        promise=1,
        where=HTTP,
    ),
}
