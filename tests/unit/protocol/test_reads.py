"""What a transaction reads: what a handler gets, and the conditions under which it still stands."""

from __future__ import annotations

import asyncio
import copy
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from decimal import Decimal
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import AliasChoices, BaseModel, Field, field_validator

from idempotent_receiver import PermanentError, Transaction
from idempotent_receiver.protocol.reads import Read
from idempotent_receiver.protocol.transaction import MOST_ACTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from idempotent_receiver.protocol.reads import PlainItem

ITEM = {"account": "a", "balance": 5, "frozen": False, "log": [{"n": Decimal("1.50")}], "tags": {"x"}}
PLACE: dict[str, Any] = {"TableName": "accounts", "Key": {"account": "a"}}


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


def conditions(tx: Transaction) -> list[tuple[str, str, dict[str, str], dict[str, Any]]]:
    """Each action's kind and condition, with names and values in place of their placeholders."""
    return [
        (
            action.kind,
            action.arguments["ConditionExpression"],
            action.arguments.get("ExpressionAttributeNames", {}),
            action.arguments.get("ExpressionAttributeValues", {}),
        )
        for action in tx.seal()
    ]


def test_a_get_gives_plain_values_that_the_handler_may_change() -> None:
    tx = transaction(
        {**ITEM, "balance": Decimal(5), "large": Decimal("1E+40"), "numbers": {Decimal(1), Decimal("1.5")}}
    )
    account = tx.get(**PLACE)
    assert account == {**ITEM, "large": Decimal("1E+40"), "numbers": {1, Decimal("1.5")}}
    assert type(account["balance"]) is int
    account["log"][0]["n"] = 7
    account["balance"] = 1

    assert tx.get(**PLACE)["balance"] == 5
    ((_, _, _, values),) = conditions(tx)
    assert [value for value in values.values() if value == 5 or isinstance(value, list)] == [5, ITEM["log"]]


def test_one_request_reads_an_item_however_often_it_is_asked_for() -> None:
    fetch = Accounts(None)
    tx = Transaction(fetch)
    assert [tx.get(**PLACE), tx.get(**PLACE, attributes=["frozen"]), tx.get(**PLACE, check=False)] == [None] * 3
    tx.get(TableName="arn:aws:dynamodb:us-east-1:123456789012:table/accounts", Key={"account": "a"})
    assert fetch.count == 1
    tx.get(TableName="accounts", Key={"account": "b"})
    assert fetch.count == 2


@pytest.mark.parametrize(
    ("item", "asked", "expected"),
    [
        (None, {}, ("attribute_not_exists(#r0)", {"#r0": "account"}, {})),
        (None, {"attributes": ["balance"]}, ("attribute_not_exists(#r0)", {"#r0": "account"}, {})),
        ({"account": "a"}, {}, ("attribute_exists(#r)", {"#r": "account"}, {})),
        ({"account": "a", "n": 1}, {}, ("#r0 = :r0", {"#r0": "n"}, {":r0": 1})),
        ({"account": "a", "n": 1}, {"attributes": ["n", "account"]}, ("#r0 = :r0", {"#r0": "n"}, {":r0": 1})),
        (
            {"account": "a", "n": 1, "other": 2},
            {"attributes": ["n", "frozen"]},
            ("#r0 = :r0 AND attribute_not_exists(#r1)", {"#r0": "n", "#r1": "frozen"}, {":r0": 1}),
        ),
        (
            {"account": "a", "n": 1},
            {"attributes": ["frozen"]},
            ("attribute_not_exists(#r0) AND attribute_exists(#r)", {"#r0": "frozen", "#r": "account"}, {}),
        ),
    ],
)
def test_what_was_read_is_checked_by_value_or_by_absence(
    item: PlainItem | None, asked: dict[str, Any], expected: tuple[str, dict[str, str], dict[str, Any]]
) -> None:
    tx = transaction(item)
    tx.get(**PLACE, **asked)

    assert conditions(tx) == [("ConditionCheck", *expected)]


@pytest.mark.parametrize(
    "ask",
    [
        lambda it: it.get("frozen"),
        lambda it: "frozen" in it,
        lambda it: _missing(it, "frozen"),
        lambda it: it.pop("frozen", None),
        lambda it: it.setdefault("frozen", False),
    ],
)
def test_a_missing_name_that_was_asked_for_is_checked_too(ask: Callable[[Any], object]) -> None:
    tx = transaction({"account": "a", "n": 1})
    account = tx.get(**PLACE)
    tx.update(**PLACE, UpdateExpression="REMOVE x")
    ask(account)

    ((_, condition, names, _),) = conditions(tx)

    assert condition == "#r0 = :r0 AND attribute_not_exists(#r1)"
    assert names["#r1"] == "frozen"


def _missing(item: dict[str, Any], name: str) -> bool:
    with pytest.raises(KeyError):
        item[name]
    return True


def test_what_the_handler_does_to_its_copy_is_no_missing_name() -> None:
    tx = transaction({"account": "a", "n": 1})
    account = tx.get(**PLACE)
    del account["n"]
    assert "n" not in account
    assert account.get("n", 7) == 7
    assert 3 not in account
    assert [one[1] for one in conditions(tx)] == ["#r0 = :r0"]


def test_a_copy_of_what_was_read_is_an_ordinary_dict() -> None:
    account = transaction({"account": "a", "n": 1}).get(**PLACE)
    assert type(copy.deepcopy(account)) is dict
    assert json.loads(json.dumps(account)) == {**account} == account | {}


def test_a_name_that_was_not_among_the_attributes_is_refused() -> None:
    account = transaction().get(**PLACE, attributes=["balance"])
    assert account == {"balance": 5}
    for ask in (lambda: account["frozen"], lambda: account.get("frozen"), lambda: "frozen" in account):
        with pytest.raises(LookupError, match=r"accounts was read without 'frozen': .*attributes="):
            ask()


class Account(BaseModel):
    """As a handler would declare it."""

    balance: int
    is_frozen: bool = Field(default=False, validation_alias=AliasChoices("frozen", "locked"))


def test_a_model_says_what_is_read_and_is_what_the_handler_gets() -> None:
    tx = transaction()
    assert tx.get(**PLACE, attributes=Account) == Account(balance=5, frozen=False)
    ((_, condition, names, _),) = conditions(tx)
    assert {names[one] for one in names} == {"balance", "frozen", "is_frozen", "locked"}
    assert condition.count("attribute_not_exists") == 2
    assert transaction(None).get(**PLACE, attributes=Account) is None


def test_a_later_read_of_more_checks_more_and_one_without_a_check_nothing() -> None:
    tx = transaction({"account": "a", "n": 1, "m": 2})
    assert tx.get(**PLACE, check=False) == {"account": "a", "n": 1, "m": 2}
    assert tx.checks() == ()
    tx.get(**PLACE, attributes=["m"])
    tx.get(**PLACE, attributes=["n"])
    assert [one[1:] for one in conditions(tx)] == [
        ("#r0 = :r0 AND #r1 = :r1", {"#r0": "n", "#r1": "m"}, {":r0": 1, ":r1": 2})
    ]
    assert transaction().seal() == ()


@pytest.mark.parametrize(
    ("own", "merged"),
    [
        (None, "#r_0 = :r_0"),
        ("n > :r", "#r_0 = :r_0 AND (n > :r)"),
        ("n > :r OR m = :r", "#r_0 = :r_0 AND (n > :r OR m = :r)"),
        ("(n > :r OR m = :r)", "#r_0 = :r_0 AND (n > :r OR m = :r)"),
        ("(n > :r) OR (m = :r)", "#r_0 = :r_0 AND ((n > :r) OR (m = :r))"),
    ],
)
def test_the_check_is_merged_into_a_write_of_the_item_under_its_own_condition(own: str | None, merged: str) -> None:
    tx = transaction({"account": "a", "n": 1})
    tx.get(**PLACE)
    condition = {} if own is None else {"ConditionExpression": own}
    otherwise = PermanentError("no")
    tx.update(
        **PLACE, UpdateExpression="SET n = :r", ExpressionAttributeValues={":r": 2}, **condition, otherwise=otherwise
    )

    (action,) = tx.seal()

    assert action.arguments["ConditionExpression"] == merged
    assert action.arguments["ExpressionAttributeNames"] == {"#r_0": "n"}
    assert action.arguments["ExpressionAttributeValues"] == {":r": 2, ":r_0": 1}
    assert action.arguments["ReturnValuesOnConditionCheckFailure"] == "ALL_OLD"
    assert action.otherwise is otherwise
    stale = own is None
    assert [action.is_stale(found) for found in ({"account": "a", "n": 1}, {"account": "a", "n": True}, None)] == [
        stale,
        True,
        True,
    ]


def test_only_what_is_not_written_has_a_check_of_its_own() -> None:
    tx = transaction()
    for account in "abcd":
        tx.get(TableName="accounts", Key={"account": account})
    tx.put(TableName="accounts", Item={"account": "a", "balance": 1})
    tx.delete(TableName="accounts", Key={"account": "b"})
    tx.check(TableName="accounts", Key={"account": "c"}, ConditionExpression="attribute_exists(x)")
    tx.put(TableName="others", Item={"account": "d"})

    assert [action.kind for action in tx.seal()] == ["Put", "Delete", "ConditionCheck", "Put", "ConditionCheck"]
    assert [action.read is not None for action in tx.seal()] == [True, True, True, False, True]
    assert [action.arguments["Key"]["account"] for action in tx.checks()] == list("abcd")


def test_an_item_is_read_before_it_is_written() -> None:
    for write in (
        lambda tx: tx.put(TableName="accounts", Item={"account": "a"}),
        lambda tx: tx.update(**PLACE, UpdateExpression="REMOVE x"),
        lambda tx: tx.delete(**PLACE),
    ):
        tx = transaction()
        tx.get(**PLACE)
        write(tx)
        with pytest.raises(ValueError, match=r"action 1 \(.* on accounts\) writes this item: read it before"):
            tx.get(**PLACE)


def test_a_put_over_some_attributes_is_refused() -> None:
    tx = transaction()
    tx.get(**PLACE, attributes=["balance"])
    with pytest.raises(ValueError, match=r"but only `attributes=` were read: .* or use update"):
        tx.put(TableName="accounts", Item={"account": "a", "balance": 1})
    tx.update(**PLACE, UpdateExpression="REMOVE x")

    tx = transaction()
    tx.get(**PLACE, attributes=["balance"], check=False)
    tx.put(TableName="accounts", Item={"account": "a", "balance": 1})
    assert [action.read for action in tx.seal()] == [None]


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
        ({**PLACE, "attributes": [""]}, ValueError, "names of attributes"),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_is_read(
    wrong: dict[str, Any], error: type[Exception], text: str
) -> None:
    fetch = Accounts()
    tx = Transaction(fetch)
    with pytest.raises(error, match=text) as raised:
        tx.get(**wrong)
    assert fetch.count == 0
    assert tx.unread is raised.value


def test_more_than_a_condition_can_check_is_refused_at_the_call() -> None:
    for count, length in ((150, 1), (99, 30)):
        fits = {"account": "a", **{f"{number:0{length}}": 1 for number in range(count)}}
        tx = transaction(fits)
        tx.get(**PLACE)
        assert tx.unread is None
    large = transaction({"account": "a", **{f"a{number}": 1 for number in range(151)}})
    with pytest.raises(ValueError, match=r"accounts has more attributes than one condition can check .* `attributes=`"):
        large.get(**PLACE)
    assert large.get(**PLACE, check=False)["a150"] == 1
    assert large.get(**PLACE, attributes=["a0"]) == {"a0": 1}
    long = "n = :n" + " OR n = :n" * 410
    with pytest.raises(ValueError, match="`attributes=`"):
        large.update(
            **PLACE, UpdateExpression="REMOVE x", ConditionExpression=long, ExpressionAttributeValues={":n": 1}
        )


def test_a_missing_name_too_many_is_refused_where_it_is_asked_for() -> None:
    tx = transaction({"account": "a", **{f"a{number}": 1 for number in range(149)}})
    account = tx.get(**PLACE)
    assert account.get("frozen") is None
    with pytest.raises(ValueError, match=r"accounts has more attributes than one condition can check .* `attributes=`"):
        account.get("one more")


def test_a_missing_name_asked_of_an_unchecked_copy_is_not_checked() -> None:
    tx = transaction({"account": "a", "n": 1})
    tx.get(**PLACE, check=False).get("frozen")
    some = tx.get(**PLACE, attributes=["n"])
    tx.get(**PLACE, check=False).get("frozen")
    assert some == {"n": 1}
    assert [one[1] for one in conditions(tx)] == ["#r0 = :r0"]


def test_after_the_handler_a_copy_is_an_ordinary_dict() -> None:
    """It may be the handler's result."""
    tx = transaction()
    some = tx.get(**PLACE, attributes=["balance"])
    tx.seal()
    asked: list[Any] = []
    with suppress(LookupError):
        asked += [some.get("frozen"), "frozen" in some]
    assert asked == [None, False]


def test_an_error_of_the_model_rests_on_what_was_read() -> None:
    """Not on what could not be read: it may be a final answer, which is checked."""

    class Solvent(BaseModel):
        balance: int

        @field_validator("balance")
        @classmethod
        def enough(cls, balance: int) -> int:
            if balance < 50:
                raise PermanentError("cannot pay")
            return balance

    tx = transaction()
    with pytest.raises(PermanentError, match="cannot pay"):
        tx.get(**PLACE, attributes=Solvent)
    assert tx.unread is None
    assert [one[1:] for one in conditions(tx)] == [("#r0 = :r0", {"#r0": "balance"}, {":r0": 5})]


def test_what_was_read_counts_among_the_actions() -> None:
    tx = transaction()
    tx.get(**PLACE)
    tx.get(TableName="accounts", Key={"account": "unchecked"}, check=False)
    for number in range(MOST_ACTIONS - 1):
        tx.delete(TableName="others", Key={"id": number})
    tx.get(**PLACE)
    with pytest.raises(ValueError, match="at most 99 actions"):
        tx.get(TableName="accounts", Key={"account": "one more"})
    with pytest.raises(ValueError, match="at most 99 actions"):
        tx.get(TableName="accounts", Key={"account": "unchecked"})
    tx.delete(**PLACE)
    assert len(tx.seal()) == MOST_ACTIONS


def test_a_transaction_of_ones_own_has_nothing_to_read_from() -> None:
    with pytest.raises(TypeError, match="no store to read from"):
        Transaction().get(**PLACE)


def test_after_the_handler_nothing_is_read() -> None:
    tx = transaction()
    tx.seal()
    with pytest.raises(RuntimeError, match="the handler has already returned"):
        tx.get(**PLACE)


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
    tx = transaction({"account": "a", "n": 1})
    threads = [Thread(target=tx.get, kwargs=PLACE) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tx.seal()) == 1


@pytest.mark.parametrize(
    ("read", "found", "stands"),
    [
        (1, Decimal("1.0"), True),
        (1, True, False),
        (0, False, False),
        ("a", b"a", False),
        ({"a": [1]}, {"a": [Decimal(1)]}, True),
        ({"a": [1]}, {"a": [True]}, False),
        ({"a": [1]}, {"a": [1, 2]}, False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({1, 2}, {Decimal(2), Decimal(1)}, True),
        ([1], {1}, False),
        (None, None, True),
    ],
)
def test_values_are_compared_as_dynamodb_compares_them(read: Any, found: Any, stands: bool) -> None:
    one = Read("T", {"id": 1}, {"id": 1, "value": read}, None)
    assert one.stands({"id": 1, "value": found, "new": 1}) is stands
    assert one.stands({"id": 1}) is False
    assert one.stands(None) is False
    absent = Read("T", {"id": 1}, {"id": 1, "value": read}, None, {"asked"})
    assert absent.stands({"id": 1, "value": read, "asked": 1}) is False
    assert [Read("T", {"id": 1}, None).stands(item) for item in (None, {"id": 1})] == [True, False]


def test_what_the_handler_takes_out_of_its_copy_or_adds_to_it_is_as_in_a_dict() -> None:
    account = transaction({"account": "a", "n": 1}).get(**PLACE)
    assert account is not None
    assert (account.pop("n"), account.pop("n", 2), account.setdefault("n", 3), account["n"]) == (1, 2, 3, 3)
    with pytest.raises(KeyError):
        account.pop("frozen")
