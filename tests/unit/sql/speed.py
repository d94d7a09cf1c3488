"""`python -m tests.unit.sql.speed`: what a hundred messages with one UPDATE each cost on PostgreSQL, ours and by hand.

By hand is a Session of its own for each message, with an INSERT of the key. Least of nine, in milliseconds.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine, insert, update
from sqlalchemy.orm import Session

from tests.engines.databases import postgresql
from tests.unit.sql.bank import Bank, deliver
from tests.unit.sql.storm import Silent

if TYPE_CHECKING:
    from collections.abc import Callable

MESSAGES, ROUNDS = 100, 9


def cost(run: Callable[[], object]) -> tuple[float, float]:
    """Milliseconds of the wall clock, and of this process's CPU."""
    began, busy = time.perf_counter(), time.process_time()
    run()
    return (time.perf_counter() - began) * 1000, (time.process_time() - busy) * 1000


def main() -> None:
    """Print the table."""
    with postgresql(durable=True) as url:
        engine = create_engine(url)
        bank = Bank(engine)
        with engine.begin() as at:
            at.execute(update(bank.accounts).values(balance=1_000_000))

        def handle(body: dict[str, Any], session: Session) -> None:
            session.execute(bank.pay(1))

        consumer = bank.consumer(handle, logger=Silent(), metrics=Silent())

        def ours(number: int) -> None:
            ids = [f"{number}-{place}" for place in range(MESSAGES)]
            assert deliver(consumer, *[{}] * MESSAGES, ids=ids) == []

        def by_hand(number: int) -> None:
            for place in range(MESSAGES):
                with Session(engine) as session, session.begin():
                    session.execute(insert(bank.records).values(id=f"by-hand-{number}-{place}", status="COMPLETED"))
                    session.execute(bank.pay(1))

        found: dict[str, list[tuple[float, float]]] = {"ours": [], "by hand": []}
        for number in range(ROUNDS):
            found["ours"].append(cost(lambda number=number: ours(number)))  # type: ignore[misc]
            found["by hand"].append(cost(lambda number=number: by_hand(number)))  # type: ignore[misc]
        for name, costs in found.items():
            wall, cpu = (min(each) for each in zip(*costs, strict=True))
            print(f"{name:8} wall {wall:5.0f} CPU {cpu:5.0f}")
        engine.dispose()


if __name__ == "__main__":
    main()
