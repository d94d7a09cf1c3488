"""Bugs of one run: how it ends, and what becomes of its result."""

from __future__ import annotations

from tests.mutants.change import before, drop, instead_of, never, replace
from tests.mutants.mutant import Mutant, simulated, unit

ATTEMPT = unit("handler/attempt")
ENDINGS = simulated("endings")
RESULTS = unit("handler/results")

MUTANTS = {
    "`Exception` around a handler, where `BaseException` is meant": Mutant(
        "handler.attempt:run", replace("BaseException", "Exception"), where=ATTEMPT
    ),
    "a nested claim stays the current one": Mutant("handler.attempt:run", drop(".reset"), where=()),
    "a coroutine that nobody awaited is a result": Mutant(
        "handler.attempt:_returned", drop("_refuse_unrun"), promise=5, where=ENDINGS
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
}
