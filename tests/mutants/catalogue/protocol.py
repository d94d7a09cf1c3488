"""Bugs in the rules of a record: what a claim may do, what a write names, and what goes with it."""

from __future__ import annotations

from tests.mutants.change import argument, becomes, before, leave_out, never, replace
from tests.mutants.mutant import EXPLORED, Mutant, simulated, unit

RECORD = unit("protocol/transitions")
TRANSACTION = unit("protocol/transaction")
STORE = simulated("store")

FUNCTION = unit("function/calls")

MUTANTS = {
    "the fingerprint is not compared": Mutant(
        "protocol.transitions:decide", never(".differs"), promise=1, where=simulated("keys")
    ),
    "a lease is over a moment too early": Mutant(
        "protocol.transitions:decide",
        replace("now_ms < $SEEN.lease_until_ms", "now_ms < $SEEN.lease_until_ms - 1"),
        promise=2,
        where=RECORD,
    ),
    "Powertools' live lease is not respected": Mutant(
        "protocol.transitions:decide",
        replace("now_ms < $SEEN.lease_until_ms", "$SEEN.version and $0"),
        promise=2,
        where=unit("powertools"),
    ),
    "a completed record may be claimed": Mutant(
        "protocol.transitions:decide",
        replace("$SEEN.status == Status.COMPLETED", "$0 and $SEEN.version in wrote"),
        promise=3,
    ),
    "an expired record is honoured": Mutant("protocol.transitions:decide", leave_out(".expired"), promise=3),
    "what is unreadable is overwritten": Mutant(
        "protocol.transitions:decide", never("Status.__members__"), promise=3, where=STORE
    ),
    "one's own version is not recognised": Mutant(
        "protocol.transitions:decide", never("$SEEN.version in wrote"), promise=4, where=STORE
    ),
    "a failure is an answer to a queue": Mutant(
        "protocol.transitions:decide", leave_out(".failures_are_answers"), where=()
    ),
    "Powertools' fingerprint is taken for ours": Mutant(
        "protocol.record:Record.differs", replace("self.version is None and $MD5", "False"), where=unit("powertools")
    ),
    "a claim's version is its owner": Mutant(
        "protocol.transitions:Claim.change", argument("version", "self.owner"), promise=4, where=()
    ),
    # Settling.
    "the retention is not renewed": Mutant(
        "protocol.transitions:Settlement.change",
        argument("expiration", "self.held.expiration"),
        promise=3,
        where=RECORD,
    ),
    "a settlement replaces whatever is there": Mutant(
        "protocol.transitions:Settlement.step",
        replace("ClaimLost(seen)", "Change(self.change(now_ms, version).new, seen)"),
        promise=4,
    ),
    "a record that has vanished is settled all the same": Mutant(
        "protocol.transitions:Settlement.step",
        replace("unchanged(seen, $STANDING)", "seen is None or $0"),
        promise=4,
        where=RECORD,
    ),
    "a settlement brings back what was deleted": Mutant(
        "protocol.transitions:Settlement.step",
        before("unchanged", "if seen is None: return self._replace(standing=None).change(now_ms, version)"),
        promise=4,
        where=EXPLORED,
    ),
    "one's own settlement is not recognised": Mutant(
        "protocol.transitions:Settlement.step", never("$SEEN.version in wrote"), promise=4, where=()
    ),
    "a transaction is drawn anew each time it is sent": Mutant(
        "protocol.exchange:Operation.advance",
        never("self.drawn is not None"),
        promise=5,
        where=unit("protocol/exchange"),
    ),
    "a release keeps the lease": Mutant(
        "protocol.transitions:release",
        argument("in_progress_expiration", "held.record.in_progress_expiration"),
        promise=6,
        where=simulated("deadline"),
    ),
    "a release forgets the payload of an earlier attempt": Mutant(
        "protocol.transitions:_without_attempt", argument("validation", "None"), where=RECORD
    ),
    "a release counts as a run": Mutant(
        "protocol.transitions:_without_attempt", replace("max(0, $BEFORE - 1)", "$BEFORE"), where=simulated("deadline")
    ),
    "a conclusion overwrites a failure": Mutant(
        "protocol.long_runs:Conclusion._open",
        replace("$SAID and $SEEN.version == self.revises", "True"),
        promise=3,
        where=RECORD,
    ),
    "an outcome is written into a record that another execution has": Mutant(
        "protocol.long_runs:Conclusion._open", leave_out(".execution in $OURS"), promise=3, where=RECORD
    ),
    # The record.
    "a take-over without compare-and-swap": Mutant(
        "protocol.record:Change.expected",
        replace("{'version': $SEEN.version}", "{'status': $SEEN.status}"),
        promise=2,
        where=STORE,
    ),
    "a settlement names no version": Mutant(
        "protocol.record:Change.expected", replace("{'version': $SEEN.version}", "{'id': $SEEN.id}"), promise=4
    ),
    "an insert over what is there": Mutant(
        "protocol.record:Change.expected", replace("{'id': None}", "{}"), promise=3, where=()
    ),
    "a record expires before its lease": Mutant(
        "protocol.transitions:expiration_of", replace("max($A, $B)", "$A"), promise=2, where=RECORD + FUNCTION
    ),
    "an expiration in milliseconds where seconds are meant": Mutant(
        "protocol.transitions:expiration_of", replace("-(-$MS // 1000)", "$MS"), promise=3
    ),
    "an orphan waits for its record's expiration": Mutant(
        "protocol.record:Record.lease_until_ms", never(".in_progress_expiration"), promise=6
    ),
    # The store's limits, and ids.
    "a request takes 26 statements": Mutant("protocol.store:WRITES_A_CALL", becomes("26"), where=()),
    "a request takes five statements": Mutant("protocol.store:WRITES_A_CALL", becomes("5"), where=()),
    "a store without a namespace takes a key with a number sign": Mutant(
        "protocol.record:record_id", never("'#'"), promise=1, where=unit("sqs/consumer")
    ),
    "a namespace is left out of the id": Mutant(
        "protocol.record:record_id", replace("f'{$NAME}#{key}'", "key"), promise=1, where=()
    ),
    "a namespace may have a number sign": Mutant(
        "protocol.namespaces:checked", never("'#'"), promise=1, where=unit("sqs/consumer")
    ),
    "the second function of a namespace is let in": Mutant(
        "protocol.namespaces:take", never("source is None"), promise=1, where=unit("protocol/namespaces")
    ),
    "a named store has its first one's namespace": Mutant(
        "protocol.namespaces:joined",
        replace("f'{$FIRST}.{$OWN}'", "$FIRST"),
        promise=1,
        where=unit("protocol/namespaces"),
    ),
    # Transactions.
    "a transaction keeps the caller's dicts": Mutant(
        "protocol.transaction:_copied",
        replace("plain_copy($VALUE, $PLACE)", "($0, $VALUE)[1]"),
        promise=5,
        where=TRANSACTION,
    ),
    "what is added after the handler has returned is lost in silence": Mutant(
        "protocol.transaction:Transaction._add", never("._sealed"), promise=5, where=unit("handler/attempt")
    ),
    "a hundred actions beside the record's own": Mutant(
        "protocol.transaction:MOST_ACTIONS", becomes("100"), promise=5, where=()
    ),
    "a copy shares what a list holds": Mutant(
        "protocol.transaction:plain_copy",
        replace("[plain_copy($HELD, ...) for $I, $HELD in enumerate($LIST)]", "list($LIST)"),
        promise=5,
        where=TRANSACTION,
    ),
}
