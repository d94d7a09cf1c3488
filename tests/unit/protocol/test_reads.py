"""What a transaction reads: what a handler gets, and the conditions under which it still stands."""

from __future__ import annotations

import asyncio
import copy
import json
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from decimal import Decimal
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import AliasChoices, AliasPath, BaseModel, Field, field_validator

from idempotent_receiver import PermanentError, Transaction
from idempotent_receiver.protocol import reads
from idempotent_receiver.protocol.reads import Read
from idempotent_receiver.protocol.transaction import MOST_ACTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from idempotent_receiver.protocol.reads import PlainItem

ITEM = {"account": "a", "balance": 5, "frozen": False, "log": [{"n": Decimal("1.50")}], "tags": {"x"}}
ONE = {"account": "a", "n": 1}
PLACE: dict[str, Any] = {"TableName": "accounts", "Key": {"account": "a"}}
WHOLE: dict[str, Any] = {"TableName": "accounts", "Item": {"account": "a", "balance": 1}}
REMOVE: dict[str, Any] = {**PLACE, "UpdateExpression": "REMOVE x"}
TOO_MANY = r"accounts has more attributes than one condition can check .* `attributes=`"


class Accounts:
    """Reads one table, and counts how often."""

    def __init__(self, item: PlainItem | None = ITEM) -> None:
        self.item = item
        self.count = 0

    def __call__(self, table: str, key: PlainItem) -> PlainItem | None:
        self.count += 1
        return copy.deepcopy(self.item)


def transaction(item: PlainItem | None = ITEM) -> Transaction:
    return Transaction(Accounts(item))


def checks(tx: Transaction) -> list[str]:
    """Each action's kind and condition, with names and values in place of their placeholders, each of which is used."""
    found = []
    for action in tx.seal():
        names, values = (action.arguments.get(f"ExpressionAttribute{each}", {}) for each in ("Names", "Values"))
        places = names | {place: repr(value) for place, value in values.items()}
        condition = action.arguments.get("ConditionExpression", "")
        assert {*places} == {*re.findall(r"[#:]r_?\d*", condition + action.arguments.get("UpdateExpression", ""))}
        found.append(f"{action.kind}: " + re.sub(r"[#:]r_?\d*", lambda place, to=places: to[place[0]], condition))
    return found


def test_a_get_gives_plain_values_that_the_handler_may_change() -> None:
    more = {"balance": Decimal(5), "large": Decimal("1E+40"), "numbers": {Decimal(1), Decimal("1.5")}}
    tx = transaction(ITEM | more)
    account = tx.get(**PLACE)
    assert account == {**ITEM, "large": Decimal("1E+40"), "numbers": {1, Decimal("1.5")}}
    assert type(account["balance"]) is int
    account["log"][0]["n"] = 7
    account["balance"] = 1

    assert tx.get(**PLACE)["balance"] == 5
    (check,) = tx.seal()
    assert list(check.arguments["ExpressionAttributeValues"].values()) == list((ITEM | more).values())[1:]


def test_one_request_reads_an_item_however_often_it_is_asked_for() -> None:
    fetch = Accounts(None)
    tx = Transaction(fetch)
    assert [tx.get(**PLACE), tx.get(**PLACE, attributes=["frozen"]), tx.get(**PLACE, check=False)] == [None] * 3
    tx.get(TableName="arn:aws:dynamodb:us-east-1:123456789012:table/accounts", Key={"account": "a"})
    assert fetch.count == 1
    tx.get(TableName="accounts", Key={"account": "b"})
    assert fetch.count == 2


# What is checked.

MISSING = "attribute_not_exists(frozen)"


@pytest.mark.parametrize(
    ("item", "asked", "condition"),
    [
        (None, {}, "attribute_not_exists(account)"),
        (None, {"attributes": ["balance"]}, "attribute_not_exists(account)"),
        ({"account": "a"}, {}, "attribute_exists(account)"),
        (ONE, {}, "n = 1"),
        (ONE, {"attributes": ["n", "account"]}, "n = 1"),
        (ONE | {"other": 2}, {"attributes": ["n", "frozen"]}, f"n = 1 AND {MISSING}"),
        (ONE, {"attributes": ["frozen"]}, f"{MISSING} AND attribute_exists(account)"),
    ],
)
def test_a_read_is_checked_by_value_or_absence(item: PlainItem | None, asked: dict[str, Any], condition: str) -> None:
    tx = transaction(item)
    tx.get(**PLACE, **asked)
    assert checks(tx) == [f"ConditionCheck: {condition}"]


def look_up(item: dict[str, Any]) -> None:
    with pytest.raises(KeyError):
        item["frozen"]


@pytest.mark.parametrize(
    "ask",
    [
        look_up,
        lambda it: it.get("frozen"),
        lambda it: "frozen" in it,
        lambda it: it.pop("frozen", None),
        lambda it: it.setdefault("frozen", False),
    ],
)
def test_a_missing_name_that_was_asked_for_is_checked_too(ask: Callable[[Any], object]) -> None:
    """Where the item is written, in that action's condition; not if it was asked of a copy that is not checked."""
    tx = transaction(ONE)
    account = tx.get(**PLACE)
    tx.update(**REMOVE)
    ask(account)
    assert checks(tx) == [f"Update: n = 1 AND {MISSING}"]

    tx = transaction(ONE)
    ask(tx.get(**PLACE, check=False))
    assert tx.get(**PLACE, attributes=["n"]) == {"n": 1}
    ask(tx.get(**PLACE, check=False))
    assert checks(tx) == ["ConditionCheck: n = 1"]


def test_the_handlers_copy_is_as_a_dict_whose_changes_are_no_missing_names() -> None:
    tx = transaction(ONE)
    account = tx.get(**PLACE)
    assert type(copy.deepcopy(account)) is dict
    assert json.loads(json.dumps(account)) == {**account} == account | {}
    assert (account.pop("n"), account.pop("n", 2), account.setdefault("n", 3), account["n"]) == (1, 2, 3, 3)
    del account["n"]
    assert ("n" in account, account.get("n", 7), 3 in account) == (False, 7, False)
    with pytest.raises(KeyError):
        account.pop("n")
    assert checks(tx) == ["ConditionCheck: n = 1"]


def test_a_name_that_was_not_among_the_attributes_is_refused() -> None:
    account = transaction().get(**PLACE, attributes=["balance"])
    assert account == {"balance": 5}
    for ask in (lambda: account["frozen"], lambda: account.get("frozen"), lambda: "frozen" in account):
        with pytest.raises(LookupError, match=r"accounts was read without 'frozen': .*attributes="):
            ask()


class Account(BaseModel):
    """As a handler would declare it."""

    balance: int
    is_frozen: bool = Field(default=False, validation_alias=AliasChoices("frozen", AliasPath("locks", 0)))

    @field_validator("balance")
    @classmethod
    def solvent(cls, balance: int) -> int:
        if balance < 5:
            raise PermanentError("cannot pay")
        return balance


@pytest.mark.parametrize("balance", [5, 4])
def test_a_model_says_what_is_read_and_is_what_the_handler_gets_or_an_error_that_rests_on_it(balance: int) -> None:
    """It is no error of the read: it may be a final answer, which is checked."""
    tx = transaction(ITEM | {"balance": balance})
    if balance == 5:
        assert tx.get(**PLACE, attributes=Account) == Account(balance=5, frozen=False)
    else:
        with pytest.raises(PermanentError, match="cannot pay"):
            tx.get(**PLACE, attributes=Account)
    assert tx.unread is None
    (check,) = checks(tx)
    absent = {f"attribute_not_exists({name})" for name in ("is_frozen", "locks")}
    assert check.startswith(f"ConditionCheck: balance = {balance} AND frozen = False AND ")
    assert {*check.split(" AND ")[2:]} == absent
    assert transaction(None).get(**PLACE, attributes=Account) is None


def test_a_later_read_of_more_checks_more_and_one_without_a_check_nothing() -> None:
    tx = transaction(ONE | {"m": 2})
    assert tx.get(**PLACE, check=False) == ONE | {"m": 2}
    assert tx.checks() == ()
    tx.get(**PLACE, attributes=["m"])
    tx.get(**PLACE, attributes=["n"])
    assert checks(tx) == ["ConditionCheck: n = 1 AND m = 2"]
    assert transaction().seal() == ()


def test_a_later_read_of_less_checks_no_less() -> None:
    tx = transaction({"account": "a", "n": 1, "m": 2})
    tx.get(**PLACE)
    assert tx.get(**PLACE, attributes=["n"]) == {"n": 1}
    assert checks(tx) == ["ConditionCheck: n = 1 AND m = 2"]


@pytest.mark.parametrize(
    ("own", "merged"),
    [
        (None, "n = 1"),
        ("n > :r0", "n = 1 AND (n > 2)"),
        ("n > :r0 OR m = :r0", "n = 1 AND (n > 2 OR m = 2)"),
        ("(n > :r0 OR m = :r0)", "n = 1 AND (n > 2 OR m = 2)"),
        ("(n > :r0) OR (m = :r0)", "n = 1 AND ((n > 2) OR (m = 2))"),
    ],
)
def test_the_check_is_merged_into_a_write_of_the_item_under_its_own_condition(own: str | None, merged: str) -> None:
    """Whose placeholders stay its own."""
    tx, otherwise = transaction(ONE), PermanentError("no")
    tx.get(**PLACE)
    asked = {**PLACE, "UpdateExpression": "SET n = :r0", "ExpressionAttributeValues": {":r0": 2}}
    tx.update(**asked, **({} if own is None else {"ConditionExpression": own}), otherwise=otherwise)

    (action,) = tx.seal()

    assert checks(tx) == [f"Update: {merged}"]
    assert action.arguments["ReturnValuesOnConditionCheckFailure"] == "ALL_OLD"
    assert action.otherwise is otherwise
    assert [action.is_stale(found) for found in (ONE, ONE | {"n": True}, None)] == [own is None, True, True]


def test_only_what_is_not_written_has_a_check_of_its_own() -> None:
    tx = transaction(ONE)
    for account in "abcd":
        tx.get(TableName="accounts", Key={"account": account})
    tx.put(**WHOLE)
    tx.delete(TableName="accounts", Key={"account": "b"})
    tx.check(TableName="accounts", Key={"account": "c"}, ConditionExpression="attribute_exists(x)")
    tx.put(TableName="others", Item={"account": "d"})

    merged = ["Put: n = 1", "Delete: n = 1", "ConditionCheck: n = 1 AND (attribute_exists(x))"]
    assert checks(tx) == [*merged, "Put: ", "ConditionCheck: n = 1"]
    assert [action.read is not None for action in tx.seal()] == [True, True, True, False, True]
    assert tx.seal()[-1].is_stale(ONE), "a check of its own has nothing else that could fail"
    assert [action.arguments["Key"]["account"] for action in tx.checks()] == list("abcd")


# What is refused.


def test_an_item_is_read_before_it_is_written() -> None:
    for method, arguments in {"put": WHOLE, "update": REMOVE, "delete": PLACE}.items():
        tx = transaction()
        tx.get(**PLACE)
        getattr(tx, method)(**arguments)
        with pytest.raises(ValueError, match=r"action 1 \(.* on accounts\) writes this item: read it before"):
            tx.get(**PLACE)


def test_a_put_over_some_attributes_is_refused_if_they_are_checked() -> None:
    checked, unchecked = transaction(), transaction()
    checked.get(**PLACE, attributes=["balance"])
    with pytest.raises(ValueError, match=r"but only `attributes=` were read: .* or use update"):
        checked.put(**WHOLE)
    checked.update(**REMOVE)
    unchecked.get(**PLACE, attributes=["balance"], check=False)
    unchecked.put(**WHOLE)
    assert [action.read for action in unchecked.seal()] == [None]


def test_a_transaction_of_ones_own_has_nothing_to_read_from() -> None:
    with pytest.raises(TypeError, match="no store to read from"):
        Transaction().get(**PLACE)


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ({"Key": {"account": "a"}}, TypeError, "get needs TableName"),
        ({"TableName": "accounts"}, TypeError, "get needs Key"),
        ({**PLACE, "ProjectionExpression": "n"}, TypeError, "get takes no ProjectionExpression"),
        ({**PLACE, "Key": {"account": ""}}, ValueError, "Key.account"),
        ({**PLACE, "TableName": None}, TypeError, "TableName takes a non-empty str"),
        ({**PLACE, "attributes": "balance"}, TypeError, "a list of names, or a pydantic model"),
        ({**PLACE, "attributes": {"balance": 1}}, TypeError, "a list of names"),
        ({**PLACE, "attributes": 5}, TypeError, "a list of names"),
        ({**PLACE, "attributes": []}, ValueError, "omit it for all"),
        ({**PLACE, "attributes": [""]}, ValueError, "takes attribute names"),
    ],
)
def test_wrong_arguments_are_refused_before_a_read(wrong: dict[str, Any], error: type[Exception], text: str) -> None:
    fetch = Accounts()
    tx = Transaction(fetch)
    with pytest.raises(error, match=text) as raised:
        tx.get(**wrong)
    assert fetch.count == 0
    assert tx.unread is raised.value


def wide(count: int, length: int = 1) -> PlainItem:
    return {"account": "a"} | {f"{number:0{length}}": 1 for number in range(count)}


def test_more_than_a_condition_can_check_is_refused_at_the_call() -> None:
    for fits in (wide(150), wide(99, length=30)):
        tx = transaction(fits)
        tx.get(**PLACE)
        assert tx.unread is None
    account = transaction(wide(149)).get(**PLACE)
    assert account is not None
    assert account.get("frozen") is None, "the last missing name that fits"
    with pytest.raises(ValueError, match=TOO_MANY):
        account.get("one more")
    large = transaction(wide(151))
    with pytest.raises(ValueError, match=TOO_MANY):
        large.get(**PLACE)
    assert large.get(**PLACE, check=False)["150"] == 1
    assert large.get(**PLACE, attributes=["0"]) == {"0": 1}
    long = "n = :n" + " OR n = :n" * 410
    with pytest.raises(ValueError, match="`attributes=`"):
        large.update(**REMOVE, ConditionExpression=long, ExpressionAttributeValues={":n": 1})


def test_what_was_read_counts_among_the_actions() -> None:
    tx = transaction()
    tx.get(**PLACE)
    tx.get(TableName="accounts", Key={"account": "unchecked"}, check=False)
    for number in range(MOST_ACTIONS - 1):
        tx.delete(TableName="others", Key={"id": number})
    tx.get(**PLACE)
    for account in ("one more", "unchecked"):
        with pytest.raises(ValueError, match="at most 99 actions"):
            tx.get(TableName="accounts", Key={"account": account})
    tx.delete(**PLACE)
    assert len(tx.seal()) == MOST_ACTIONS


def test_after_the_handler_nothing_is_read_and_a_copy_is_an_ordinary_dict() -> None:
    """It may be the handler's result."""
    tx = transaction()
    some = tx.get(**PLACE, attributes=["balance"])
    assert some is not None
    tx.seal()
    with pytest.raises(RuntimeError, match="the handler has already returned"):
        tx.get(**PLACE)
    asked: list[Any] = []
    with suppress(LookupError):
        asked += [some.get("frozen"), "frozen" in some]
    assert asked == [None, False]


# Who asks at the same time.


def test_a_coroutine_reads_with_aget_alone() -> None:
    tx = Transaction(Accounts(), asynchronous=True)

    async def handler() -> Any:
        with pytest.raises(RuntimeError, match=r"`await tx.aget\(...\)`"):
            tx.get(**PLACE)
        assert await asyncio.to_thread(tx.get, **PLACE) == ITEM
        return await tx.aget(**PLACE, attributes=["balance"])

    assert asyncio.run(handler()) == {"balance": 5}
    assert isinstance(tx.unread, RuntimeError)


class SlowAccounts(Accounts):
    """Answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.may_answer = Event(), Event()

    def __call__(self, table: str, key: PlainItem) -> PlainItem | None:
        self.asked.set()
        assert self.may_answer.wait(10)
        return super().__call__(table, key)


@pytest.mark.parametrize("answered", [True, False])
def test_a_cancelled_aget_has_failed(answered: bool) -> None:
    """The handler may take it for an item that is not there; whether the answer still came makes no difference."""
    fetch = SlowAccounts()
    tx = Transaction(fetch, asynchronous=True)

    async def handler() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(tx.aget(**PLACE), 0.01)
        if answered:
            fetch.may_answer.set()
            await asyncio.get_running_loop().shutdown_default_executor()
            assert tx.checks()
        tx.seal()
        fetch.may_answer.set()

    asyncio.run(handler())
    assert "was cancelled" in str(tx.unread)


def test_a_get_that_is_under_way_when_the_handler_ends_has_failed() -> None:
    fetch = SlowAccounts()
    tx = Transaction(fetch)
    with ThreadPoolExecutor() as pool:
        reading = pool.submit(tx.get, **PLACE)
        assert fetch.asked.wait(10)
        tx.seal()
        assert "had no answer when the handler ended" in str(tx.unread)
        fetch.may_answer.set()
        with pytest.raises(RuntimeError, match="the handler has already returned"):
            reading.result()


def test_threads_that_read_one_item_get_one_read() -> None:
    tx = transaction(ONE)
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda _: tx.get(**PLACE), range(8)))
    assert len(tx.seal()) == 1


@pytest.mark.parametrize(
    ("read", "found", "stands"),
    [
        *(
            (read, found, True)
            for read, found in [(1, Decimal("1.0")), ({1, 2}, {Decimal(2), Decimal(1)}), (None, None)]
        ),
        ({"a": [1]}, {"a": [Decimal(1)]}, True),
        *(({"a": [1]}, {"a": found}, False) for found in ([True], [1, 2])),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        *((read, found, False) for read, found in [(1, True), (0, False), ("a", b"a"), ([1], {1})]),
    ],
)
def test_values_are_compared_as_dynamodb_compares_them(read: Any, found: Any, stands: bool) -> None:
    item = {"id": 1, "value": read}
    one, asked, none = (Read("T", {"id": 1}, *more) for more in ((item, None), (item, None, {"asked"}), (None,)))
    founds = (item | {"value": found, "new": 1}, {"id": 1}, None)
    assert [one.stands(each) for each in founds] == [stands, False, False]
    assert asked.stands(item | {"asked": 1}) is False
    assert [none.stands(each) for each in (None, {"id": 1})] == [True, False]


def test_a_condition_may_have_exactly_as_many_operators_and_bytes_as_dynamodb_allows() -> None:
    most = " AND ".join(["a"] * (reads.MOST_OPERATORS // 2))
    reads.require_expressible({"ConditionExpression": most}, "accounts")
    reads.require_expressible({"ConditionExpression": "a" * reads.MOST_EXPRESSION_BYTES}, "accounts")
    for more in (f"{most} AND a", "a" * (reads.MOST_EXPRESSION_BYTES + 1)):
        with pytest.raises(ValueError, match="more attributes than one condition can check"):
            reads.require_expressible({"ConditionExpression": more}, "accounts")
