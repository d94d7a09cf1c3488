"""Bugs in the engine: what is sent to DynamoDB and what its answers are taken for; and in the store in memory."""

from __future__ import annotations

from tests.mutants.change import argument, instead_of, leave_out, never, replace
from tests.mutants.mutant import Mutant

DYNAMODB = ("tests/unit/dynamodb/test_store.py",)
RAW_STATEMENTS = ("tests/unit/dynamodb/test_raw_statements.py",)

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
