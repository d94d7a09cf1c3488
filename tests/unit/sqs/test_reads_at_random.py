"""Random handlers that read and write the same few accounts: each outcome stands on what is there when it commits."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import PermanentError, Transaction
from idempotent_receiver.protocol.store import Applied
from tests.unit.sqs.test_reads import MODES, Bank, deliver, messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from idempotent_receiver.protocol.store import ActionFailed, Commit, Written

MESSAGES = 40
Seen = list[tuple[str, list[str], Mapping[str, Any] | None]]


class WatchedBank(Bank):
    """Compares what each commit's run had read with what is there, and lets somebody else deposit now and then."""

    def __init__(self, random: Random, names: str, disturbance: float) -> None:
        super().__init__(**{name: 1 for name in names if random.random() < 0.8})
        self.random, self.names, self.disturbance = random, names, disturbance
        self.seen: dict[int, Seen] = {}
        self.stood = 0

    def commit(self, commits: Sequence[Commit]) -> Sequence[Written | ActionFailed]:
        answers: list[Written | ActionFailed] = []
        for commit in commits:
            if self.accounts and self.random.random() < self.disturbance:
                self.change(self.random.choice(list(self.accounts)), balance=self.random.randrange(100))
            before = {name: dict(item) for name, item in self.accounts.items()}
            answers += super().commit([commit])
            if isinstance(answers[-1], Applied):
                self._check(before, commit)
        return answers

    def _check(self, before: Mapping[str, Mapping[str, Any]], commit: Commit) -> None:
        record = commit.change.new
        run = json.loads(record.data) if record.data else int(json.loads(str(record.error))["text"])
        for name, attributes, found in self.seen[run]:
            item = before.get(name)
            if item is not None:
                item = {each: item[each] for each in attributes if each in item}
            assert item == found, f"run {run} had read another {name}"
            self.stood += 1


class Handlers:
    """What each message does: the same in each of its runs, as far as it reads the same."""

    def __init__(self, seed: int, bank: WatchedBank) -> None:
        self.seed, self.bank, self.runs = seed, bank, Counter[int]()

    def plain(self, body: dict, tx: Transaction) -> int:
        number, random, reads = self._begin(body)
        found = [tx.get(**of(name), attributes=attributes) for name, attributes in reads]
        return self._end(number, random, reads, found, tx)

    async def coroutine(self, body: dict, tx: Transaction) -> int:
        number, random, reads = self._begin(body)
        found = await asyncio.gather(*(tx.aget(**of(name), attributes=attributes) for name, attributes in reads))
        return self._end(number, random, reads, found, tx)

    def _begin(self, body: dict[str, Any]) -> tuple[int, Random, list[tuple[str, list[str]]]]:
        self.runs[body["n"]] += 1
        random, names = Random(self.seed * 1000 + body["n"]), self.bank.names
        several = random.sample(names, random.randrange(len(names) + 1))
        reads = [(name, random.choice([["balance"], ["account", "balance", "n"]])) for name in several]
        return body["n"] * 100 + self.runs[body["n"]], random, reads

    def _end(self, run: int, random: Random, reads: Any, found: Sequence[Any], tx: Transaction) -> int:
        self.bank.seen[run] = [(*read, each and dict(each)) for read, each in zip(reads, found, strict=True)]
        total = sum(each["balance"] for each in found if each is not None)
        if random.random() < 0.1 and total % 2:
            raise PermanentError(str(run))
        for name in random.sample(self.bank.names, random.randrange(len(self.bank.names) + 1)):
            # Whether it writes follows from what it has read: a check that many share may become a write.
            if total % 3 == 0 and random.random() < 0.5:
                continue
            there = any(name == read and each is not None for (read, _), each in zip(reads, found, strict=True))
            if there or random.random() < 0.5:
                values = {":total": total + 1, ":one": 1}
                tx.update(
                    **of(name), UpdateExpression="SET balance = :total ADD n :one", ExpressionAttributeValues=values
                )
            elif random.random() < 0.7:
                tx.put(TableName="accounts", Item={"account": name, "balance": total})
            else:
                tx.delete(**of(name))
        return run


def of(name: str) -> dict[str, Any]:
    return {"TableName": "accounts", "Key": {"account": name}}


@pytest.mark.parametrize("disturbance", [0, 0.05])
@pytest.mark.parametrize("seed", range(20))
def test_what_a_run_has_read_is_there_when_it_commits(seed: int, disturbance: float) -> None:
    random = Random(seed)
    bank = WatchedBank(random, "abcd"[: random.choice([1, 2, 4])], disturbance)
    handlers = Handlers(seed, bank)
    handler = random.choice([handlers.plain, handlers.coroutine])
    effects, concurrency = random.choice(MODES), random.choice([1, 3, 16])

    failed = deliver(bank, handler, *messages(MESSAGES), effects=effects, concurrency=concurrency)

    errors = [json.loads(bank.items[id]["error"]) for id in failed]
    assert [error["type"] for error in errors if error["type"] != "PermanentError"] == [], "none is always overtaken"
    assert bank.stood > 0
