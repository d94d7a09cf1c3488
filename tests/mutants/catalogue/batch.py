"""Bugs of a batch: what runs when, what is flushed, and which outcome follows from what."""

from __future__ import annotations

from tests.mutants.change import always, becomes, before, drop, inside, instead_of, leave_out, never, replace, returns
from tests.mutants.mutant import PROMISES, Mutant, simulated

DEADLINE = simulated("deadline")
ENDINGS = simulated("endings")
KEYS = simulated("keys")
PACE = simulated("pace")
STORE = simulated("store")
SUCCESS = "self._end($ITEM, Completed(cast(Claimed, $ITEM.held).record))"

MUTANTS = {
    # What ends how.
    "acknowledged before it is recorded": Mutant(
        "batch.receiver:_Batch._handled", before("self._complete($ITEM, ...)", SUCCESS), promise=1
    ),
    "acknowledged although it could not be recorded": Mutant(
        "batch.receiver:_Batch._completed", replace("self._end($ITEM, SettleFailed($WHY))", SUCCESS), promise=1
    ),
    "a dead letter is acknowledged unconfirmed": Mutant(
        "batch.receiver:_Batch._buried", always("confirmed"), promise=1
    ),
    "what fails for good is acknowledged although nothing was sent": Mutant(
        "batch.receiver:_Batch._bury",
        replace(
            "self._end($ITEM, $FAILED)", "self._end($ITEM, DeadLettered(failure) if failure.permanent else $FAILED)"
        ),
        promise=1,
    ),
    "another body under the key is mirrored as a success": Mutant(
        "batch.receiver:_Batch._pass_on",
        replace("$OUTCOMES.get($FOLLOWER.claim.fingerprint)", "item.outcome"),
        promise=1,
        where=KEYS,
    ),
    "the second of a key shares the first one's dead letter": Mutant(
        "batch.items:mirrored", inside("DeadLettered", returns("outcome")), promise=1, where=KEYS
    ),
    "a lost claim is a success": Mutant(
        "batch.receiver:_Batch._lost", always(".completed"), promise=1, where=PROMISES + STORE
    ),
    "a commit that raised is taken for done": Mutant(
        "batch.receiver:_Batch._committed",
        inside("Unavailable", replace("self._fail($ITEM, ...)", SUCCESS)),
        promise=1,
        where=STORE,
    ),
    "a failed condition is a success": Mutant(
        "batch.receiver:_Batch._committed",
        inside("ActionFailed", replace("self._fail($ITEM, ...)", SUCCESS)),
        promise=5,
        where=ENDINGS,
    ),
    "a failure that is recorded is acknowledged": Mutant(
        "batch.receiver:_Batch._failed",
        inside("Settled", replace("self._bury($ITEM, ...)", "self._end($ITEM, Completed(answer.record))")),
        promise=1,
        where=(),
    ),
    "the handler's own writes are forgotten": Mutant(
        "batch.receiver:_Batch._complete_with", always("not actions"), promise=5
    ),
    "what never started keeps its claim": Mutant(
        "batch.receiver:_Batch._fail",
        before("transitions.fail", "if not failure.started: self._end(item, Failed(failure, recorded=False)); return"),
        promise=6,
        where=(),
    ),
    "behind a failure what is done comes again": Mutant(
        "batch.receiver:_Batch._claim_answered",
        replace("Duplicate($RECORD)", "NotStarted() if self.order.is_blocked(item) else $0"),
        where=(),
    ),
    "whoever waits for another of its key is never told": Mutant(  # its bound: the invocation's deadline
        "batch.receiver:_Batch._pass_on", never("item.followers", nth=2), where=()
    ),
    "a payload that has failed runs again behind another of its key": Mutant(
        "batch.receiver:_Batch._pass_on", leave_out("item.outcomes"), where=("tests/fuzz/test_found.py",)
    ),
    "every message of a key claims for itself": Mutant(
        "batch.items:Order.__init__", always("$LEADER is $ITEM"), where=()
    ),
    "a claimed message runs although its group has stopped": Mutant(
        "batch.items:Order.advance", never("succeeded"), where=simulated("fifo")
    ),
    # Time.
    "a wall clock that steps forward drops what has run": Mutant(
        "batch.receiver:_Batch._late",
        replace("self.deadline.left_seconds", "self.deadline.left_to_start_seconds"),
        promise=1,
        where=DEADLINE,
    ),
    "a coroutine that hangs is not cancelled": Mutant("batch.receiver:_Batch._turn", drop(".cancel_async"), where=()),
    "an answer leaves beside a handler that runs": Mutant(
        "batch.receiver:_Batch.run", leave_out("self.handling.running == 0"), promise=2, where=()
    ),
    "an interrupt leaves everything as it is": Mutant(
        "batch.receiver:Receiver.process", drop(".abandon"), promise=6, where=()
    ),
    "a coroutine that has waited for its loop starts however late it is": Mutant(
        "batch.runs:Handling._start_coroutine.started",
        never(".out_of_time"),
        promise=2,
        where=("tests/unit/test_executor.py",),
    ),
    "a handler waits for the one before it, however many may run": Mutant(
        "batch.runs:Handling.start", replace("self._concurrency", "1"), where=ENDINGS
    ),
    "transactions are under way without a bound": Mutant("batch.runs:MOST_TRANSACTIONS", becomes("1000"), where=PACE),
    "a transaction takes no time": Mutant(
        "batch.runs:Handling.committed", replace("self.forecast.done($STARTED)", "$STARTED"), where=PACE
    ),
    "the last settlements are not flushed": Mutant(
        "batch.settlements:Settling.due_in_seconds", instead_of("LONGEST_WAIT_SECONDS", "return None"), promise=1
    ),
    "a settlement waits until its request is full": Mutant(
        "batch.settlements:LONGEST_WAIT_SECONDS", becomes("60.0"), where=()
    ),
    # Claims ahead of the handlers.
    "claims run ahead without a bound": Mutant(
        "batch.claims:MOST_CLAIMED_AHEAD", becomes("1000 * WRITES_A_CALL"), where=ENDINGS
    ),
    "claims run ahead of quick handlers without a bound": Mutant(
        "batch.claims:MOST_CLAIMED_AHEAD_OF_QUICK", becomes("12 * WRITES_A_CALL"), where=PACE
    ),
    "nothing is claimed while what is held waits for it": Mutant(
        "batch.claims:Claiming.claim", leave_out("not (idle and $NOTHING_ASKED)"), where=PACE
    ),
    "what is claimed ahead of handlers that turn slow stays claimed": Mutant(
        "batch.receiver:_Batch._turn", drop("._give_back_excess"), where=PACE
    ),
    "what waits for its turn in a group stays claimed ahead of handlers that turn slow": Mutant(
        "batch.receiver:_Batch._give_back_excess", never("Stage.HELD"), where=PACE
    ),
    "what was given back for now never gets its turn": Mutant(
        "batch.receiver:_Batch._released_for_now",
        replace("self.claiming.want($ITEM)", "self._end($ITEM, NotStarted())"),
        where=PACE,
    ),
    "what was given back and taken by another counts as lost": Mutant(
        "batch.receiver:_Batch._released_for_now",
        replace("isinstance($ANSWER, Unavailable)", "not isinstance($ANSWER, Settled)"),
        where=PACE,
    ),
    "nobody looks whether handlers have stalled until one ends": Mutant(
        "batch.receiver:_Batch._timeout_seconds", drop(".stalls_in_seconds"), where=PACE
    ),
    "every pause gives claims back, though there is time": Mutant(
        "batch.receiver:_Batch._give_back_excess", leave_out("not self._stalled() and $IN_TIME"), where=PACE
    ),
    # The forecast.
    "the stop margin is ignored": Mutant("batch.pace:Forecast._needed_seconds", returns("0.0"), where=DEADLINE),
    "the longest run is ignored": Mutant(
        "batch.pace:Forecast._needed_seconds", leave_out("._longest_run_seconds"), where=DEADLINE
    ),
    "handlers count as quick that are not": Mutant(
        "batch.pace:Forecast.soon_done", leave_out("$EXPECTED <= FEW_ROUND_TRIPS_SECONDS"), where=ENDINGS
    ),
    "quick handlers have claims ahead up to the last moment": Mutant(
        "batch.pace:Forecast.soon_done", leave_out("$AT_WORST < self.left_seconds"), where=PACE
    ),
    "a handler that never ends is taken for one that soon will": Mutant(
        "batch.pace:STALL_SECONDS", becomes("60.0"), where=PACE
    ),
    "handlers that were quick before count as quick whatever they do": Mutant(
        "batch.pace:Forecast._expected_seconds", replace("max(self._mean_seconds, $BEFORE)", "$BEFORE"), where=PACE
    ),
    "handlers that have turned slow count as quick again at once": Mutant(
        "batch.pace:Forecast.turn_slow", drop("._turned_slow"), where=PACE
    ),
    "a long quick past outweighs a slow present": Mutant(
        "batch.pace:Forecast.done", replace("min(self._runs, FEW_RUNS)", "self._runs"), where=PACE
    ),
}
