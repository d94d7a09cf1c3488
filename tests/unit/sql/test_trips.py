"""How many round trips a message costs: a placeholder, its lock and its record ride with BEGIN and COMMIT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Connection, create_engine, insert

from harness.trips import counted
from tests.unit.sql.bank import deliver

if TYPE_CHECKING:
    from tests.unit.sql.bank import Bank

MESSAGES = 20


@pytest.mark.parametrize(("driver", "most"), [("psycopg", 3), ("psycopg2", 5)])
def test_a_message_with_one_statement(on_postgresql: Bank, driver: str, most: int) -> None:
    """Three round trips by psycopg 3; by hand, with an INSERT of the key, four; by another driver one more than that.
    psycopg 3 prepares a statement that it has sent five times, which costs one trip more in all.
    """

    def handle(body: dict[str, Any], at: Connection) -> None:
        at.execute(bank.pay(1))

    url = on_postgresql.engine.url.set(drivername=f"postgresql+{driver}")
    with counted(url.port or 0) as (port, trips):
        engine = create_engine(url.set(port=port))
        bank = on_postgresql.by(engine)
        consumer = bank.consumer(handle)
        assert deliver(consumer, {}, ids=["first"]) == []  # connects, and learns of the server
        trips.reset()
        assert deliver(consumer, *[{}] * MESSAGES) == []
        of_ours = trips.count
        trips.reset()
        for number in range(MESSAGES):
            with engine.begin() as at:
                at.execute(insert(bank.records).values(id=f"by-hand-{number}", status="COMPLETED"))
                at.execute(bank.pay(1))
        by_hand = trips.count
        engine.dispose()

    prepared = driver == "psycopg"
    assert (of_ours, by_hand) == (most * MESSAGES + prepared, 4 * MESSAGES + prepared)
