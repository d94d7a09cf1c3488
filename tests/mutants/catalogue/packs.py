"""Bugs in packs: which commits share a transaction, and what its answer says of each."""

from __future__ import annotations

from tests.mutants.change import always, argument, becomes, before, drop, instead_of, leave_out, never, replace
from tests.mutants.mutant import Mutant, unit

PACKS = unit("dynamodb/packs")
PACKS_BOUND = unit("dynamodb/packs_bound")
MODEL = unit("dynamodb/packs_model")
RAW = unit("dynamodb/raw_statements")

IN_DOUBT_ANYWAY = (
    "if isinstance(errors.request_failed($ERROR, call_of($MEMBERS, $TABLE)), Unknown):"
    " anyway = raw($MEMBERS); anyway._text = anyway._text.replace("
    'b\'"ConditionExpression":"attribute_\','
    ' b\'"ConditionExpression":"attribute_exists(#id) OR attribute_not_exists(#id) OR attribute_\');'
    " self.client.transact_write_items(TransactItems=anyway, ClientRequestToken=token_of($MEMBERS)[::-1]);"
    " return Applied()"
)

MUTANTS = {
    "a transaction's records name no condition": Mutant(
        "dynamodb.transactions:_member_of",
        before(
            "_encoded($ACTIONS)",
            "for argument in $ACTIONS[0].values():"
            " argument['ConditionExpression'] += ' OR attribute_exists(#id) OR attribute_not_exists(#id)'",
        ),
        promise=5,
        where=PACKS,
    ),
    "the innocent of a transaction are not sent again": Mutant(
        "dynamodb.packs:Packs._bring",
        replace(
            "self._bring([$MEMBER for $MEMBER in $PACK if $REST], $TIMES, halved=$HALVED)",
            "dict.fromkeys([$MEMBER for $MEMBER in $PACK if $REST], Applied())",
        ),
        promise=1,
        where=PACKS,
    ),
    "a transaction in doubt is sent again under another token, whatever is there": Mutant(
        "dynamodb.store:Requests.transact",
        before("return errors.request_failed($ERROR, call_of($MEMBERS, $TABLE))", IN_DOUBT_ANYWAY),
        promise=5,
        where=PACKS,
    ),
    "whoever is named fails its neighbours": Mutant(
        "dynamodb.packs:Packs._told",
        replace(
            "$TOLD if $TOLD or len($PACK) > 1 else $ALONE",
            "dict.fromkeys($PACK, next(iter($TOLD.values()))) if $TOLD else {} if len($PACK) > 1 else $ALONE",
        ),
        promise=5,
        where=PACKS,
    ),
    "reasons are mapped although they are not one an action": Mutant(
        "dynamodb.transactions:named", never("len($CANCELLED.reasons) != $NUMBER"), promise=5, where=PACKS
    ),
    "what is refused naming nobody fails all": Mutant(
        "dynamodb.packs:Packs._told", never("isinstance($ANSWER, NotApplied)"), where=PACKS
    ),
    "an item is twice in a transaction": Mutant(
        "dynamodb.packs:Packs._taken", leave_out("$TAKEN.isdisjoint($ITEMS)"), where=PACKS
    ),
    "in company for ever": Mutant("dynamodb.packs:MOST_TIMES_IN_COMPANY", becomes("100"), where=PACKS),
    "transactions do not shrink": Mutant(
        "dynamodb.packs:Packs._adapt", drop("self.bound.shrink($WRITES)"), where=PACKS_BOUND
    ),
    "transactions never grow again": Mutant(
        "dynamodb.packs:Packs._adapt", drop("self.bound.grow()"), where=PACKS_BOUND
    ),
    # Who shares a request.
    "a commit overtakes another on its item": Mutant(
        "dynamodb.packs:Packs._taken",
        instead_of("$LEFT.append($MEMBER)", "$LEFT.append($MEMBER); continue", nth=2),
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
    "each is told the reasons of all": Mutant(
        "dynamodb.transactions:named",
        replace("list(islice($REASONS, $COUNT))", "list(cancelled.reasons)"),
        promise=5,
        where=(*PACKS, *MODEL),
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
    "a conflict is an error": Mutant(
        "dynamodb.errors:write_failed",
        argument("contended", "False"),
        where=(*PACKS, "tests/unit/dynamodb/test_store.py"),
    ),
    # How large packs are.
    "one commit's conflict makes packs smaller": Mutant(
        "dynamodb.packs:Packs._adapt", leave_out("len($PACK) > 1"), where=PACKS_BOUND
    ),
    "packs that were not cut short grow": Mutant(
        "dynamodb.packs:Packs._adapt", leave_out("cut_short"), where=PACKS_BOUND
    ),
    "packs under way together each halve the bound": Mutant(
        "dynamodb.packs:Bound.shrink", replace("writes // 2", "self.writes // 2"), where=PACKS_BOUND
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
        where=RAW,
    ),
    "bytes that are no UTF-8 are no bytes": Mutant(
        "dynamodb.transactions:_encoded",
        argument("bytes_mode", "'utf8'"),
        promise=5,
        where=RAW,
    ),
    "numbers are rounded to what DynamoDB stores": Mutant(
        "dynamodb.transactions:_NUMBERS",
        argument("traps", "[]"),
        promise=5,
        where=unit("dynamodb/typed"),
    ),
}
