"""Bugs of one run: how it ends, what becomes of its result, and how a single call claims and settles."""

from __future__ import annotations

from tests.mutants.change import always, argument, before, drop, inside, instead_of, never, replace
from tests.mutants.mutant import Mutant, simulated, unit

ATTEMPT = unit("attempt")
CALLS = unit("function", "http")
ENDINGS = simulated("endings")
FUNCTION = unit("function")
HTTP = unit("http")
RESULTS = unit("results")

MUTANTS = {
    "`Exception` around a handler, where `BaseException` is meant": Mutant(
        "handler.attempt:run", replace("BaseException", "Exception"), where=ATTEMPT
    ),
    "a nested claim stays the current one": Mutant("handler.attempt:run", drop(".reset"), where=()),
    "a coroutine that nobody awaited is a result": Mutant(
        "handler.attempt:run_async", replace("_finished($RESULT)", "$RESULT"), promise=5, where=ENDINGS
    ),
    "what the handler returned is serialised before its transaction is sealed": Mutant(
        "handler.attempt:_returned", before(".seal", "serialised(result)"), promise=5, where=ATTEMPT
    ),
    "a result that cannot be kept is a failure": Mutant(
        "handler.attempt:serialised", instead_of("dropped", "raise"), promise=3, where=ENDINGS
    ),
    "a large result is written over another claim's": Mutant(
        "handler.results:kept", replace("$HELD.record.version", "'result'"), promise=4, where=RESULTS
    ),
    "a bucket's trouble undoes the effect": Mutant(
        "handler.results:kept", replace("Exception", "KeyError"), promise=3, where=RESULTS
    ),
    "a result is read from wherever a record says": Mutant(
        "handler.results:S3Results.get", never("self.bucket"), where=RESULTS
    ),
    # Single calls.
    "a call in progress elsewhere runs as well": Mutant(
        "handler.single_call:Call._claimed",
        inside(
            "HeldElsewhere",
            instead_of(
                "return $ANSWER",
                "return $ANSWER if not isinstance($ANSWER, HeldElsewhere) else"
                " Attempt(self._claim.id, self._key, 1, self._deadline, self._claim.owner)",
            ),
        ),
        promise=2,
        where=CALLS,
    ),
    "a call's lease ends before its invocation": Mutant(
        "handler.single_call:Call.__init__", argument("lease_until_ms", "self._deadline.now_ms"), promise=2, where=CALLS
    ),
    "a claim that came too late is kept": Mutant(
        "handler.single_call:Call._claimed", drop(".release"), promise=6, where=FUNCTION
    ),
    "a caller that is cancelled while it claims keeps its claim": Mutant(
        "handler.single_call:Call.give_back", drop(".release"), promise=6, where=FUNCTION
    ),
    "a wait has no end": Mutant(
        "handler.single_call:Call._waited",
        replace("$LEFT <= 0 or self.too_late", "$LEFT <= -600 or ($LEFT := max($LEFT, 1)) < 0"),
        where=HTTP,
    ),
    "a transaction is committed with an answer that is not final": Mutant(
        "handler.single_call:Call.settle", always("keep"), promise=5, where=HTTP
    ),
    "an answer is given that was not recorded": Mutant(
        "handler.single_call:Call._complete",
        replace("SettleFailed($WHY)", "Completed(held.record)"),
        promise=3,
        where=CALLS,
    ),
    "a call's transaction is left out of its completion": Mutant(
        "handler.single_call:Call._complete", never("actions", nth=1), promise=5, where=FUNCTION
    ),
    "a passing failure is answered for ever": Mutant(
        "handler.single_call:Call._again", always(".failures_are_answers"), promise=1, where=HTTP
    ),
}
