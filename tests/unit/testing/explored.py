"""What the tables of wrong and right handlers share: what handlers call, and how a row says what `explore` finds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from idempotent_receiver.testing import Table
from tests.unit.testing.handlers import ORDER, accounts

if TYPE_CHECKING:
    from collections.abc import Callable

    from idempotent_receiver import Transaction
    from idempotent_receiver.testing import Calls

ALIKE = [ORDER, {**ORDER, "order": "o-2"}]
"""Two messages that only their orders' names tell apart."""


class Declined(Exception):
    """The payment service refuses, and nothing has happened."""


def charge(cents: int, key: str | None = None, at: object = None) -> None:
    """A payment service."""


def backup(cents: int, key: str | None = None) -> None:
    """Another payment service."""


def refund(cents: int, key: str | None = None) -> None:
    """The same payment service."""


def mail(text: str) -> None:
    """A mail service that knows no keys."""


async def notify(text: str, key: str | None = None) -> None:
    """A service that is awaited."""


services = SimpleNamespace()
balances: dict[str, int] = {}
journal: list[Any] = []
seen: set[str] = set()
STATE = {"balances": balances, "journal": journal, "seen": seen}
tables: dict[str, Table] = {}


def begin(calls: Calls) -> None:
    """Put fakes in the places of all services, and everything as it was."""
    for service in (charge, backup, refund, mail, notify):
        setattr(services, service.__name__, service)
    for name in ("charge", "backup", "refund", "notify"):
        calls.replace(services, name, key="key", raises=ConnectionError("reset"), refuses=Declined("no funds"))
    calls.replace(services, "mail")
    for container in STATE.values():
        container.clear()  # type: ignore[attr-defined]  # all three have it
    balances["alice"] = 100
    tables.clear()
    tables.update(**accounts(), orders=Table("order"))


def balance(account: str) -> Any:
    """A look-up by a client of one's own."""
    return tables["accounts"].items[account,]["balance"]


def record(order: dict[str, Any], tx: Transaction, status: str = "paid", **more: Any) -> None:
    tx.put(TableName="orders", Item={"order": order["order"], "status": status, **more})


class Row(NamedTuple):
    """A handler, what is wrong or right with it, and what `explore` says: nothing where `told` is None."""

    kind: str
    why: str
    told: str | None
    handler: Any
    messages: Any
    options: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.kind}-{self.handler.__name__}"


WRONG: list[Row] = []
RIGHT: list[Row] = []


def wrong(kind: str, why: str, told: str | None, *, messages: Any = ORDER, **options: Any) -> Callable[[Any], Any]:
    """A row for a wrong handler. `told` is what the verdict says of it; None where it is not found."""

    def add(handler: Any) -> Any:
        WRONG.append(Row(kind, why, told, handler, messages, options))
        return handler

    return add


def right(kind: str, why: str, *, messages: Any = ORDER, **options: Any) -> Callable[[Any], Any]:
    """A row for a right handler."""

    def add(handler: Any) -> Any:
        RIGHT.append(Row(kind, why, None, handler, messages, options))
        return handler

    return add
