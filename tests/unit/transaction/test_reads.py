"""What a transaction reads: what a handler gets, and the conditions under which it still stands."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import json
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from decimal import Decimal
from threading import Event
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar

import pytest
from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, Field, RootModel, field_validator, model_validator

from idempotent_receiver import PermanentError, Transaction
from idempotent_receiver.transaction import reads
from idempotent_receiver.transaction.operators import MOST_OPERATORS
from idempotent_receiver.transaction.reads import Read
from idempotent_receiver.transaction.transaction import MOST_ACTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from idempotent_receiver.transaction.reads import PlainItem

ITEM = {"account": "a", "balance": 5, "frozen": False, "log": [{"n": Decimal("1.50")}], "tags": {"x"}}
ONE = {"account": "a", "n": 1}
PLACE: dict[str, Any] = {"TableName": "accounts", "Key": {"account": "a"}}
NUMBER: dict[str, Any] = {**PLACE, "attributes": ["n"]}
ALL: dict[str, Any] = {**PLACE, "attributes": ["account", "balance", "frozen", "log", "tags", "large", "numbers"]}
WHOLE: dict[str, Any] = {"TableName": "accounts", "Item": {"account": "a", "balance": 1}}
REMOVE: dict[str, Any] = {**PLACE, "UpdateExpression": "REMOVE x"}
TOO_MANY = r"accounts has more attributes than one condition can check .* name fewer in `attributes=`"


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
    account = tx.get(**ALL)
    assert account == {**ITEM, "large": Decimal("1E+40"), "numbers": {1, Decimal("1.5")}}
    assert type(account["balance"]) is int
    account["log"][0]["n"] = 7
    account["balance"] = 1

    assert tx.get(**ALL)["balance"] == 5
    (check,) = tx.seal()
    expected = [value for _, value in sorted((ITEM | more).items())]
    assert list(check.arguments["ExpressionAttributeValues"].values()) == expected[1:]


def test_one_request_reads_an_item_however_often_it_is_asked_for() -> None:
    fetch = Accounts(None)
    tx = Transaction(fetch)
    assert [tx.get(**ALL), tx.get(**PLACE, attributes=["frozen"]), tx.get(**NUMBER, check=False)] == [None] * 3
    tx.get(TableName="arn:aws:dynamodb:us-east-1:123456789012:table/accounts", Key={"account": "a"}, attributes=["n"])
    assert fetch.count == 1
    tx.get(TableName="accounts", Key={"account": "b"}, attributes=["n"])
    assert fetch.count == 2


# What is checked.

MISSING = "attribute_not_exists(frozen)"


@pytest.mark.parametrize(
    ("item", "names", "condition"),
    [
        (None, ["balance"], "attribute_not_exists(account)"),
        ({"account": "a"}, ["account"], "attribute_exists(account)"),
        (ONE, ["account"], "attribute_exists(account)"),
        (ONE, ("n", "account", "n"), "n = 1"),
        (ONE | {"other": 2}, {"n", "frozen"}, f"{MISSING} AND n = 1"),
        (ONE, ["frozen"], f"{MISSING} AND attribute_exists(account)"),
        ({"account": "a", "a.b": 1, "c": {"d": 2}}, ["a.b", "c.d"], "attribute_not_exists(c.d) AND a.b = 1"),
    ],
)
def test_what_is_named_is_checked_by_value_or_absence(item: PlainItem | None, names: Any, condition: str) -> None:
    """A name is an attribute's own, which may have a dot; it is no path. An item's key cannot change."""
    tx = transaction(item)
    tx.get(**PLACE, attributes=names)
    kind, _, found = checks(tx)[0].partition(": ")
    assert (kind, sorted(found.split(" AND "))) == ("ConditionCheck", sorted(condition.split(" AND ")))


LOOKS: list[Callable[[Any], object]] = [
    lambda it: None,
    lambda it: it.copy(),
    lambda it: it | {"m": 2},
    lambda it: {"m": 2} | it,
    lambda it: {**it},
    dict,
    list,
    len,
    lambda it: it == {"n": 1},
    json.dumps,
    copy.deepcopy,
    lambda it: pickle.loads(pickle.dumps(it)),
    lambda it: it.items(),
    lambda it: it.pop("n"),
    lambda it: it.clear(),
    lambda it: it.get("frozen"),
    lambda it: "frozen" in it.keys(),  # noqa: SIM118  # which is what is tested
]


@pytest.mark.parametrize("look", LOOKS)
def test_what_is_named_is_checked_whatever_the_handler_does_with_the_dict(look: Callable[[Any], object]) -> None:
    """By the action that writes the item, too."""
    for write in (False, True):
        tx = transaction(ONE | {"other": 3})
        account = tx.get(**PLACE, attributes=["n", "frozen"])
        if write:
            tx.update(**REMOVE)
        look(account)
        kind = "Update" if write else "ConditionCheck"
        assert checks(tx) == [f"{kind}: n = 1 AND {MISSING}"]


def test_a_copy_without_a_check_leaves_the_checks_as_they_were() -> None:
    tx = transaction(ONE)
    tx.get(**PLACE, attributes=["frozen"], check=False)
    assert tx.get(**NUMBER) == {"n": 1}
    tx.get(**PLACE, attributes=["account", "m"], check=False)
    assert checks(tx) == ["ConditionCheck: n = 1"]


def test_the_handlers_copy_is_as_a_dict_of_what_it_named() -> None:
    tx = transaction(ONE)
    account = tx.get(**PLACE, attributes=["n", "frozen", "m"])
    for copied in (copy.copy(account), copy.deepcopy(account), pickle.loads(pickle.dumps(account)), account.copy()):
        assert type(copied) is dict
    assert json.loads(json.dumps(account)) == {**account} == account | {} == {"n": 1}
    assert ("frozen" in account, account.get("frozen", 7), account.pop("frozen", 7)) == (False, 7, 7)
    assert (account.pop("n"), account.pop("n", 2), account.setdefault("n", 3), account["n"]) == (1, 2, 3, 3)
    account["own"] = 4
    assert (account["own"], "own" in account, [*account.keys()], account.keys() & {"n"}) == (
        4,
        True,
        ["n", "own"],
        {"n"},
    )
    del account["n"]
    assert ("n" in account, "n" in account.keys(), account.get("n", 7)) == (False, False, 7)  # noqa: SIM118  # likewise
    for missing in (lambda: account["frozen"], lambda: account.pop("n")):
        with pytest.raises(KeyError):
            missing()


@pytest.mark.parametrize(
    "look_up",
    [
        lambda it: it["frozen"],
        lambda it: it.get("frozen"),
        lambda it: it.get("frozen", False),
        lambda it: "frozen" in it,
        lambda it: "frozen" in it.keys(),  # noqa: SIM118  # likewise
        lambda it: it.pop("frozen", None),
        lambda it: it.setdefault("frozen", False),
        "{frozen}".format_map,
    ],
)
@pytest.mark.parametrize("check", [True, False])
def test_a_name_that_was_not_read_raises(look_up: Callable[[Any], object], check: bool) -> None:
    """Even if another read of the item named it, and whether or not the item has it."""
    for item in (ITEM, ONE):
        tx = transaction(item)
        tx.get(**PLACE, attributes=["frozen"])
        account = tx.get(**PLACE, attributes=["balance"], check=check)
        with pytest.raises(
            LookupError, match=r"accounts was read without 'frozen': name it in `attributes=`"
        ) as raised:
            look_up(account)
        assert not isinstance(raised.value, KeyError), "a handler may take that for a missing attribute"


@pytest.mark.parametrize("own", ["m = :m) OR (m = :k", "(m = :m", "m = :m)", ")("])
def test_a_condition_with_an_unpaired_parenthesis_cannot_end_the_reads_own(own: str) -> None:
    """It is refused without a read, too: DynamoDB's syntax has no such expression."""
    tx = transaction()
    tx.get(**PLACE, attributes=["balance"])
    with pytest.raises(ValueError, match="ConditionExpression on accounts has an unpaired parenthesis"):
        tx.update(
            **PLACE,
            UpdateExpression="SET m = :m",
            ConditionExpression=own,
            ExpressionAttributeValues={":m": 7, ":k": 2},
        )


def test_a_placeholder_that_the_handler_does_not_define_finds_none_of_the_reads() -> None:
    tx = transaction()
    tx.get(**PLACE, attributes=["balance"])
    tx.update(**PLACE, UpdateExpression="SET #r0 = :v", ExpressionAttributeValues={":v": 1})
    (action,) = tx.seal()
    assert "#r0" not in action.arguments["ExpressionAttributeNames"]


@pytest.mark.parametrize(
    "look_up",
    [lambda account: ("frozen", True) in account.items(), lambda account: account.items() >= {("frozen", True)}],
)
def test_a_pair_whose_name_was_not_read_raises(look_up: Callable[[Any], object]) -> None:
    account = transaction().get(**PLACE, attributes=["balance"])
    with pytest.raises(LookupError, match="without 'frozen'"):
        look_up(account)
    assert dict(account.items()) == dict(account) == json.loads(json.dumps(account))


class Forbidding(BaseModel, extra="forbid"):
    """It refuses what it has no field for, its field's own name included."""

    balance: int = Field(alias="bal")


def test_a_model_gets_nothing_that_it_does_not_take() -> None:
    tx = transaction({"account": "a", "bal": 1, "balance": 2})
    assert tx.get(**PLACE, attributes=Forbidding) == Forbidding(bal=1)


def test_a_pattern_with_a_name_that_was_not_read_raises() -> None:
    with pytest.raises(LookupError, match="without 'frozen'"):  # noqa: PT012  # a statement
        match transaction().get(**PLACE, attributes=["balance"]):
            case {"frozen": True}:
                pass


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
    absent = {"attribute_not_exists(locks)"}
    assert check.startswith(f"ConditionCheck: balance = {balance} AND frozen = False AND ")
    assert {*check.split(" AND ")[2:]} == absent
    assert transaction(None).get(**PLACE, attributes=Account) is None


class Aliased(BaseModel):
    """Its aliases are generated once its forward reference is known."""

    model_config = ConfigDict(alias_generator=str.upper)
    first: Later | None = None


class Later(BaseModel):
    """Declared after the model that needs it."""


class ByName(Aliased):
    """It takes a field's own name, too."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)


class Inherited(Account):
    """It reads what it inherits, too."""

    limit: int | None = None


Value = TypeVar("Value")


class OfAny(BaseModel, Generic[Value]):
    """A field of any type."""

    balance: Value


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (Aliased, {"FIRST"}),
        (ByName, {"first", "FIRST"}),
        (Inherited, {"balance", "frozen", "locks", "limit"}),
        (OfAny[int], {"balance"}),
        (OfAny, {"balance"}),
    ],
)
def test_a_model_reads_the_names_by_which_it_takes_its_fields(model: type[BaseModel], names: set[str]) -> None:
    assert reads.names_of(model) == names


class Renaming(BaseModel):
    """Looks for a name that is no field."""

    balance: int = 0

    @model_validator(mode="before")
    @classmethod
    def renamed(cls, given: dict[str, Any]) -> dict[str, Any]:
        return {"balance": given["saldo"]} if "saldo" in given else given


def test_a_models_validator_finds_nothing_that_was_not_read_either() -> None:
    with pytest.raises(LookupError, match="accounts was read without 'saldo'"):
        transaction({"account": "a", "saldo": 5}).get(**PLACE, attributes=Renaming)
    found = transaction({"account": "a", "saldo": 5}).get(**PLACE, attributes=["balance", "saldo"])
    assert Renaming.model_validate(found) == Renaming(balance=5)


def test_reads_of_one_item_check_all_that_they_name() -> None:
    """Each gives what it named."""
    tx = transaction(ONE | {"m": 2})
    assert tx.get(**PLACE, attributes=["n", "m"], check=False) == {"n": 1, "m": 2}
    assert tx.checks() == ()
    assert tx.get(**PLACE, attributes=["m"]) == {"m": 2}
    assert tx.get(**NUMBER) == {"n": 1}
    assert checks(tx) == ["ConditionCheck: m = 2 AND n = 1"]
    assert transaction().seal() == ()


def test_equal_reads_have_equal_conditions() -> None:
    """However the names and the item are ordered, so that commits in one request can share a check."""
    one, other = transaction({"a": 1, "b": 2, "account": "a"}), transaction({"account": "a", "b": 2, "a": 1})
    one.get(**PLACE, attributes=["a", "b", "c", "d"])
    other.get(**PLACE, attributes=["d", "c", "b", "a"])
    assert repr(one.seal()[0].arguments) == repr(other.seal()[0].arguments)


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
    tx.get(**NUMBER)
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
        tx.get(TableName="accounts", Key={"account": account}, attributes=["n"])
    tx.update(**REMOVE)
    tx.delete(TableName="accounts", Key={"account": "b"})
    tx.check(TableName="accounts", Key={"account": "c"}, ConditionExpression="attribute_exists(x)")
    tx.put(TableName="others", Item={"account": "d"})

    merged = ["Update: n = 1", "Delete: n = 1", "ConditionCheck: n = 1 AND (attribute_exists(x))"]
    assert checks(tx) == [*merged, "Put: ", "ConditionCheck: n = 1"]
    assert [action.read is not None for action in tx.seal()] == [True, True, True, False, True]
    assert tx.seal()[-1].is_stale(ONE), "a check of its own has nothing else that could fail"
    assert [action.arguments["Key"]["account"] for action in tx.checks()] == list("abcd")


# What is refused.


def test_an_item_is_read_before_it_is_written() -> None:
    for method, arguments in {"put": WHOLE, "update": REMOVE, "delete": PLACE}.items():
        tx = transaction(None)
        tx.get(**NUMBER)
        getattr(tx, method)(**arguments)
        with pytest.raises(ValueError, match=r"action 1 \(.* on accounts\) writes this item: read it before"):
            tx.get(**NUMBER)


@pytest.mark.parametrize(
    ("item", "check"), [(ITEM, True), (ITEM, False), (None, False)], ids=["read", "unchecked", "absent, unchecked"]
)
def test_a_put_of_an_item_that_was_read_is_refused(item: PlainItem | None, check: bool) -> None:
    """It would remove what others have added since, whatever was named. An update or a delete is not refused."""
    for method, arguments in {"update": REMOVE, "delete": PLACE}.items():
        tx = transaction(item)
        tx.get(**ALL, check=check)
        tx.put(TableName="accounts", Item={"account": "another"})
        with pytest.raises(ValueError, match=r"a transaction's Put on accounts: the item was read, .*: use update"):
            tx.put(**WHOLE)
        getattr(tx, method)(**arguments)
        assert [action.kind for action in tx.actions] == ["Put", method.capitalize()]


def test_a_put_of_an_item_that_was_absent_makes_it_if_it_still_is() -> None:
    tx = transaction(None)
    tx.get(**NUMBER, check=False)
    tx.get(**NUMBER)
    tx.put(**WHOLE)
    assert checks(tx) == ["Put: attribute_not_exists(account)"]


def test_a_transaction_of_ones_own_has_nothing_to_read_from() -> None:
    with pytest.raises(TypeError, match="no store to read from"):
        Transaction().get(**NUMBER)


class Open(BaseModel):
    """Takes any attribute."""

    model_config = ConfigDict(extra="allow")
    balance: int


class OpenToo(Open):
    """Takes any attribute, by inheritance."""


class Typed(TypedDict):
    """No model."""

    balance: int


@dataclasses.dataclass
class Plain:
    """No model."""

    balance: int


class Empty(BaseModel):
    """Names nothing."""


NEEDED = r"get needs attributes to read: a list of names, such as \['balance'\], or a pydantic model"


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ({"Key": {"account": "a"}}, TypeError, "get needs TableName"),
        ({"TableName": "accounts"}, TypeError, "get needs Key"),
        ({**NUMBER, "ProjectionExpression": "n"}, TypeError, "get takes no ProjectionExpression"),
        ({**NUMBER, "Key": {"account": ""}}, ValueError, "Key.account"),
        ({**NUMBER, "TableName": None}, TypeError, "TableName takes a non-empty str"),
        (PLACE, TypeError, NEEDED),
        *(
            ({**PLACE, "attributes": wrong}, TypeError, NEEDED)
            for wrong in (None, "balance", b"balance", {"balance": 1}, 5, Typed, Plain, Account | None, str)
        ),
        *(
            ({**PLACE, "attributes": wrong}, ValueError, "takes attribute names; to read only whether .* name its key")
            for wrong in ([], [""], [None], [["balance"]], ["balance", 5], Empty, Account(balance=5), list[Account])
        ),
        *(
            (
                {**PLACE, "attributes": wrong},
                TypeError,
                rf"{re.escape(wrong.__name__)} takes any attribute .*: give it a field",
            )
            for wrong in (Open, OpenToo, RootModel[dict[str, int]])
        ),
    ],
)
def test_wrong_arguments_are_refused_before_a_read(wrong: dict[str, Any], error: type[Exception], text: str) -> None:
    fetch = Accounts()
    tx = Transaction(fetch)
    with pytest.raises(error, match=text) as raised:
        tx.get(**wrong)
    assert fetch.count == 0
    assert tx.unread is raised.value


def wide(count: int, length: int = 1) -> dict[str, Any]:
    """An item with so many attributes, read whole."""
    return {"account": "a"} | {f"{number:0{length}}": 1 for number in range(count)}


def test_more_than_a_condition_can_check_is_refused_at_the_call() -> None:
    for fits in (wide(150), wide(99, length=30)):
        tx = transaction(fits)
        tx.get(**PLACE, attributes=fits.keys())
        assert tx.unread is None
    tx = transaction(wide(149))
    tx.get(**PLACE, attributes=[*wide(149), "the last name that fits"])
    with pytest.raises(ValueError, match=TOO_MANY):
        tx.get(**PLACE, attributes=["one more"])
    large = transaction(wide(151))
    with pytest.raises(ValueError, match=TOO_MANY):
        large.get(**PLACE, attributes=wide(151).keys())
    assert large.get(**PLACE, attributes=wide(151).keys(), check=False)["150"] == 1
    assert large.get(**PLACE, attributes=["0"]) == {"0": 1}
    long = f"n = :n OR attribute_exists({'n' * 4080})"
    with pytest.raises(ValueError, match="`attributes=`"):
        large.update(**REMOVE, ConditionExpression=long, ExpressionAttributeValues={":n": 1})


def test_what_was_read_counts_among_the_actions() -> None:
    tx = transaction()
    tx.get(**NUMBER)
    tx.get(TableName="accounts", Key={"account": "unchecked"}, attributes=["n"], check=False)
    for number in range(MOST_ACTIONS - 1):
        tx.delete(TableName="others", Key={"id": number})
    tx.get(**NUMBER)
    for account in ("one more", "unchecked"):
        with pytest.raises(ValueError, match="at most 99 actions"):
            tx.get(TableName="accounts", Key={"account": account}, attributes=["n"])
    tx.delete(**PLACE)
    assert len(tx.seal()) == MOST_ACTIONS


def test_after_the_handler_nothing_is_read_and_a_copy_is_an_ordinary_dict() -> None:
    """It may be the handler's result."""
    tx = transaction()
    some = tx.get(**PLACE, attributes=["balance"])
    assert some is not None
    tx.seal()
    with pytest.raises(RuntimeError, match="the handler has already returned"):
        tx.get(**NUMBER)
    asked: list[Any] = []
    with suppress(LookupError):
        asked += [some.get("frozen"), "frozen" in some]
    assert asked == [None, False]


# Who asks at the same time.


def test_a_coroutine_reads_with_aget_alone() -> None:
    tx = Transaction(Accounts(), asynchronous=True)

    async def handler() -> Any:
        with pytest.raises(RuntimeError, match=r"`await tx.aget\(...\)`"):
            tx.get(**NUMBER)
        assert await asyncio.to_thread(tx.get, **ALL) == ITEM
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
            await asyncio.wait_for(tx.aget(**NUMBER), 0.01)
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
        reading = pool.submit(tx.get, **NUMBER)
        assert fetch.asked.wait(10)
        tx.seal()
        assert "had no answer when the handler ended" in str(tx.unread)
        fetch.may_answer.set()
        with pytest.raises(RuntimeError, match="the handler has already returned"):
            reading.result()


def test_threads_that_read_one_item_get_one_read() -> None:
    tx = transaction(ONE)
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda _: tx.get(**NUMBER), range(8)))
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
    one, both = (Read("T", {"id": 1}, item, frozenset(names)) for names in (["value"], ["value", "absent"]))
    none = Read("T", {"id": 1}, None, frozenset(["value"]))
    founds = (item | {"value": found, "new": 1}, {"id": 1}, None)
    for present in (one, both):
        assert [present.stands(each) for each in founds] == [stands, False, False]
    assert both.stands(item | {"absent": 1}) is False
    assert [none.stands(each) for each in (None, {"id": 1})] == [True, False]


def test_a_condition_may_have_exactly_as_many_operators_and_bytes_as_dynamodb_allows() -> None:
    most = " and ".join(["a=:a"] * (MOST_OPERATORS // 2))
    reads.require_expressible({"ConditionExpression": most}, "accounts")
    reads.require_expressible({"ConditionExpression": "a" * reads.MOST_EXPRESSION_BYTES}, "accounts")
    for more in (f"{most} AND a=:a", "a" * (reads.MOST_EXPRESSION_BYTES + 1)):
        with pytest.raises(ValueError, match="more attributes than one condition can check"):
            reads.require_expressible({"ConditionExpression": more}, "accounts")
