"""Bugs of a batch: what runs when, what is flushed, and which outcome follows from what."""

from __future__ import annotations

from tests.mutants.change import always, becomes, before, drop, inside, instead_of, leave_out, never, replace, returns
from tests.mutants.mutant import PROMISES, Mutant, simulated, unit


def answer_is_success(kind: str) -> str:
    """What takes an answer of this kind for a success, wherever `self`, `item` and `answer` are at hand."""
    success = "self._happens(item, Event.SETTLED, outcome.Completed(item.claimed.record))"
    return f"if isinstance(answer, {kind}): {success}; return"


AHEAD = simulated("ahead")
DEADLINE = simulated("deadline")
ENDINGS = simulated("endings")
KEYS = simulated("keys")
STORE = simulated("store")

MUTANTS = {
    # What a store's answer means.
    "acknowledged before it is recorded": Mutant(
        "batch.settlements:Settlements._complete",
        instead_of(
            "self._add($ITEM, $SETTLEMENT, self._completed)",
            "self._add($ITEM, $SETTLEMENT, lambda item, answer: None);"
            " self._completed($ITEM, Settled($ITEM.claimed.record))",
        ),
        promise=1,
    ),
    "an answer that comes after the batch's own changes an outcome": Mutant(
        "batch.progress:Progress.happens",
        never("self._answered"),
        promise=1,
        where=("tests/unit/batch/test_progress.py",),
    ),
    "acknowledged although it could not be recorded": Mutant(
        "batch.settlements:Settlements._completed",
        replace(
            "outcome.of_completion($ANSWER, ...)",
            "outcome.Completed(item.claimed.record) if isinstance($ANSWER, Unavailable) else $0",
        ),
        promise=1,
    ),
    "a lost claim is a success": Mutant(
        "handler.outcome:of_loss",
        instead_of("return lost if $WRITTEN else $FAILED", "return Duplicate(lost.found, lost=True)"),
        promise=1,
        where=PROMISES + STORE,
    ),
    "a commit that raised is taken for done": Mutant(
        "batch.settlements:Settlements._committed",
        before("outcome.uncommitted", answer_is_success("Unavailable")),
        promise=1,
        where=STORE,
    ),
    "a failed condition is a success": Mutant(
        "batch.settlements:Settlements._committed",
        before("outcome.uncommitted", answer_is_success("ActionFailed")),
        promise=5,
        where=ENDINGS,
    ),
    "a failure that is recorded is acknowledged": Mutant(
        "batch.settlements:Settlements._failed",
        before("isinstance(answer, Settled)", answer_is_success("Settled")),
        promise=1,
        where=(),
    ),
    "behind a failure what is done comes again": Mutant(
        "batch.exchanges:Claims._answer",
        replace(
            "outcome.as_outcome(outcome.of_claim($ANSWER))",
            "$0 if self._progress.may_start(item) or not isinstance($ANSWER, outcome.transitions.AlreadyCompleted)"
            " else outcome.NotStarted()",
        ),
        where=(),
    ),
    # What is done.
    "the handler's own writes are forgotten": Mutant(
        "batch.settlements:Settlements._complete", never("$ITEM.actions"), promise=5
    ),
    "what never started keeps its claim": Mutant(
        "batch.settlements:Settlements._fail",
        before(
            "transitions.fail",
            "if not item.failure.started:"
            " self._happens(item, Event.SETTLED, outcome.Failed(item.failure, recorded=False)); return",
        ),
        promise=6,
        where=(),
    ),
    "a dead letter is acknowledged unconfirmed": Mutant(
        "batch.receiver:DeadLetters._sent", always("confirmed"), promise=1
    ),
    "what fails for good is acknowledged although nothing was sent": Mutant(
        "batch.progress:Progress.not_sent",
        replace("Failed($FAILURE, ...)", "DeadLettered($FAILURE) if $FAILURE.permanent else $0"),
        promise=1,
    ),
    # Who waits for whom.
    "another body under the key is mirrored as a success": Mutant(
        "batch.progress:Order._shared",
        replace("$OUTCOMES.get($FOLLOWER.claim.fingerprint)", "ended.outcome"),
        promise=1,
        where=KEYS,
    ),
    "the second of a key shares the first one's dead letter": Mutant(
        "batch.progress:_mirrored", inside("DeadLettered", returns("outcome")), promise=1, where=KEYS
    ),
    "whoever waits for another of its key is never told": Mutant(  # its bound: the invocation's deadline
        "batch.progress:Order.consequences", never("$ENDED.followers"), where=()
    ),
    "a payload that has failed runs again behind another of its key": Mutant(
        "batch.progress:Order._shared", leave_out("ended.outcomes"), where=("tests/fuzz/test_found.py",)
    ),
    "every message of a key claims for itself": Mutant(
        "batch.progress:Order.__init__", replace("$LEADERS.setdefault($ITEM.claim.id, $ITEM)", "$ITEM"), where=()
    ),
    "a claimed message runs although its group has stopped": Mutant(
        "batch.progress:Order._passed_on", never("not isinstance($OUTCOME, SUCCEEDED)"), where=simulated("fifo")
    ),
    # Time.
    "a wall clock that steps forward drops what has run": Mutant(
        "batch.receiver:Batch._late",
        replace("$NOW.left_seconds", "$NOW.left_to_start_seconds"),
        promise=1,
        where=DEADLINE,
    ),
    "a coroutine that hangs is not cancelled": Mutant("batch.receiver:Batch._step", drop(".cancel_async"), where=()),
    "an answer leaves beside a handler that runs": Mutant(
        "batch.receiver:Batch.run", leave_out(".running > 0"), promise=2, where=()
    ),
    "an interrupt leaves everything as it is": Mutant("batch.receiver:receive", drop(".abandon"), promise=6, where=()),
    "a coroutine that has waited for its loop starts however late it is": Mutant(
        "batch.runs:Runs._start_coroutine.started", never("self._stopped"), promise=2, where=unit("batch/executor")
    ),
    "a handler waits for the one before it, however many may run": Mutant(
        "batch.runs:Runs.start", replace("self._settings.concurrency", "1"), where=ENDINGS
    ),
    "transactions are under way without a bound": Mutant(
        "batch.runs:MOST_UNCOMMITTED", becomes("100_000"), where=AHEAD
    ),
    "the stop margin is ignored": Mutant(
        "batch.runs:Runs.__init__",
        instead_of("self.needed_seconds = $MARGIN", "self.needed_seconds = 0.0"),
        where=DEADLINE,
    ),
    "the longest run is ignored": Mutant("batch.runs:Runs._note", drop("max"), where=DEADLINE),
    "claims run ahead without a bound": Mutant(
        "batch.exchanges:MOST_CLAIMED_AHEAD", becomes("1000 * WRITES_A_CALL"), where=AHEAD
    ),
    "nothing is claimed while what is held waits for it": Mutant(
        "batch.exchanges:Claims._ask",
        replace("self._claim([$ITEM])", "self.line_up($ITEM)"),
        where=KEYS + AHEAD,
    ),
    "the last settlements are not flushed": Mutant(
        "batch.settlements:Line.flush", replace("hurry or $OVERDUE or $FULL", "$FULL"), promise=1
    ),
    "a settlement waits until its request is full": Mutant(
        "batch.settlements:LONGEST_WAIT_SECONDS", becomes("60.0"), where=()
    ),
}
