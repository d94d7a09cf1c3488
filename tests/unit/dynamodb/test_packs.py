"""Packs: which commits share a transaction, and that none fails, or is sent twice at once, for another's sake.

A real client talks to a server that conflicts, throttles, and loses answers. `test_packs_model.py` has any sequence of
answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import Transaction
from idempotent_receiver.protocol.record import Change
from idempotent_receiver.protocol.store import ActionFailed, Applied, Commit, Conflict, NotApplied, Unknown
from tests.engines.faulty import cancelled, refused
from tests.engines.sample_records import claimed, committing, credit, insert_all, settling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from idempotent_receiver.protocol.store import Written
    from tests.engines.engine import DynamoDB
    from tests.engines.faulty import Faults


def commits(engine: DynamoDB, count: int, start: int = 0) -> list[Commit]:
    return [committing(engine, number) for number in range(start, start + count)]


def committed(engine: DynamoDB, commits: Sequence[Commit]) -> list[Written | ActionFailed]:
    return list(engine.store.commit(commits))


def failing(engine: DynamoDB, number: int) -> Commit:
    """A commit whose second action has a condition that does not hold."""
    tx = credit(engine, f"account-{number}")
    tx.check(
        TableName=engine.accounts, Key={"account": f"no-{number}"}, ConditionExpression="attribute_exists(account)"
    )
    return committing(engine, number, tx)


def balance(engine: DynamoDB, number: int) -> object:
    item = engine.account(f"account-{number}")
    return None if item is None else item["balance"]


def contended(answer: object) -> bool:
    return isinstance(answer, NotApplied) and answer.retry and answer.contended


# What shares a request


@pytest.mark.parametrize(("count", "requests"), [(0, 0), (1, 1), (50, 1), (51, 2), (100, 2), (120, 3)])
def test_a_hundred_writes_are_a_request(engine: DynamoDB, faults: Faults, count: int, requests: int) -> None:
    """Records included: of messages with a write each, 50 are a transaction."""
    assert committed(engine, commits(engine, count)) == [Applied()] * count
    assert len(faults.sent) == requests
    assert all(balance(engine, number) == 5 for number in range(count))


def test_a_commit_s_actions_stay_together(engine: DynamoDB, faults: Faults) -> None:
    """Three commits of 40 writes are two requests, of 80 and 40."""

    def large(number: int) -> Commit:
        tx = Transaction()
        for part in range(39):
            tx.put(TableName=engine.accounts, Item={"account": f"{number}/{part}"})
        return committing(engine, number, tx)

    assert committed(engine, [large(number) for number in range(3)]) == [Applied()] * 3
    assert [len(sent.items) for sent in faults.sent] == [80, 40]


def test_a_megabyte_is_a_request(engine: DynamoDB, faults: Faults) -> None:
    """Of 300 KB each, three commits are a request; one alone may have more."""

    def large(number: int, items: int = 1) -> Commit:
        tx = Transaction()
        for part in range(items):
            tx.put(TableName=engine.accounts, Item={"account": f"{number}/{part}", "data": "x" * 300_000})
        return committing(engine, number, tx)

    assert committed(engine, [large(0), large(1), large(2), large(3), large(4, items=12)]) == [Applied()] * 5
    assert faults.sizes == [3, 1, 1]


def test_no_item_is_twice_in_a_request_and_nobody_overtakes(engine: DynamoDB, faults: Faults) -> None:
    """Commits on one item take effect in their order; others share their requests."""

    def noting(number: int, account: str) -> Commit:
        tx = Transaction()
        note = {":before": number - 2, ":now": number}
        condition = "latest = :before" if number >= 2 else "attribute_not_exists(latest) AND :before < :now"
        tx.update(
            TableName=engine.accounts,
            Key={"account": account},
            UpdateExpression="SET latest = :now",
            ConditionExpression=condition,
            ExpressionAttributeValues=note,
        )
        return committing(engine, number, tx)

    accounts = ("even", "odd")
    assert committed(engine, [noting(number, accounts[number % 2]) for number in range(6)]) == [Applied()] * 6
    assert faults.sizes == [2, 2, 2]
    assert all(len(set(sent.items)) == len(sent.items) for sent in faults.sent)


@pytest.mark.parametrize("table", ["{records}", "arn:aws:dynamodb:us-east-1:123456789012:table/{records}"])
def test_a_record_that_another_s_handler_writes_counts_too(engine: DynamoDB, faults: Faults, table: str) -> None:
    """Also where the table is named by its ARN, as it is one item to DynamoDB."""
    tx = Transaction()
    tx.put(TableName=table.format(records=engine.records), Item={"id": "key-0", "status": "FAILED"})

    committed(engine, [*commits(engine, 2), committing(engine, 2, tx)])

    assert [sent.ids for sent in faults.sent] == [["key-0", "key-1"], ["key-2", "key-0"]]


def test_what_no_transaction_may_hold_is_not_sent(engine: DynamoDB, faults: Faults) -> None:
    """Its neighbours are not affected."""
    own, poison = Transaction(), Transaction()
    own.delete(TableName=engine.records, Key={"id": "key-9"})
    poison.put(TableName=engine.accounts, Item={"account": "\ud800"})
    unstorable = Commit(Change(claimed("\ud800"), None), ())

    answers = committed(
        engine, [*commits(engine, 1), committing(engine, 9, own), unstorable, committing(engine, 3, poison)]
    )

    assert answers[0] == Applied()
    assert all(isinstance(answer, NotApplied) and not answer.retry for answer in answers[1:])
    assert [sent.ids for sent in faults.sent] == [["key-0"]]


def test_a_neighbour_s_wrong_key_makes_no_clash(engine: DynamoDB) -> None:
    """It tells of a table's key what is not so. Whoever is on two items of it is not refused for that."""
    wrong, two = Transaction(), Transaction()
    wrong.delete(TableName="lines", Key={"order": "1"})
    for line in ("a", "b"):
        two.delete(TableName="lines", Key={"order": "1", "line": line})

    answers = committed(engine, [committing(engine, 0, wrong), committing(engine, 1, two)])

    assert isinstance(answers[1], NotApplied)
    assert "ResourceNotFoundException" in answers[1].why, "it was not sent"


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


def checking(engine: DynamoDB, number: int, amount: int = 0) -> Commit:
    """A commit with a write of its own, and a check that all of this amount share."""
    tx = credit(engine, f"account-{number}")
    condition = {"ConditionExpression": "attribute_not_exists(amount) OR amount = :a"}
    tx.check(
        TableName=engine.accounts, Key={"account": "shared"}, ExpressionAttributeValues={":a": amount}, **condition
    )
    return committing(engine, number, tx)


def test_commits_with_one_check_share_it(engine: DynamoDB, faults: Faults) -> None:
    """A hundred with one write each: 49 of them, and the check, are a transaction."""
    assert committed(engine, [checking(engine, number) for number in range(100)]) == [Applied()] * 100
    assert len(faults.sent) == 3
    assert [sent.body.count(b'"ConditionCheck"') for sent in faults.sent] == [1, 1, 1]


def test_other_conditions_on_one_item_do_not_share_a_request(engine: DynamoDB, faults: Faults) -> None:
    wanted = [checking(engine, number, amount=number // 2 % 2) for number in range(8)]
    assert committed(engine, wanted) == [Applied()] * 8
    assert len(faults.sent) == 4, "none overtakes another on the item"


def test_a_shared_check_that_fails_is_told_to_all_that_share_it(engine: DynamoDB, faults: Faults) -> None:
    tx = Transaction()
    tx.put(TableName=engine.accounts, Item={"account": "shared", "amount": 7})
    committed(engine, [committing(engine, 99, tx)])
    wanted = [checking(engine, 0), committing(engine, 1), checking(engine, 2), checking(engine, 3, amount=7)]

    assert committed(engine, wanted) == [ActionFailed(1), Applied(), ActionFailed(1), Applied()]


# Who is named


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


def test_what_is_invalid_at_its_place_fails_for_good(engine: DynamoDB, faults: Faults) -> None:
    """With its action; the others go on without it."""
    faults.answer = lambda sent: sent.naming({"account-7": "ValidationError"})

    answers = committed(engine, commits(engine, 50))

    assert answers[:7] + answers[8:] == [Applied()] * 49
    assert isinstance(answers[7], NotApplied)
    assert (answers[7].retry, answers[7].own) == (False, True)
    assert f"action 1 (Update on {engine.accounts})" in answers[7].why
    assert faults.sizes == [50, 49]


@pytest.mark.parametrize(
    ("code", "is_contended"),
    [("TransactionConflict", True), ("ThrottlingError", False), ("ProvisionedThroughputExceeded", False)],
)
def test_who_met_a_conflict_goes_later(engine: DynamoDB, faults: Faults, code: str, is_contended: bool) -> None:
    """And the others at once."""
    faults.answer = lambda sent: sent.naming({"account-7": code})

    answers = committed(engine, commits(engine, 50))

    assert answers[:7] + answers[8:] == [Applied()] * 49
    assert isinstance(answers[7], NotApplied)
    assert (answers[7].retry, answers[7].contended, answers[7].own) == (True, is_contended, True)
    assert all("key-7" not in sent.ids for sent in faults.sent[1:])


@pytest.mark.parametrize(("code", "own"), [("ValidationException", True), ("AccessDeniedException", False)])
def test_a_refused_request_of_one_tells_of_the_store_unless_it_is_invalid(
    engine: DynamoDB, faults: Faults, code: str, own: bool
) -> None:
    faults.answer = lambda sent: refused(code)

    (answer,) = committed(engine, commits(engine, 1))

    assert isinstance(answer, NotApplied)
    assert (answer.retry, answer.own) == (False, own)


def test_what_is_not_sent_tells_nothing_of_the_store(engine: DynamoDB, faults: Faults) -> None:
    tx = Transaction()
    tx.put(TableName=engine.accounts, Item={"account": "a", "cents": 10**38 + 1})

    (answer,) = committed(engine, [committing(engine, 0, tx)])

    assert isinstance(answer, NotApplied)
    assert (answer.retry, answer.own, faults.sent) == (False, True, [])


def test_nobody_is_in_company_more_than_three_times(engine: DynamoDB, faults: Faults) -> None:
    """However often it is somebody else who fails: then it goes alone."""

    def first_fails(sent: Any) -> Any:
        return sent.naming({sent.ids[0]: "ConditionalCheckFailed"}) if len(sent.ids) > 1 else None

    faults.answer = first_fails

    answers = committed(engine, commits(engine, 10))

    assert answers == [Conflict()] * 3 + [Applied()] * 7
    assert faults.sizes == [10, 9, 8] + [1] * 7


# Nobody is named


SHORT = cancelled("ValidationError")
WHOLE = [refused("ValidationException"), refused("ResourceNotFoundException"), refused("AccessDeniedException"), SHORT]


@pytest.mark.parametrize("answer", WHOLE, ids=["invalid", "no table", "not allowed", "short reasons"])
@pytest.mark.parametrize("bad", [0, 1, 25, 31, 49])
def test_one_bad_among_fifty_is_found_by_halves(engine: DynamoDB, faults: Faults, answer: Any, bad: int) -> None:
    """It alone fails, and for good; also among those of its shape, which are not refused with it."""
    faults.answer = lambda sent: answer if f"key-{bad}" in sent.ids else None

    answers = committed(engine, commits(engine, 50))

    assert answers[:bad] + answers[bad + 1 :] == [Applied()] * 49
    assert isinstance(answers[bad], NotApplied)
    assert not answers[bad].retry
    assert len(faults.sent) <= 12
    assert all(balance(engine, number) == (None if number == bad else 5) for number in range(50))


@pytest.mark.parametrize("answer", WHOLE, ids=["invalid", "no table", "not allowed", "short reasons"])
def test_one_bad_among_a_hundred_costs_fifteen_requests_wherever_it_is(
    engine: DynamoDB, faults: Faults, answer: Any
) -> None:
    """Two packs: if all is well, they are two requests."""
    for bad in range(0, 100, 7):
        batch = commits(engine, 100, start=100 * bad)
        culprit = batch[bad].change.new.id
        faults.answer = lambda sent, culprit=culprit: answer if culprit in sent.ids else None  # type: ignore[misc]
        faults.sent.clear()

        answers = committed(engine, batch)

        assert [number for number, one in enumerate(answers) if one != Applied()] == [bad]
        assert len(faults.sent) <= 15


def test_two_bad_among_fifty_are_found_one_by_one(engine: DynamoDB, faults: Faults) -> None:
    """To go on by halves would cost two requests for each, if many are bad."""
    faults.answer = lambda sent: WHOLE[0] if {"key-10", "key-40"} & set(sent.ids) else None

    answers = committed(engine, commits(engine, 50))

    assert [number for number, one in enumerate(answers) if one != Applied()] == [10, 40]
    assert len(faults.sent) <= 60


SHAPES = [
    refused("ResourceNotFoundException"),
    refused("AccessDeniedException"),
    refused("ValidationException", message="Invalid UpdateExpression: Syntax error"),
]


@pytest.mark.parametrize("answer", SHAPES, ids=["no table", "not allowed", "wrong expression"])
def test_all_of_one_bad_shape_cost_six_requests(engine: DynamoDB, faults: Faults, answer: Any) -> None:
    """A hundred messages in two packs: two of each are sent alone, and the others are told the same."""
    faults.answer = lambda sent: answer

    answers = committed(engine, commits(engine, 100))

    assert all(isinstance(one, NotApplied) and not one.retry for one in answers)
    assert faults.sizes == [50, 1, 1] * 2


def test_what_is_invalid_for_what_it_holds_tells_nothing_of_others_like_it(engine: DynamoDB, faults: Faults) -> None:
    faults.answer = lambda sent: refused("ValidationException") if {"key-0", "key-1", "key-2"} & set(sent.ids) else None

    answers = committed(engine, commits(engine, 10))

    assert answers[3:] == [Applied()] * 7


def test_another_shape_is_not_refused_with_a_bad_one(engine: DynamoDB, faults: Faults) -> None:
    """Another table, another expression, or a value of another type in it."""

    def of(number: int, kind: int) -> Commit:
        tx = Transaction()
        if kind == 0:
            tx.put(TableName=engine.accounts, Item={"account": f"account-{number}", "balance": 5})
        else:
            tx.update(
                TableName=engine.accounts,
                Key={"account": f"account-{number}"},
                UpdateExpression="SET balance = :five" if kind == 1 else "SET balance = :five, note = :five",
                ExpressionAttributeValues={":five": 5 if kind < 3 else "5"},
            )
        return committing(engine, number, tx)

    bad = {f"key-{number}" for number in range(0, 12, 4)}
    faults.answer = lambda sent: SHAPES[0] if bad & set(sent.ids) else None

    answers = committed(engine, [of(number, number % 4) for number in range(12)])

    assert [isinstance(one, NotApplied) for one in answers] == [number % 4 == 0 for number in range(12)]
    assert faults.sizes == [12, 1, 1, 9]


def test_reasons_that_are_not_one_an_action_name_nobody(engine: DynamoDB, faults: Faults) -> None:
    """A failed condition among them may be anybody's; only what fails alone is told so."""
    faults.answer = lambda sent: cancelled("ConditionalCheckFailed") if len(sent.ids) > 1 else None

    assert committed(engine, commits(engine, 4)) == [Applied()] * 4
    assert faults.sizes[:2] == [4, 1]
    assert sum(size == 1 for size in faults.sizes) == 4


def test_alone_a_failed_condition_without_a_place_is_unknown(engine: DynamoDB, faults: Faults) -> None:
    """It may be the record's or the handler's: a read must tell."""
    faults.answer = lambda sent: cancelled("ConditionalCheckFailed")

    assert isinstance(committed(engine, commits(engine, 1))[0], Unknown)


@pytest.mark.parametrize("code", ["ThrottlingException", "RequestLimitExceeded", "TransactionConflictException"])
def test_a_throttled_pack_is_not_sent_again(engine: DynamoDB, faults: Faults, code: str) -> None:
    """All of it may be tried again later."""
    faults.answer = lambda sent: refused(code)

    answers = committed(engine, commits(engine, 50))

    assert all(isinstance(answer, NotApplied) and answer.retry for answer in answers)
    assert [contended(answer) for answer in answers] == [code.startswith("TransactionConflict")] * 50
    assert faults.sizes == [50]


# What nobody knows


UNKNOWN = [
    refused("InternalServerError", 500),
    refused("TransactionInProgressException"),
    refused("IdempotentParameterMismatchException"),
]


@pytest.mark.parametrize("answer", UNKNOWN, ids=["internal error", "in progress", "mismatch"])
def test_who_is_in_doubt_is_in_no_other_request(engine: DynamoDB, faults: Faults, answer: Any) -> None:
    """All members of such a pack are unknown; the next pack is none of theirs."""
    faults.answer = lambda sent: answer if "key-31" in sent.ids else None

    answers = committed(engine, commits(engine, 100))

    assert all(isinstance(one, Unknown) for one in answers[:50])
    assert answers[50:] == [Applied()] * 50
    assert faults.sizes == [50, 50]


def test_a_pack_whose_answer_is_lost_takes_effect_once(engine: DynamoDB, faults: Faults) -> None:
    """Sent again it is the same request, which DynamoDB knows by its token."""
    pack = commits(engine, 50)
    faults.losing = lambda sent: len(faults.sent) == 1

    lost, again = committed(engine, pack), committed(engine, pack)

    assert all(isinstance(answer, Unknown) for answer in lost)
    assert again == [Applied()] * 50
    assert faults.sent[0].body == faults.sent[1].body
    assert all(balance(engine, number) == 5 for number in range(50))


def test_the_innocent_of_a_pack_whose_second_answer_is_lost_are_unknown(engine: DynamoDB, faults: Faults) -> None:
    """And in no third request."""
    faults.losing = lambda sent: len(sent.ids) == 9

    answers = committed(engine, [*commits(engine, 9), failing(engine, 9)])

    assert all(isinstance(answer, Unknown) for answer in answers[:9])
    assert answers[9] == ActionFailed(1)
    assert faults.sizes == [10, 9]
