"""Bugs on the operator's side."""

from __future__ import annotations

from tests.mutants.change import always, argument, drop, instead_of, leave_out, never, replace
from tests.mutants.mutant import Mutant, unit

REDRIVE = unit("redrive")
VERDICT = unit("verdict")

MUTANTS = {
    "a table in two regions is as good as one": Mutant(
        "operations.doctor:global_table", never("'MultiRegionConsistency'"), promise=2, where=()
    ),
    "a letter is deleted although SQS refused its copy": Mutant(
        "operations.redrive:Redrive._send",
        replace("[$HELD[$PLACE] for $EACH in $ANSWER.get('Successful', $NONE)]", "list($HELD)"),
        promise=1,
        where=REDRIVE,
    ),
    "what was looked at stays hidden": Mutant("operations.redrive:Redrive.close", drop(".give_back"), where=REDRIVE),
    "a refused deletion is counted as deleted once a neighbour's succeeds": Mutant(
        "operations.letters:DeadLetterQueue.delete",
        instead_of("$FAILED |= $REFUSED", "$FAILED = $REFUSED"),
        promise=1,
        where=REDRIVE,
    ),
    "the second return within five minutes is swallowed": Mutant(
        "operations.letters:Letter.deduplication_id", replace("self.id", "self.message.key"), promise=1, where=REDRIVE
    ),
    "a letter comes back under a new key": Mutant(
        "operations.letters:Letter.returning", argument("key", "self.id"), promise=3, where=REDRIVE
    ),
    "an age is counted from the last send": Mutant(
        "operations.letters:_since_ms", always("stamp is None"), promise=3, where=VERDICT
    ),
    "a letter is dropped as done though nobody knows whose it was": Mutant(
        "operations.verdict:_completed", leave_out("letter.source is None"), promise=1, where=VERDICT
    ),
    "a letter of another queue is brought here": Mutant(
        "operations.verdict:_judge", never(".queue_arn"), promise=1, where=VERDICT
    ),
}
