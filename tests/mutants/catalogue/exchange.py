"""Bugs in the exchange with a store: what is sent again, what its answers mean, and when it is given up."""

from __future__ import annotations

from tests.mutants.change import becomes, inside, instead_of, redirect, replace
from tests.mutants.mutant import Mutant, simulated, unit

EXCHANGE = unit("protocol/exchange")
STORE = simulated("store")

MUTANTS = {
    "one ok is all ok": Mutant(
        "protocol.exchange:_write",
        replace("zip($ALL, $ANSWERS, ...)", "zip($ALL, $ANSWERS[:1] * len($ALL))"),
        promise=1,
        where=STORE + EXCHANGE,
    ),
    "an error that the store raises is tried again": Mutant(
        "protocol.exchange:_write",
        replace("_end($ALL, $ERROR)", "[one.apply(Unknown(type($ERROR).__name__)) for one in $ALL]"),
        promise=1,
        where=STORE + EXCHANGE,
    ),
    "a read that the store raises at is tried again": Mutant(
        "protocol.exchange:_read",
        instead_of("_end($ALL, $ERROR)", "for one in $ALL: one.error = type($ERROR).__name__"),
        where=EXCHANGE,
    ),
    "unread is free": Mutant(
        "protocol.exchange:_read", instead_of("$ONE.error = $WHY", "$ONE.seen = None"), promise=2, where=EXCHANGE
    ),
    "a time-out is a claim": Mutant(
        "protocol.exchange:Operation.apply", redirect("Unknown", to="Applied"), promise=2, where=STORE
    ),
    "what raised may have worked, and is a claim": Mutant(
        "protocol.exchange:_end",
        instead_of(
            "$ONE.change = None",
            "if $ONE.change is not None: $ONE.answer = $ONE.transition.applied($ONE.change); continue",
        ),
        promise=2,
        where=STORE,
    ),
    "a claim is sent again however late it is": Mutant(
        "protocol.exchange:exchange",
        replace("$NOW.left_to_start_seconds", "$NOW.left_seconds"),
        promise=2,
        where=simulated("deadline"),
    ),
    "the version is drawn once and not for each write": Mutant(
        "protocol.exchange:_round",
        replace("$ONE.advance($NOW, $VERSION)", "$ONE.advance($NOW, $ONE.wrote[0] if $ONE.wrote else $VERSION)"),
        promise=4,
        where=EXCHANGE,
    ),
    "what may be tried again is given up": Mutant(
        "protocol.exchange:Operation.apply",
        inside("NotApplied", replace("None if $RETRY else $ANSWER", "$ANSWER")),
        where=(),
    ),
    "what is refused for good is tried again": Mutant(
        "protocol.exchange:Operation.apply",
        inside("NotApplied", replace("None if $RETRY else $ANSWER", "None")),
        where=(),
    ),
    "what is in doubt is given up": Mutant(
        "protocol.exchange:Operation.apply",
        inside("Unknown", instead_of("$SEEN, $ERROR = Unread(), $WHY", "self.answer = Unavailable($WHY)")),
        where=(),
    ),
    "what is in the way is taken for nothing": Mutant(
        "protocol.exchange:Operation.apply",
        inside("Conflict", replace("Unread() if $FOUND is None else $FOUND", "$FOUND")),
        promise=2,
        where=(),
    ),
    "a wish may lose for ever": Mutant(  # the bound that its test knows: 16 turns of two requests each
        "protocol.exchange:MOST_CONFLICTS", becomes("100_000"), where=()
    ),
    "claiming is as patient as settling": Mutant("protocol.exchange:CLAIM_RETRIES", becomes("99"), where=()),
    "settling gives up as early as claiming": Mutant("protocol.exchange:SETTLE_RETRIES", becomes("3"), where=STORE),
}
