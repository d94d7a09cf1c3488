"""Bugs of the worker outside Lambda: leases that are renewed, death before they end, and what the dead have left."""

from __future__ import annotations

from tests.mutants.change import both, drop, instead_of, replace
from tests.mutants.mutant import Mutant, unit

IN_FLIGHT = unit("worker/in_flight")
LEASES = unit("worker/leases")
PROCESS = unit("worker/process")
SUPERVISOR = unit("worker/supervisor")

MUTANTS = {
    # Renewals beside settlements.
    "a renewal's version is announced after its answer": Mutant(
        "worker.leases:_Announcing.replace",
        both(
            drop("self._renewed[$ID].add($VERSION)"),
            instead_of(
                "return $ANSWERS",
                "answers = $ANSWERS; [self._renewed[one.new.id].add(str(one.new.version)) for one in changes];"
                " return answers",
            ),
        ),
        promise=2,
        where=LEASES,
    ),
    "what is being settled is renewed": Mutant(
        "worker.leases:Leases.settling", drop("del self._held[$ID]"), promise=2, where=LEASES
    ),
    "a settlement that failed settles for whoever has the key by now": Mutant(
        "worker.leases:Leases.settling",
        replace("$HELD is None or $RENEWED is not $OWN", "$HELD is None"),
        promise=2,
        where=LEASES,
    ),
    "a refused renewal is ignored": Mutant(
        "worker.leases:Leases._renewed", drop("self._on_lost($ID, $WHY)"), promise=2, where=LEASES
    ),
    "a batch that fails keeps its leases": Mutant(
        "worker.leases:Leases.ended", drop("self._on_lost($ID, $WHY)"), promise=6, where=LEASES
    ),
    # Death before a lease ends.
    "the timer is armed when a claim is answered": Mutant(
        "worker.leases:Leases.claiming", drop("self._arm()"), promise=2, where=LEASES
    ),
    "a claim is sent before its host hears of it": Mutant(
        "batch.exchanges:Claims._claim",
        both(
            drop("self._host.claiming($IDS)"),
            instead_of(
                "self._exchanges.start($OPERATIONS, $THEN, max_retries=$RETRIES)",
                "self._exchanges.start($OPERATIONS, $THEN, max_retries=$RETRIES);"
                " self._host and self._host.claiming([item.claim.id for item in chunk])",
            ),
        ),
        promise=2,
        where=unit("batch/host"),
    ),
    "the timer is not armed anew when a lease is renewed": Mutant(
        "worker.leases:Leases._renewed", drop("self._arm()"), promise=2, where=LEASES
    ),
    "a connection to SQS that breaks ends the thread that asks": Mutant(
        "worker.polling:named", replace("isinstance(error, ClientError)", "hasattr(error, 'response')"), where=PROCESS
    ),
    "a handler has no time limit": Mutant("worker.process:Process._end_overdue", drop("die"), where=PROCESS),
    "a supervisor that was stopped ends who has renewed meanwhile": Mutant(
        "worker.supervisor:Child.overdue", replace("self.read()", "None"), where=SUPERVISOR
    ),
    "a full pipe's last word counts": Mutant(
        "worker.supervisor:Child.read", drop("self.dead_by_seconds = None"), where=SUPERVISOR
    ),
    # What the dead have left.
    "orphans are released whoever owns them": Mutant(
        "worker.orphans:_release", replace("$FOUND.owner == $LEFT[$ID]", "True"), promise=2, where=PROCESS
    ),
    "orphans are lost with the process that was to give them back": Mutant(
        "worker.supervisor:Child.orphans", replace("self.given + $LEFT", "$LEFT"), where=SUPERVISOR
    ),
    "what may have ended a process comes again at once": Mutant(
        "worker.orphans:give_back", replace("$WAIT if $STARTED else 0", "0"), where=PROCESS
    ),
    "a suspect runs beside its neighbours": Mutant(
        "worker.process:Process._apart", replace("$ALONE.get($LINE, $TOGETHER)", "$TOGETHER"), where=PROCESS
    ),
    # A drain.
    "a draining batch starts what it has claimed": Mutant(
        "batch.runs:Runs.may_start",
        replace("$TIME and not $DRAINING and not $STOPPED and $ROOM", "$TIME and not $STOPPED and $ROOM"),
        where=unit("batch/host"),
    ),
}
