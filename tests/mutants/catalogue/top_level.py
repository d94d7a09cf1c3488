"""Bugs in the modules that stand beside the packages: the clock, functions, options, payloads and telemetry."""

from __future__ import annotations

from tests.mutants.change import becomes, drop, inside, instead_of, leave_out, never, replace
from tests.mutants.mutant import Mutant, simulated, unit

DEADLINE = simulated("deadline")
FUNCTION = unit("function/calls", "function/transactions", "function/deadlines")
PAYLOAD = unit("payload")

MUTANTS = {
    "the wall clock is not asked before a start": Mutant(
        "clock:Deadline.moment", replace("min($LEFT, $BY_WALL_CLOCK)", "$LEFT"), promise=2, where=DEADLINE
    ),
    "a lease by the wall clock, which may step": Mutant(
        "clock:Deadline.moment",
        replace("self.started_epoch_ms + int($ELAPSED * 1000)", "self.clock.epoch_ms()"),
        promise=2,
        where=DEADLINE + unit("clock"),
    ),
    "a version is drawn at import": Mutant(
        "clock:SystemClock.versions",
        replace(
            "secrets.token_hex($BYTES)", "globals().setdefault('_drawn', secrets.token_hex(160_000))[: 2 * ($BYTES)]"
        ),
        promise=4,
        where=(),
    ),
    "a version of the process's own generator": Mutant(
        "clock:SystemClock.versions",
        replace("secrets.token_hex($BYTES)", "__import__('random').randbytes($BYTES).hex()"),
        promise=4,
        where=(),
    ),
    "a coroutine is started however long after its claim": Mutant(
        "function:_Wrapped.coroutine.called", never(".too_late"), promise=2, where=FUNCTION
    ),
    "a call without a lease holds its key for ever": Mutant(
        "function:_Wrapped._call",
        instead_of("TypeError", "self.lease_seconds = 10**9", nth=2),
        promise=6,
        where=FUNCTION,
    ),
    "the loser's result is returned": Mutant(
        "function:_Wrapped._result",
        replace("self._replayed($RECORD, key)", "$0 if result is None else result"),
        promise=4,
        where=FUNCTION,
    ),
    "a queue's record may expire while its message can come again": Mutant(
        "options:SHORTEST_RETENTION_SECONDS", becomes("0"), promise=3, where=unit("sqs/consumer")
    ),
    "what could not be claimed is told to nobody": Mutant(
        "telemetry:line_of", inside("ended.ClaimFailed", replace("ERROR", "DEBUG")), where=()
    ),
    # Payloads.
    "a query string reads like a body": Mutant(
        "payload:Payload.fingerprint", drop("f'?{len($ASKED)}:'"), promise=3, where=PAYLOAD
    ),
    "two contexts run into each other": Mutant(
        "payload:Payload.fingerprint", leave_out("f'{len($PART)}:'.encode()"), where=PAYLOAD
    ),
    "a payload without its fields is a payload": Mutant("payload:Payload._selected", never("all"), where=PAYLOAD),
    "integers over 2^53 count as doubles": Mutant(
        "payload:Payload._counting",
        replace("rfc8785.dumps($PART)", "rfc8785.dumps(json.loads(json.dumps($PART), parse_int=float))"),
        where=PAYLOAD,
    ),
    "what is said twice counts as the last of it": Mutant("payload:_unique", never("len"), promise=3, where=PAYLOAD),
}
