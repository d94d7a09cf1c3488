"""The store in memory and a real engine under the same random operations: the same answers, and the same tables.

Hypothesis chooses what is inserted, read, replaced and committed, on which versions (also stale ones), and what
other writers do to the table. Each example has its own ids and accounts, so that one table serves all.
"""

from __future__ import annotations

import itertools
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from idempotent_receiver import Transaction
from idempotent_receiver.protocol.record import Change, Record, from_attributes
from idempotent_receiver.protocol.store import ActionFailed, Applied, Conflict, NotApplied
from tests.engines.engine import Memory
from tests.engines.sample_records import version
from tests.many_operations import commit_one

if TYPE_CHECKING:
    from collections.abc import Sequence

    from idempotent_receiver.protocol.store import Written
    from idempotent_receiver.transaction.action import Action
    from tests.engines.engine import DynamoDB

EXAMPLES = 25 if settings.default is None else settings.default.max_examples // 8
STEPS = 25
ACCOUNTS = 3

_runs = itertools.count()

names = st.integers(0, 3).map(str)
"""Few, so that much happens to each."""

several = st.one_of(
    st.lists(names, min_size=1, unique=True),
    st.lists(names, min_size=1, unique=True),
    st.integers(20, 30).map(lambda count: [str(number) for number in range(count)]),
)
ages = st.sampled_from([0, 0, 0, 1, 2])
"""Which of an id's versions a change has seen: its latest, or one of those before."""

shapes = st.fixed_dictionaries(
    {"status": st.sampled_from(["INPROGRESS", "COMPLETED", "FAILED"])},
    optional={
        "expiration": st.sampled_from([0, 1, 1_800_000_000, 10**30]),
        "in_progress_expiration": st.sampled_from([0, -5, 1_800_000_000_123]),
        "attempts": st.integers(-1, 3),
        "data": st.sampled_from(["", "{}", "\0", "größe"]),
        "validation": st.just("f"),
        "error": st.just("{}"),
        "owner": st.sampled_from(["w", "\N{GRINNING FACE}"]),
    },
)
"""A record's attributes besides id and version."""

foreign = st.builds(
    dict.__or__, shapes, st.fixed_dictionaries({}, optional={"tenant": st.just("blue"), "tags": st.just({"a", "b"})})
)
"""What somebody else puts: without a version, and with attributes that are none of ours."""

accounts = st.integers(0, ACCOUNTS - 1).map(str)
amounts = st.integers(-9, 9) | st.just(Decimal("0.5"))
kinds = st.sampled_from(["credit", "first", "debit", "remove", "check", "absent", "text", "append"])
writes = st.lists(st.tuples(kinds, accounts, amounts), max_size=3, unique_by=lambda write: write[1]) | st.lists(
    st.tuples(kinds, accounts, amounts), max_size=3
)
"""What a handler wants: on distinct items, mostly, as it must."""


class Twins(RuleBasedStateMachine):
    """The two engines, with the same requests to both."""

    def __init__(self, real: DynamoDB) -> None:
        super().__init__()
        self.memory, self.real = Memory(), real
        self.memory.accounts = real.accounts
        self.memory.store = type(self.memory.store)(tables={real.accounts: "account"})
        self.run = next(_runs)
        self.versions: dict[str, list[Record]] = {}
        self.commits: dict[tuple[str, str | None], tuple[Change, tuple[Action, ...]]] = {}

    def id(self, name: str) -> str:
        return f"{self.run}/{name}"

    # The workers' requests.

    @rule(chosen=several, shape=shapes)
    def insert(self, chosen: list[str], shape: dict[str, Any]) -> None:
        records = [Record(id=self.id(name), version=version(), **shape) for name in chosen]

        ours, theirs = self.memory.store.insert(records), self.real.store.insert(records)

        agree(ours, theirs)
        for record, answer in zip(records, ours, strict=True):
            self._note(record, answer)

    @rule(chosen=several)
    def read(self, chosen: list[str]) -> None:
        ids = [self.id(name) for name in chosen]

        assert list(self.memory.store.read(ids)) == list(self.real.store.read(ids))

    @rule(chosen=several, shape=shapes, age=ages)
    def replace(self, chosen: list[str], shape: dict[str, Any], age: int) -> None:
        changes = [self._change(self.id(name), shape, age) for name in chosen]

        ours, theirs = self.memory.store.replace(changes), self.real.store.replace(changes)

        agree(ours, theirs)
        for change, answer in zip(changes, ours, strict=True):
            self._note(change.new, answer)

    @rule(shape=shapes, wanted=writes)
    def claim_and_commit(self, shape: dict[str, Any], wanted: list[tuple[str, str, Any]]) -> None:
        """The usual case: no other writer comes between."""
        name = f"claimed-{len(self.versions)}"
        self.insert([name], shape)
        self.commit(name, shape, 0, wanted)

    @rule(name=names, shape=shapes, age=ages, wanted=writes)
    def commit(self, name: str, shape: dict[str, Any], age: int, wanted: list[tuple[str, str, Any]]) -> None:
        change = self._change(self.id(name), shape, age)
        assert change.seen is not None
        if change.seen.version is None:
            return  # a transaction settles a claim, and a claim has a version
        # A claim has one transaction; when it is sent again, it is byte for byte the same.
        place = (change.new.id, change.seen.version)
        change, actions = self.commits.setdefault(place, (change, self._actions(wanted)))

        ours, theirs = commit_one(self.memory.store, change, actions), commit_one(self.real.store, change, actions)

        if change.new in self.versions.get(change.new.id, ()):
            assert all(isinstance(answer, Applied | Conflict) for answer in (ours, theirs))
        else:
            agree([ours], [theirs])
            self._note(change.new, ours)

    # Other writers.

    @rule(name=names, item=foreign)
    def put(self, name: str, item: dict[str, Any]) -> None:
        whole = {"id": self.id(name), **item}
        self.memory.put(whole)
        self.real.put(whole)
        self.versions.setdefault(whole["id"], []).append(from_attributes(whole))

    @rule(name=names)
    def vanish(self, name: str) -> None:
        self.memory.store.items.pop(self.id(name), None)
        self.real.vanish(self.id(name))

    def teardown(self) -> None:
        """The tables are equal."""
        ids = {*self.memory.store.items, *self.versions}
        for id in ids:
            assert self.memory.item(id) == self.real.item(id)
        for number in range(ACCOUNTS):
            account = self._account(str(number))
            assert self.memory.account(account) == self.real.account(account)

    # Helpers.

    def _note(self, record: Record, answer: Written | ActionFailed) -> None:
        if answer == Applied():
            self.versions.setdefault(record.id, []).append(record)

    def _change(self, id: str, shape: dict[str, Any], age: int) -> Change:
        """A change of an earlier version, or of one that never existed."""
        seen = self.versions.get(id) or [Record(id=id, status="INPROGRESS", version="never written")]
        old = seen[max(-len(seen), -1 - age)]
        return Change(Record(id=id, version=version(), **shape), old)

    def _account(self, account: str) -> str:
        return f"{self.run}/{account}"

    def _actions(self, wanted: list[tuple[str, str, Any]]) -> tuple[Action, ...]:
        tx = Transaction()
        for kind, account, amount in wanted:
            self._act(tx, kind, {"account": self._account(account)}, amount)
        return tx.actions

    def _act(self, tx: Transaction, kind: str, key: dict[str, Any], amount: Any) -> None:
        table = self.real.accounts
        values: dict[str, Any] = {"ExpressionAttributeValues": {":a": amount}}
        match kind:
            case "credit":
                tx.update(TableName=table, Key=key, UpdateExpression="ADD balance :a", **values)
            case "first":
                item = {**key, "balance": amount, "raw": b"\0", "none": None}
                tx.put(TableName=table, Item=item, ConditionExpression="attribute_not_exists(account)")
            case "debit":
                values["ConditionExpression"] = "balance >= :a"
                tx.update(TableName=table, Key=key, UpdateExpression="SET balance = balance - :a", **values)
            case "remove":
                tx.delete(TableName=table, Key=key)
            case "check":
                tx.check(TableName=table, Key=key, ConditionExpression="balance < :a", **values)
            case "absent":
                tx.check(TableName=table, Key=key, ConditionExpression="attribute_not_exists(balance)")
            case "text":
                tx.put(TableName=table, Item={**key, "balance": "none", "lines": ["a", {"b": True}]})
            case "append":
                text = "SET #l = list_append(if_not_exists(#l, :none), :l)"
                values = {"ExpressionAttributeValues": {":none": [], ":l": [amount]}}
                values["ExpressionAttributeNames"] = {"#l": "lines"}
                tx.update(TableName=table, Key=key, UpdateExpression=text, **values)


def agree(ours: Sequence[Written | ActionFailed], theirs: Sequence[Written | ActionFailed]) -> None:
    """Assert that two stores have answered the same; one of them may omit the record that a conflict has found."""
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        match one, other:
            case Conflict(), Conflict(found=None):
                pass
            case NotApplied(retry=retry), NotApplied():
                assert other.retry == retry
            case _:
                assert one == other, f"memory says {one}, the engine {other}"


def test_memory_and_an_engine_are_twins(wired_engine: DynamoDB) -> None:
    """Whatever the requests, their order and their versions."""
    few = settings(max_examples=EXAMPLES, stateful_step_count=STEPS)
    run_state_machine_as_test(partial(Twins, wired_engine), settings=few)  # type: ignore[arg-type]  # takes a factory, too


def test_twins_that_differ_are_told_apart() -> None:
    """An answer of another kind, another record or another action is a difference."""
    record = Record(id="k", status="COMPLETED", version="v")
    conflicts = [Conflict(record), Conflict(record._replace(version="w"))]
    not_applied = [NotApplied("x", retry=retry) for retry in (False, True)]
    for pair in itertools.permutations([Applied(), ActionFailed(0), ActionFailed(1), *conflicts, *not_applied], 2):
        with pytest.raises(AssertionError):
            agree(pair[:1], pair[1:])
