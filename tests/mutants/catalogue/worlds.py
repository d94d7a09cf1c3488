"""Bugs that show only in worlds that nobody had chosen: functions with habits, redrives, a bucket that fails."""

from __future__ import annotations

from tests.mutants.change import inside, instead_of, replace
from tests.mutants.mutant import Mutant

WORLDS = ("tests/simulation/test_worlds.py",)

MUTANTS = {
    "a result is serialised when the next run may have begun": Mutant(
        "batch.runs:Runs._handled",
        replace("handled.data", "__import__('idempotent_receiver').handler.attempt.serialised(handled.result)", nth=0),
        promise=3,
        where=WORLDS,
    ),
    "a handler is lent our own attributes": Mutant(
        "sqs.binding:_lent", replace("dict($ATTRIBUTES)", "$ATTRIBUTES"), where=WORLDS
    ),
    "what a coroutine was cancelled in is a result": Mutant(
        "handler.attempt:run_async",
        instead_of("return Raised($FAILURE, $ERROR)", "return Returned(None, attempt.seal(), None)"),
        promise=5,
        where=WORLDS,
    ),
    "what the bucket refused is taken to be there": Mutant(
        "handler.results:kept",
        inside("Exception", instead_of("dropped", "return marker({'result': 's3', 'bucket': 'b', 'key': 'lost'})")),
        where=WORLDS,
    ),
    "a redriven message counts under its new id": Mutant(
        "sqs.keys:message_id", replace("$STAMP is None", "True"), promise=3, where=WORLDS
    ),
    "a claim inside a claim has a lease of its own": Mutant(
        "function:_Wrapped._call",
        replace("$OUTER.deadline", "Deadline.after(self.calls.clock, 100)"),
        promise=2,
        where=WORLDS,
    ),
    "the wall clock alone says what may start": Mutant(
        "clock:Deadline.moment", replace("min($LEFT, $BY_WALL)", "$BY_WALL"), promise=2, where=WORLDS
    ),
    "an unusable key does not stop its group": Mutant(
        "sqs.keys:ClaimTerms.work",
        instead_of("_no_key($WHY)", "return Work(key='', claim=_no_key($WHY), handle=_never)"),
        where=WORLDS,
    ),
}
