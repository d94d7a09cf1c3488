"""Bugs on the operator's side."""

from __future__ import annotations

from tests.mutants.change import always, argument, drop, instead_of, leave_out, never, replace
from tests.mutants.mutant import Mutant, unit

CLI = unit("operations/cli/dlq_plans")
ENDS = unit("operations/dead_letters/ends")
HISTORY = unit("operations/dead_letters/history")
PAGE = unit("operations/cli/dlq_page")
PAUSE = unit("operations/cli/pause", "operations/mappings")
REDRIVE = unit(
    *(f"operations/dead_letters/{name}" for name in ("redrive", "crashes", "selection", "queue", "following"))
)
TRACE = unit("operations/cli/dlq_history", "operations/cli/trace")
TRIAGE = unit("operations/dead_letters/triage")

MUTANTS = {
    "a table in two regions is as good as one": Mutant(
        "operations.doctor.checks:global_table", never("'MultiRegionConsistency'"), promise=2, where=()
    ),
    "a dead letter is deleted although SQS refused its copy": Mutant(
        "operations.dead_letters.ends:_send",
        never("$PLACE not in $SENT"),
        promise=1,
        where=REDRIVE,
    ),
    "an act on a dead letter is done though the history does not have it": Mutant(
        "operations.dead_letters.run:Run._wave",
        replace("self.journal.begin($END.verb, $HELD, $END.detail)", "[]"),
        promise=1,
        where=REDRIVE,
    ),
    "a record of the failure before the redrive counts as a new failure": Mutant(
        "operations.dead_letters.following:fate", leave_out("$FOUND.version != $BEFORE.version"), where=REDRIVE
    ),
    "a text on a page ends the page's data": Mutant(
        "operations.page:html_of", replace("'\\\\u003c'", "'<'"), where=PAGE
    ),
    "a page of dead letters has their bodies unasked": Mutant(
        "operations.cli.dlq_page:_letter", never("not $BODIES", nth=1), where=PAGE
    ),
    "a failure from before a move is told as what became of it": Mutant(
        "operations.dead_letters.following:became", never("$WRITTEN is None"), where=PAGE
    ),
    "a refused deletion is counted as deleted once a neighbour's succeeds": Mutant(
        "operations.dead_letters.queue:DeadLetterQueue._delete",
        instead_of("$FAILED |= $REFUSED", "$FAILED = $REFUSED"),
        promise=1,
        where=REDRIVE,
    ),
    "what was looked at stays hidden": Mutant(
        "operations.dead_letters.session:Session.__exit__", drop("self.queue.release"), where=REDRIVE
    ),
    "the second return within five minutes is swallowed": Mutant(
        "operations.dead_letters.dead_letter:DeadLetter.copy", replace("self.id", "self.key"), promise=1, where=REDRIVE
    ),
    "a dead letter comes back under a new key": Mutant(
        "operations.dead_letters.dead_letter:DeadLetter.returning",
        argument("key", "self.id"),
        promise=3,
        where=REDRIVE,
    ),
    "a dead letter that was archived and restored is resent under another key": Mutant(
        "operations.dead_letters.dead_letter:DeadLetter.edited",
        replace("self.staying.original_id", "self.id"),
        promise=3,
        where=ENDS,
    ),
    "a group comes back from the archive in the order of its objects' names": Mutant(
        "operations.dead_letters.archive:Archive.take",
        replace("sorted($TAKEN, key=$KEY)", "$TAKEN"),
        where=ENDS,
    ),
    "to count what is archived takes it away": Mutant(
        "operations.dead_letters.archive:Archive.unseen", drop("self._names = iter($LEFT)"), where=ENDS
    ),
    "a dead letter is deleted before it is in the archive": Mutant(
        "operations.dead_letters.archive:Archive.put", drop("self.s3.put_object"), promise=1, where=ENDS
    ),
    "an age is counted from the last send": Mutant(
        "operations.dead_letters.dead_letter:_since_ms", always("stamp is None"), promise=3, where=TRIAGE
    ),
    "a deployment makes another group of what fails as before": Mutant(
        "operations.dead_letters.cause:_of_error", replace("at.partition(':')[0]", "at"), where=TRIAGE
    ),
    "a plan from which everything was taken out moves everything": Mutant(
        "operations.dead_letters.selection:Selection.of_plan",
        replace(
            "cls(planned=$LETTERS, limit=len($LETTERS))",
            "cls(planned=$LETTERS or None, limit=len($LETTERS) or None)",
        ),
        where=REDRIVE,
    ),
    "what has changed since it was planned for is moved all the same": Mutant(
        "operations.dead_letters.selection:Planned.changed",
        never("$NOW.verdict is not self.verdict"),
        promise=3,
        where=REDRIVE,
    ),
    "a plan for another queue is carried out": Mutant(
        "operations.cli.dlq_options:saved_plan", never("($QUEUE, $DEAD) != $OURS"), where=CLI
    ),
    "a plan that was reviewed is written over": Mutant(
        "operations.dead_letters.selection:SavedPlan.write", replace("'xb'", "'wb'"), where=CLI
    ),
    "a dead letter of another queue is brought here": Mutant(
        "operations.dead_letters.triage:_verdict", never(".queue_arn"), promise=1, where=TRIAGE
    ),
    "an act is not in the history while it is done": Mutant(
        "operations.dead_letters.history:History.begin", drop("self._write"), where=HISTORY
    ),
    "two acts of one moment on one key are one": Mutant(
        "operations.dead_letters.history:History.begin", replace("f'{$AT}-{$RANDOM}'", "$AT"), where=HISTORY
    ),
    "what AWS did not answer counts as over": Mutant(
        "operations.dead_letters.history:Act.may_have_happened",
        replace("(None, Outcome.UNCONFIRMED)", "(None,)"),
        where=TRACE,
    ),
    "dead letters that were looked at for a trace stay hidden": Mutant(
        "operations.cli.trace:Story.dead_letters", drop("$QUEUE.release"), where=TRACE
    ),
    "a pause counts as done while Lambda still reads the queue": Mutant(
        "operations.mappings:switch", replace("set($STATES.values()) <= {$STATE}", "True"), where=PAUSE
    ),
    "the functions of others are paused too": Mutant(
        "operations.cli.pause:_chosen", replace("$EACH.invokes($MEANT)", "True"), where=PAUSE
    ),
    "a pause that is asked for again is asked about again": Mutant(
        "operations.cli.pause:_switch",
        never("all($EACH.state == $STATE for $EACH in $CHOSEN)"),
        where=PAUSE,
    ),
}
