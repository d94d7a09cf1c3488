"""Three commands at random on one or two dead letters, each perhaps killed: each message takes effect once.

`--force` and `delete` are left out: the first may run twice what is older than its record, the second loses on purpose.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from idempotent_receiver import body_field
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.protocol.resend import resent
from tests.unit.operations.dead_letters.night import BAD_FIX, OLD, SECOND, Night

COMMANDS = ("redrive", "fix", "other-fix", "bad-fix", "as-old", "as-second", "finish", "stuck", "archive", "to-dlq")
MOST_WRITES = 8


@pytest.mark.parametrize("seed", range(40))
def test_each_message_takes_effect_once_whatever_three_commands_do(seed: int) -> None:
    judge(seed)


@pytest.mark.parametrize("hundred", range(1, 21))
def test_each_message_takes_effect_once_in_many_nights(hundred: int) -> None:
    for seed in range(hundred * 100, hundred * 100 + 100):
        judge(seed)


def judge(seed: int) -> None:
    """Play one night, and follow each message to its effect."""
    chance = random.Random(seed)
    by_body = chance.random() < 0.6
    key: dict[str, Any] = {"key": body_field("name")} if by_body else {}
    bank = Night(
        fifo=chance.random() < 0.5, effects=chance.choice(("any", "transaction")), refused=frozenset([BAD_FIX]), **key
    )
    bodies = [OLD, SECOND][: chance.choice((1, 2))]
    for body in bodies:
        bank.letter(body, known=chance.random() < 0.7)
    old = {each.dead_letter.record_id for each in bank.taken()}
    running, told = chance.random() < 0.5, []
    for _ in range(3):
        command, write = chance.choice(COMMANDS), chance.choice((0, *range(1, MOST_WRITES)))
        ended = bank.killed(command, write) if write else bank.do(command)
        told.append((command, write, ended))
        if running:
            bank.deliver()
    bank.refused = frozenset()
    bank.settle()
    bank.settle()

    night = (seed, bank.fifo, bank.effects, by_body, bodies, told)
    assert (bank.queue.messages, bank.dead.messages, bank.bucket.objects) == ([], [], {}), night
    ends = {end_of(bank, id) for id in old}
    assert bank.ran.total() == len(ends), (night, bank.ran, ends)
    assert not by_body or set(bank.ran.values()) == {1}, (night, bank.ran)


def end_of(bank: Night, id: str) -> str:
    """The record under which a message took effect: its own, or the one that its resends lead to."""
    for _ in range(6):
        (record,) = bank.records.read([id])
        assert isinstance(record, Record)
        assert record.status == "COMPLETED", (id, record)
        by = resent(record)
        if by is None:
            return id
        id = by.new_id
    raise AssertionError("resends in a circle")
