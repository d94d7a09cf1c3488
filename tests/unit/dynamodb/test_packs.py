"""Packs: which commits share a transaction, and that none fails, or is sent twice at once, for another's sake.

A real client talks to a server that conflicts, throttles, and loses answers. `test_packs_model.py` has any sequence of
answers.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import Transaction
from idempotent_receiver.protocol.record import Change
from idempotent_receiver.protocol.store import ActionFailed, Applied, Commit, Conflict, NotApplied
from tests.engines.faulty import cancelled, refused
from tests.engines.sample_records import claimed, committing, credit, insert_all, settling

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from idempotent_receiver.protocol.store import Written
    from tests.engines.engine import DynamoDB
    from tests.engines.faulty import Answer, Faults, Sent

    Answers = Callable[[Sent], Answer | None]


def commits(engine: DynamoDB, count: int, start: int = 0) -> list[Commit]:
    return [committing(engine, number) for number in range(start, start + count)]


def committed(engine: DynamoDB, wanted: Sequence[Commit] | int) -> list[Written | ActionFailed]:
    """The answers to these commits, or to so many with a write each."""
    return list(engine.store.commit(commits(engine, wanted) if isinstance(wanted, int) else wanted))


def asking(engine: DynamoDB, number: int, method: str, **arguments: Any) -> Commit:
    """A commit with one action, on the table of accounts unless it says another."""
    tx = Transaction()
    getattr(tx, method)(**{"TableName": engine.accounts, **arguments})
    return committing(engine, number, tx)


def putting(engine: DynamoDB, number: int, count: int = 1, **item: object) -> Commit:
    """A commit that puts so many items like this one."""
    tx = Transaction()
    for part in range(count):
        tx.put(TableName=engine.accounts, Item={"account": f"{number}/{part}", **item})
    return committing(engine, number, tx)


def checking(engine: DynamoDB, number: int, account: str, condition: str, **values: object) -> Commit:
    """A commit with a write of its own, and then a check."""
    tx = credit(engine, f"account-{number}")
    given = {"ExpressionAttributeValues": {f":{name}": value for name, value in values.items()}} if values else {}
    tx.check(TableName=engine.accounts, Key={"account": account}, ConditionExpression=condition, **given)
    return committing(engine, number, tx)


def failing(engine: DynamoDB, number: int) -> Commit:
    """A commit whose second action has a condition that does not hold."""
    return checking(engine, number, f"no-{number}", "attribute_exists(account)")


def sharing(engine: DynamoDB, number: int, amount: int = 0) -> Commit:
    """A commit with a check that all of this amount share."""
    return checking(engine, number, "shared", "attribute_not_exists(amount) OR amount = :a", a=amount)


def told(answers: Sequence[object]) -> str:
    """What each of a row of commits is told."""
    return ", ".join(f"{len([*same])} {one}" for one, same in groupby(map(_told, answers)))


def _told(answer: object) -> str:
    if not isinstance(answer, NotApplied):
        return type(answer).__name__
    words = {"own": answer.own, "contended": answer.contended, "throttled": answer.retry and not answer.contended}
    return " ".join(word for word, is_so in {**words, "refused": not answer.retry}.items() if is_so)


def balance(engine: DynamoDB, number: int) -> object:
    item = engine.account(f"account-{number}")
    return None if item is None else item["balance"]


# What shares a request


@pytest.mark.parametrize(("count", "requests"), [(0, 0), (1, 1), (50, 1), (51, 2), (100, 2), (120, 3)])
def test_a_hundred_writes_are_a_request(engine: DynamoDB, faults: Faults, count: int, requests: int) -> None:
    """Records included: of messages with a write each, 50 are a transaction."""
    assert committed(engine, count) == [Applied()] * count
    assert len(faults.sent) == requests
    assert all(balance(engine, number) == 5 for number in range(count))


@pytest.mark.parametrize(
    ("counts", "data", "sizes"),
    [
        pytest.param([39] * 3, "", [2, 1], id="its actions stay together: of 40 writes, two are a request"),
        pytest.param([1] * 4 + [12], "x" * 300_000, [3, 1, 1], id="a megabyte; one alone may have more"),
    ],
)
def test_a_commit_that_does_not_fit_is_in_the_next_request(
    engine: DynamoDB, faults: Faults, counts: list[int], data: str, sizes: list[int]
) -> None:
    wanted = [putting(engine, number, count, data=data) for number, count in enumerate(counts)]
    assert committed(engine, wanted) == [Applied()] * len(counts)
    assert faults.sizes == sizes
    assert sum(len(sent.items) for sent in faults.sent) == len(counts) + sum(counts)


def test_no_item_is_twice_in_a_request_and_nobody_overtakes(engine: DynamoDB, faults: Faults) -> None:
    """Commits on one item take effect in their order; others share their requests."""

    def noting(number: int) -> Commit:
        condition = "latest = :before" if number >= 2 else "attribute_not_exists(latest) AND :before < :now"
        update = {"Key": {"account": ("even", "odd")[number % 2]}, "UpdateExpression": "SET latest = :now"}
        values = {":before": number - 2, ":now": number}
        asked = {"ConditionExpression": condition, "ExpressionAttributeValues": values}
        return asking(engine, number, "update", **update, **asked)

    assert committed(engine, [noting(number) for number in range(6)]) == [Applied()] * 6
    assert faults.sizes == [2, 2, 2]
    assert all(len(set(sent.items)) == len(sent.items) for sent in faults.sent)


@pytest.mark.parametrize("table", ["{records}", "arn:aws:dynamodb:us-east-1:123456789012:table/{records}"])
def test_a_record_that_another_s_handler_writes_counts_too(engine: DynamoDB, faults: Faults, table: str) -> None:
    """Also where the table is named by its ARN, as it is one item to DynamoDB."""
    item = {"id": "key-0", "status": "FAILED"}
    writing = asking(engine, 2, "put", TableName=table.format(records=engine.records), Item=item)
    committed(engine, [*commits(engine, 2), writing])
    assert [sent.ids for sent in faults.sent] == [["key-0", "key-1"], ["key-2", "key-0"]]


def test_what_no_transaction_may_hold_is_not_sent(engine: DynamoDB, faults: Faults) -> None:
    """Its neighbours are not affected."""
    own = asking(engine, 9, "delete", TableName=engine.records, Key={"id": "key-9"})
    unstorable = Commit(Change(claimed("\ud800"), None), ())
    poison = asking(engine, 3, "put", Item={"account": "\ud800"})
    large = putting(engine, 4, cents=10**38 + 1)
    answers = committed(engine, [*commits(engine, 1), own, unstorable, poison, large])
    assert told(answers) == "1 Applied, 1 own refused, 1 refused, 2 own refused"
    assert [sent.ids for sent in faults.sent] == [["key-0"]]


def test_a_neighbour_s_wrong_key_makes_no_clash(engine: DynamoDB) -> None:
    """It tells of a table's key what is not so. Whoever is on two items of it is not refused for that."""
    two = Transaction()
    for line in ("a", "b"):
        two.delete(TableName="lines", Key={"order": "1", "line": line})
    wrong = asking(engine, 0, "delete", TableName="lines", Key={"order": "1"})

    _, answer = committed(engine, [wrong, committing(engine, 1, two)])
    assert "ResourceNotFoundException" in str(answer), "it was not sent"


def test_the_same_pack_is_the_same_request(engine: DynamoDB, faults: Faults) -> None:
    """Byte for byte. Other members, another order or another version have another token."""
    pack = commits(engine, 3)
    other_version = [*pack[:2], committing(engine, 2)]
    for each in (pack, pack, pack[:2], pack[::-1], other_version):
        committed(engine, each)

    first, again, *others = faults.sent
    assert first.body == again.body
    assert len({sent.token for sent in faults.sent[1:]}) == len(others) + 1
    assert all(1 <= len(sent.token) <= 36 for sent in faults.sent)
    assert balance(engine, 0) == 5


def test_commits_with_one_check_share_it(engine: DynamoDB, faults: Faults) -> None:
    """A hundred with one write each: 49 of them, and the check, are a transaction."""
    assert committed(engine, [sharing(engine, number) for number in range(100)]) == [Applied()] * 100
    assert len(faults.sent) == 3
    assert [sent.body.count(b'"ConditionCheck"') for sent in faults.sent] == [1, 1, 1]


def test_other_conditions_on_one_item_do_not_share_a_request(engine: DynamoDB, faults: Faults) -> None:
    wanted = [sharing(engine, number, amount=number // 2 % 2) for number in range(8)]
    assert committed(engine, wanted) == [Applied()] * 8
    assert len(faults.sent) == 4, "none overtakes another on the item"


def test_a_shared_check_that_fails_is_told_to_all_that_share_it(engine: DynamoDB, faults: Faults) -> None:
    committed(engine, [asking(engine, 99, "put", Item={"account": "shared", "amount": 7})])
    wanted = [sharing(engine, 0), committing(engine, 1), sharing(engine, 2), sharing(engine, 3, amount=7)]

    assert committed(engine, wanted) == [ActionFailed(1), Applied(), ActionFailed(1), Applied()]


# Who is told what


def always(answer: Answer) -> Answers:
    return lambda sent: answer


def to(answer: Answer, *numbers: int) -> Answers:
    """To requests with one of these commits."""
    return lambda sent: answer if {f"key-{number}" for number in numbers} & set(sent.ids) else None


def naming(code: str) -> Answers:
    return lambda sent: sent.naming({"account-7": code})


def first_fails(sent: Sent) -> Answer | None:
    return sent.naming({sent.ids[0]: "ConditionalCheckFailed"}) if len(sent.ids) > 1 else None


INVALID, NO_TABLE, NOT_ALLOWED, SHORT = (
    *map(refused, ("ValidationException", "ResourceNotFoundException", "AccessDeniedException")),
    cancelled("ValidationError"),
)
SYNTAX = refused("ValidationException", message='Invalid UpdateExpression: Syntax error; token: "=", near: "= = :n"')
UNDEFINED, UNUSED, RESERVED = (
    refused("ValidationException", message=text)
    for text in (
        "Invalid ConditionExpression: An expression attribute value used in expression is not defined; :v",
        "Value provided in ExpressionAttributeNames unused in expressions: keys: {#n}",
        "Invalid UpdateExpression: Attribute name is a reserved keyword; reserved keyword: status",
    )
)
BOUNDS, OPERAND, VALUE = (
    refused("ValidationException", message=text)
    for text in (
        "Invalid ConditionExpression: The BETWEEN operator requires same data type for lower and upper bounds; {N:2}",
        "Invalid ConditionExpression: Invalid attribute type name found; type: STRING, valid types: {N,B,S}",
        "ExpressionAttributeValues contains invalid value: A value provided cannot be converted into a number for key",
    )
)
LEADING_KEYS = refused(
    "AccessDeniedException",
    message="User: arn:aws:sts::123456789012:assumed-role/orders/orders is not authorized to perform: "
    "dynamodb:UpdateItem on resource: arn:aws:dynamodb:us-east-1:123456789012:table/accounts because no "
    "identity-based policy allows the dynamodb:UpdateItem action",
)
FAILED = cancelled("ConditionalCheckFailed")
FEWER = [12, 12, 12, 12, 1]
"""The other 49, as after a conflict (`test_packs_bound.py`)."""


@pytest.mark.parametrize(
    ("answer", "count", "answers", "sizes"),
    [
        # Who is named goes later, or, if it is invalid, not again; the others go on at once.
        (naming("ValidationError"), 50, "7 Applied, 1 own refused, 42 Applied", [50, 49]),
        (naming("TransactionConflict"), 50, "7 Applied, 1 own contended, 42 Applied", [50, *FEWER]),
        (naming("ThrottlingError"), 50, "7 Applied, 1 own throttled, 42 Applied", [50, *FEWER]),
        (naming("ProvisionedThroughputExceeded"), 50, "7 Applied, 1 own throttled, 42 Applied", [50, *FEWER]),
        # Alone: it tells of the store, unless it is invalid. A condition without a place may be the record's or the
        # handler's: a read must tell.
        (always(INVALID), 1, "1 own refused", [1]),
        (always(NOT_ALLOWED), 1, "1 refused", [1]),
        (always(FAILED), 1, "1 Unknown", [1]),
        # All of one bad shape, in two packs: two of each are sent alone, and the others are told the same.
        (always(NO_TABLE), 100, "100 refused", [50, 1, 1] * 2),
        *((always(one), 100, "100 own refused", [50, 1, 1] * 2) for one in (SYNTAX, UNDEFINED, UNUSED, RESERVED)),
        # A permission may depend on the key, and what is invalid on a value: each is sent alone.
        (always(NOT_ALLOWED), 100, "100 refused", [50, 1, 49, *[1] * 49] * 2),
        (always(BOUNDS), 100, "100 own refused", [50, 1, 49, *[1] * 49] * 2),
        # What is invalid for what it holds tells nothing of others like it.
        (to(INVALID, 0, 1, 2), 10, "3 own refused, 7 Applied", [10, 1, 9] + [1] * 9),
        # Nobody is in company more than three times, however often it is somebody else who fails: then it goes alone.
        (first_fails, 10, "3 Conflict, 7 Applied", [10, 9, 8] + [1] * 7),
        # Reasons that are not one an action name nobody: a failed condition among them may be anybody's.
        (lambda sent: FAILED if len(sent.ids) > 1 else None, 4, "4 Applied", [4, 1, 2, 1, 1, 1]),
        # A throttled pack is not sent again: all of it may be tried again later.
        (always(refused("ThrottlingException")), 50, "50 throttled", [50]),
        (always(refused("RequestLimitExceeded")), 50, "50 throttled", [50]),
        (always(refused("TransactionConflictException")), 50, "50 contended", [50]),
        # Who is in doubt is in no other request, and the next pack is none of theirs.
        (to(refused("InternalServerError", 500), 31), 100, "50 Unknown, 50 Applied", [50, 50]),
        (to(refused("TransactionInProgressException"), 31), 100, "50 Unknown, 50 Applied", [50, 50]),
        (to(refused("IdempotentParameterMismatchException"), 31), 100, "50 Unknown, 50 Applied", [50, 50]),
    ],
)
def test_what_each_commit_is_told_and_in_how_many_requests(
    engine: DynamoDB, faults: Faults, answer: Answers, *, count: int, answers: str, sizes: list[int]
) -> None:
    faults.answer = answer
    assert (told(committed(engine, count)), faults.sizes) == (answers, sizes)


def test_who_is_named_is_told_its_action(engine: DynamoDB, faults: Faults) -> None:
    faults.answer = naming("ValidationError")
    assert f"action 1 (Update on {engine.accounts})" in str(committed(engine, 50)[7])
    assert "key-7" not in faults.sent[1].ids


def test_ten_failing_of_a_hundred_cost_at_most_six_requests_more(engine: DynamoDB, faults: Faults) -> None:
    """They are told their own action, and the others take effect."""
    bad = range(3, 100, 10)
    wanted = [failing(engine, number) if number in bad else committing(engine, number) for number in range(100)]

    answers = committed(engine, wanted)

    assert answers == [ActionFailed(1) if number in bad else Applied() for number in range(100)]
    assert all(balance(engine, number) == (None if number in bad else 5) for number in range(100))
    assert len(faults.sent) <= 2 + 6


def test_a_lost_claim_among_others_is_told_with_what_is_there(engine: DynamoDB, faults: Faults) -> None:
    """Of a claim that was taken over, and of a first record that somebody else has put."""
    there = claimed("key-1"), claimed("key-2", attempts=2)
    insert_all(engine, *there)
    taken_over = Commit(settling(claimed("key-2")), credit(engine, "account-2").actions)

    answers = committed(engine, [*commits(engine, 2), taken_over])

    assert answers == [Applied(), Conflict(there[0]), Conflict(there[1])]
    assert len(faults.sent) == 2


# Nobody is named


@pytest.mark.parametrize(
    "answer", [INVALID, NO_TABLE, NOT_ALLOWED, SHORT], ids=["invalid", "no table", "not allowed", "short reasons"]
)
def test_one_bad_among_a_hundred_is_found_by_halves(engine: DynamoDB, faults: Faults, answer: Answer) -> None:
    """It alone fails, and for good; also among those of its shape, which are not refused with it. Wherever it is, that
    takes at most 13 requests: if all is well, they are two.
    """
    for bad in range(0, 100, 7):
        start = 100 * bad
        faults.answer = to(answer, start + bad)
        faults.sent.clear()
        answers = committed(engine, commits(engine, 100, start))
        assert told(answers[bad : bad + 1]).endswith("refused")
        assert answers[:bad] + answers[bad + 1 :] == [Applied()] * 99
        assert [balance(engine, start + number) for number in (bad, 99 - bad)] == [None, 5]
        assert len(faults.sent) <= 13


def test_reasons_that_are_fewer_than_the_actions_name_nobody(engine: DynamoDB, faults: Faults) -> None:
    """They raise nothing either."""
    faults.answer = to(SHORT, 1)
    answers: list[object] = []
    with suppress(IndexError):
        answers = list(committed(engine, 2))
    assert len(answers) == 2


def test_two_bad_among_fifty_are_found_one_by_one(engine: DynamoDB, faults: Faults) -> None:
    """To go on by halves would cost two requests for each, if many are bad."""
    faults.answer = to(INVALID, 10, 40)
    assert told(committed(engine, 50)) == "10 Applied, 1 own refused, 29 Applied, 1 own refused, 9 Applied"
    assert len(faults.sent) <= 60


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        pytest.param(LEADING_KEYS, "refused", id="leading keys"),
        *(
            pytest.param(answer, "own refused", id=id)
            for answer, id in ((BOUNDS, "bounds of BETWEEN"), (OPERAND, "a type"), (VALUE, "a value"))
        ),
    ],
)
def test_two_that_are_refused_for_what_they_hold_take_nobody_along(
    engine: DynamoDB, faults: Faults, answer: Answer, word: str
) -> None:
    """They stand first in a pack, and have the others' shape. There are two requests more than messages."""
    faults.answer = to(answer, 0, 1)
    assert told(committed(engine, 22)) == f"2 {word}, 20 Applied"
    assert faults.sizes == [22, 1, 21, *[1] * 21]
    assert all(balance(engine, number) == (5 if number > 1 else None) for number in range(22))


def test_another_shape_is_not_refused_with_a_bad_one(engine: DynamoDB, faults: Faults) -> None:
    """Another table, another expression, or a value of another type in it."""
    five = ["SET balance = :five", "SET balance = :five, note = :five"]

    def of(number: int, kind: int) -> Commit:
        if kind == 0:
            return putting(engine, number, balance=5)
        update = {"Key": {"account": f"account-{number}"}, "UpdateExpression": five[kind > 1]}
        return asking(engine, number, "update", **update, ExpressionAttributeValues={":five": 5 if kind < 3 else "5"})

    faults.answer = to(NO_TABLE, 0, 4, 8)
    answers = committed(engine, [of(number, number % 4) for number in range(12)])
    assert told(answers) == "1 refused, 3 Applied, 1 refused, 3 Applied, 1 refused, 3 Applied"
    assert faults.sizes == [12, 1, 1, 9]


# What nobody knows


def test_a_pack_whose_answer_is_lost_takes_effect_once(engine: DynamoDB, faults: Faults) -> None:
    """Sent again it is the same request, which DynamoDB knows by its token."""
    pack = commits(engine, 50)
    faults.losing = lambda sent: len(faults.sent) == 1

    assert told([*committed(engine, pack), *committed(engine, pack)]) == "50 Unknown, 50 Applied"
    assert faults.sent[0].body == faults.sent[1].body
    assert all(balance(engine, number) == 5 for number in range(50))


def test_the_innocent_of_a_pack_whose_second_answer_is_lost_are_unknown(engine: DynamoDB, faults: Faults) -> None:
    """And in no third request."""
    faults.losing = lambda sent: len(sent.ids) == 9

    answers = committed(engine, [*commits(engine, 9), failing(engine, 9)])
    assert (told(answers), answers[9]) == ("9 Unknown, 1 ActionFailed", ActionFailed(1))
    assert faults.sizes == [10, 9]
