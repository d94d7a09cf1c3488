"""Bugs of consumers that claim nothing: what they read first, what they replace, and what they leave unasked."""

from __future__ import annotations

from tests.mutants.change import argument, before, drop, leave_out, never, replace
from tests.mutants.mutant import Mutant, simulated, unit

UNCLAIMED = simulated("unclaimed")
WITHOUT_CLAIMS = unit("batch/without_claims")

MEETS = (
    "not isinstance(step, Change) and self.actions and self.seen is not None and self.seen.version not in self.wrote"
)
OVER_IT = (
    "step = self.transition.change(now_ms, version)._replace(seen=self.seen); self.drawn = None; self.contended = True"
)

MUTANTS = {
    "what was delivered before is not read where nothing is claimed": Mutant(
        "batch.exchanges:Claims.line_up",
        before(
            "$LINE = self.unread if $DOUBT else $OTHER",
            "if not self._claiming and isinstance(item.assumed, Unread) and not self.unclaimed: item.assumed = None",
        ),
        promise=3,
        where=WITHOUT_CLAIMS,
    ),
    "without a claim a commit replaces whatever it meets": Mutant(
        "protocol.exchange:Operation.advance",
        before("isinstance($STEP, Change)", f"if {MEETS}: {OVER_IT}"),
        promise=5,
        where=WITHOUT_CLAIMS,
    ),
    "a failure that was not read is replaced": Mutant(
        "protocol.exchange:Operation.advance",
        before("isinstance($STEP, Change)", f"if {MEETS} and self.seen.status == 'FAILED': {OVER_IT}"),
        promise=1,
        where=WITHOUT_CLAIMS,
    ),
    "the failure of a run without a claim overwrites what another has completed": Mutant(
        "protocol.transitions:Settlement.step",
        replace(
            "ClaimLost(seen)",
            "Change(self.change(now_ms, version).new, seen)"
            " if seen is not None and self.outcome['status'] == 'FAILED' and self.held is not self.standing else $0",
        ),
        promise=3,
        where=WITHOUT_CLAIMS,
    ),
    "an empty transaction is recorded nowhere": Mutant(
        "batch.settlements:Settlements._complete",
        before(
            "transitions.complete",
            "if not item.actions and not item.claimed.written:"
            " self._completed(item, Settled(item.claimed.record)); return",
        ),
        promise=1,
        where=WITHOUT_CLAIMS,
    ),
    "what was never claimed is released in the table": Mutant(
        "batch.settlements:Settlements._release", never("not item.claimed.written"), where=WITHOUT_CLAIMS
    ),
    "something starts after a commit that the store did not answer": Mutant(
        "batch.settlements:Settlements._answered", drop("self._progress.unreachable = $WHY"), where=WITHOUT_CLAIMS
    ),
    "one commit's own affair stops the batch": Mutant(
        "batch.settlements:_unreachable", leave_out("$ONE.own"), where=unit("sqs/effects")
    ),
    "two transactions on one item leave at once": Mutant(
        "batch.settlements:Turns.enter", never("$ITEM in self._waiting"), promise=5, where=WITHOUT_CLAIMS
    ),
    "a large result is named after another version than its record has": Mutant(
        "protocol.transitions:Settlement.step", replace("self.version or version", "version"), where=WITHOUT_CLAIMS
    ),
    "without a claim every attempt is the first": Mutant(
        "protocol.transitions:Claim.unwritten",
        replace("self.change(seen, $NOW, $VERSION)", "self.change(None, $NOW, $VERSION)"),
        where=WITHOUT_CLAIMS,
    ),
    "what is done by another is dead-lettered": Mutant(
        "batch.settlements:Settlements._failed", leave_out("item.recorded"), promise=1, where=UNCLAIMED
    ),
    "what turns out to be free in an outage is visible again at once": Mutant(
        "batch.exchanges:Claims._answer",
        replace("self._progress.unstarted()", "outcome.NotStarted()"),
        where=UNCLAIMED,
    ),
    "without a claim committing is as patient as with one": Mutant(
        "batch.settlements:Settlements._send",
        replace("$MOST if self._settings.claiming else $FEWER", "$MOST"),
        where=WITHOUT_CLAIMS,
    ),
    "a run that nothing had claimed has lost a claim": Mutant(
        "handler.outcome:of_loss", replace("$HELD.written", "True", nth=1), where=unit("telemetry")
    ),
    "a run that nothing had claimed has lost a claim to a failure": Mutant(
        "handler.outcome:of_loss",
        replace("$LOST if $HELD.written else $FAILED", "$LOST"),
        where=unit("telemetry"),
    ),
    "a consumer claims whatever its effects are": Mutant(
        "sqs.consumer:sqs_consumer.wrap", argument("claiming", "True"), where=WITHOUT_CLAIMS
    ),
    "a function without a transaction may do without claims": Mutant(
        "sqs.consumer:sqs_consumer.wrap",
        never("effects == 'transaction'"),
        promise=2,
        where=unit("sqs/effects"),
    ),
    "a conflict counts as an error of the store": Mutant(
        "protocol.exchange:Operation.count_round", leave_out("not self.contended"), where=unit("protocol/exchange")
    ),
}
