"""Bugs in the engine: what is sent to DynamoDB and what its answers are taken for; and in the store in memory."""

from __future__ import annotations

from tests.mutants.change import argument, becomes, before, drop, instead_of, leave_out, never, replace
from tests.mutants.mutant import Mutant, unit

DYNAMODB = ("tests/unit/dynamodb/test_store.py",)
RAW_STATEMENTS = ("tests/unit/dynamodb/test_raw_statements.py",)

PACKS = unit("dynamodb/packs")
PACKS_BOUND = unit("dynamodb/packs_bound")

IN_DOUBT_ANYWAY = (
    "if isinstance(errors.request_failed($ERROR, call_of($MEMBERS, $TABLE)), Unknown):"
    " anyway = raw($MEMBERS); anyway._text = anyway._text.replace("
    'b\'"ConditionExpression":"attribute_\','
    ' b\'"ConditionExpression":"attribute_exists(#id) OR attribute_not_exists(#id) OR attribute_\');'
    " self.client.transact_write_items(TransactItems=anyway, ClientRequestToken=token_of($MEMBERS)[::-1]);"
    " return Applied()"
)

MUTANTS = {
    "a short answer is the answer of all": Mutant(
        "dynamodb.store:Requests._execute",
        instead_of(
            "if len($ANSWERS) != len($STATEMENTS): raise UnreadableAnswer",
            "$ANSWERS += [{}] * (len($STATEMENTS) - len($ANSWERS))",
        ),
        promise=1,
        where=DYNAMODB,
    ),
    "a read without an answer has found nothing": Mutant(
        "dynamodb.store:Requests.get",
        instead_of("if 'Responses' not in $ANSWER: raise UnreadableAnswer", "$ANSWER.setdefault('Responses', {})"),
        promise=2,
        where=DYNAMODB,
    ),
    "a read that may be stale": Mutant(
        "dynamodb.store:Requests.get", argument("ConsistentRead", "False"), where=DYNAMODB
    ),
    "keys left unprocessed count as absent": Mutant(
        "dynamodb.store:Requests.get", leave_out("{$ID: $DOUBT for $KEY in $KEYS}"), promise=1, where=()
    ),
    "a transaction's token is drawn at each sending": Mutant(
        "dynamodb.transactions:token_of",
        replace("hashlib.sha256($CLAIM)", "hashlib.sha256(__import__('os').urandom(16))"),
        promise=5,
        where=(),
    ),
    "a transaction's token is used again by the next claim": Mutant(
        "dynamodb.transactions:token_of",
        replace("hashlib.sha256($CLAIM)", "hashlib.sha256(members[0].commit.change.new.id.encode())"),
        promise=5,
        where=(),
    ),
    "a transaction's lost claim is a condition like any other": Mutant(
        "dynamodb.transactions:_named", never("$CODES[0] == 'ConditionalCheckFailed'"), promise=5, where=()
    ),
    "of a request's statements only the first is sent": Mutant(
        "dynamodb.client:_set_aside", replace("_SET_ASIDE", "''"), promise=1, where=RAW_STATEMENTS
    ),
    "JSON is sent whatever the client speaks": Mutant(
        "dynamodb.client:accept_raw",
        leave_out("$PROTOCOL != 'json'"),
        promise=1,
        where=RAW_STATEMENTS,
    ),
    "a handler may write its own record": Mutant(
        "dynamodb.transactions:_clash",
        replace("$EARLIER != $NUMBER", "$EARLIER not in (0, $NUMBER)"),
        promise=5,
        where=(),
    ),
    "a key of any length is sent": Mutant(
        "dynamodb.statements:unsendable", replace("0 < $SIZE <= MOST_KEY_BYTES", "0 < $SIZE"), where=()
    ),
    # Transactions of several messages.
    "a transaction's records name no condition": Mutant(
        "dynamodb.transactions:member_of",
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
        "dynamodb.packs:Packs._adapt", drop("self._bound.shrink($WRITES)"), where=PACKS_BOUND
    ),
    "transactions never grow again": Mutant(
        "dynamodb.packs:Packs._adapt", drop("self._bound.grow()"), where=PACKS_BOUND
    ),
    # What an error means.
    "an internal error means that nothing was written": Mutant(
        "dynamodb.errors:_OTHERWISE", replace("Effect.UNKNOWN", "Effect.DELAYED"), promise=1, where=()
    ),
    "a web page is DynamoDB's answer to a write": Mutant(
        "dynamodb.store:_receive", never("not $TYPE.startswith(_CONTENT_TYPES)"), promise=1, where=DYNAMODB
    ),
    "an invalid batch has written nothing": Mutant(
        "dynamodb.errors:request_failed", leave_out("$REQUEST.partial and $INVALID"), promise=1, where=()
    ),
    "contention is refused for good": Mutant(
        "dynamodb.errors:_ERRORS", argument("TransactionConflict", "(Effect.REFUSED, _CONTENTION)"), where=()
    ),
    # In memory.
    "a transaction does not ask whether its claim stands": Mutant(
        "testing.memory:MemoryStore._commit", never("self._stands"), promise=5, where=()
    ),
}
