"""Bugs in packs: which commits share a transaction, and what its answer says of each."""

from __future__ import annotations

from tests.mutants.change import always, argument, leave_out, never, replace
from tests.mutants.mutant import Mutant

PACKS = ("tests/unit/dynamodb/test_packs.py",)
BOUND = ("tests/unit/dynamodb/test_packs_bound.py",)
MODEL = ("tests/unit/dynamodb/test_packs_model.py",)

MUTANTS = {
    # Who shares a request.
    "an item is twice in a pack": Mutant(
        "dynamodb.packs:Packs._taken", leave_out("$TAKEN.isdisjoint($ITEMS)"), promise=5, where=(*PACKS, *MODEL)
    ),
    "a commit overtakes another on its item": Mutant(
        "dynamodb.packs:Packs._taken",
        replace("$MEMBER.items", "$MEMBER.items if $MEMBER in pack else frozenset()", nth=2),
        where=MODEL,
    ),
    "a pack has more actions than DynamoDB takes": Mutant(
        "dynamodb.packs:Bound.__init__", replace("WRITES_A_COMMIT", "WRITES_A_COMMIT + 2"), where=PACKS
    ),
    "a pack has any size": Mutant("dynamodb.packs:Packs._taken", leave_out("len($MEMBER.text) <= $SPACE"), where=PACKS),
    "another's record is nobody's item": Mutant(
        "dynamodb.transactions:members_of", leave_out("{$TABLE: ('id',)}"), where=PACKS
    ),
    "a pack's token does not know its order": Mutant(
        "dynamodb.transactions:token_of", replace("json.dumps($WRITTEN)", "json.dumps(sorted($WRITTEN))"), where=PACKS
    ),
    # What an answer says of each.
    "reasons are mapped whatever their number": Mutant(
        "dynamodb.transactions:named", never("len($CANCELLED.reasons)"), promise=5, where=(*PACKS, *MODEL)
    ),
    "each is told the reasons of all": Mutant(
        "dynamodb.transactions:named",
        replace("list(islice($REASONS, $COUNT))", "list(cancelled.reasons)"),
        promise=5,
        where=(*PACKS, *MODEL),
    ),
    "whoever is refused refuses its neighbours": Mutant(
        "dynamodb.packs:Packs._told", never("not $ANSWER.retry"), promise=1, where=(*PACKS, *MODEL)
    ),
    "who is in doubt is sent in another pack": Mutant(
        "dynamodb.packs:Packs._told",
        replace(
            "isinstance($ANSWER, NotApplied) and not $ANSWER.retry and len($PACK) > 1",
            "not isinstance($ANSWER, Applied) and len($PACK) > 1",
        ),
        promise=5,
        where=(*PACKS, *MODEL),
    ),
    "a pack is halved again and again": Mutant("dynamodb.packs:Packs._apart", never("halved"), where=PACKS),
    "a pack falls apart at once": Mutant("dynamodb.packs:Packs._apart", always("halved"), where=PACKS),
    "the innocent stay in company": Mutant(
        "dynamodb.packs:Packs._bring", never("$TIMES == MOST_TIMES_IN_COMPANY"), where=(*PACKS, *MODEL)
    ),
    "a conflict is an error": Mutant("dynamodb.errors:write_failed", argument("contended", "False"), where=PACKS),
    # How large packs are.
    "packs stay as large as they are": Mutant("dynamodb.packs:Packs._adapt", never("len($PACK) > 1"), where=BOUND),
    "one commit's conflict makes packs smaller": Mutant(
        "dynamodb.packs:Packs._adapt", leave_out("len($PACK) > 1"), where=BOUND
    ),
    "packs do not grow again": Mutant("dynamodb.packs:Packs._adapt", never("cut_short"), where=BOUND),
    "packs that were not cut short grow": Mutant("dynamodb.packs:Packs._adapt", leave_out("cut_short"), where=BOUND),
    "packs under way together each halve the bound": Mutant(
        "dynamodb.packs:Bound.shrink", replace("writes // 2", "self.writes // 2"), where=BOUND
    ),
    # What is sent.
    "a first record is put over another": Mutant(
        "dynamodb.statements:put_item",
        argument("ConditionExpression", "'attribute_not_exists(#id) OR attribute_exists(#id)'"),
        promise=1,
        where=PACKS,
    ),
    "bytes are in another base64 than DynamoDB's": Mutant(
        "dynamodb.transactions:_encoded",
        never("$MARK in $TEXT"),
        promise=5,
        where=("tests/unit/dynamodb/test_raw_statements.py",),
    ),
    "numbers are rounded to what DynamoDB stores": Mutant(
        "dynamodb.transactions:_NUMBERS",
        argument("traps", "[]"),
        promise=5,
        where=("tests/unit/dynamodb/test_typed.py",),
    ),
}
