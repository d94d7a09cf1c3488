"""What the tables of wrong and right handlers share: what handlers call, and how a row says what `explore` finds."""

from __future__ import annotations

import asyncio
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


def publish(text: str) -> None:
    """A topic that knows no keys."""


async def index(documents: list[dict[str, Any]]) -> None:
    """A search index, which takes several documents at once, each with its id."""


async def put_record_batch(records: list[dict[str, Any]]) -> None:
    """A stream that knows no keys."""


def rate(currency: str) -> int:
    """A look-up."""
    return 1


services = SimpleNamespace()
balances: dict[str, int] = {}
journal: list[Any] = []
seen: set[str] = set()
bucket: dict[str, str] = {}
"""Objects by their keys, outside the process, as far as `explore` knows."""
OWN = {"bucket": (lambda: (bucket.clear(), bucket.update(old="1")), lambda: bucket)}
STATE = {"balances": balances, "journal": journal, "seen": seen}
tables: dict[str, Table] = {}


def begin(calls: Calls) -> None:
    """Put fakes in the places of all services, and everything as it was."""
    for service in (charge, backup, refund, mail, notify, publish, index, put_record_batch, rate):
        setattr(services, service.__name__, service)
    for name in ("charge", "backup", "refund", "notify"):
        calls.replace(services, name, key="key", raises=ConnectionError("reset"), refuses=Declined("no funds"))
    calls.replace(services, "mail")
    calls.replace(services, "publish", at_least_once="SNS takes no key", refuses=Declined("throttled"))
    ids = {"key": lambda items: [one["id"] for one in items], "refuses": Declined("throttled")}
    calls.replace(services, "index", **ids)
    calls.replace(services, "put_record_batch", **ids, at_least_once="Firehose takes no key")
    calls.replace(services, "rate", returns=1, no_effects="it only reads")
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


class Joined:
    """Sends what the messages of a batch add in one call."""

    def __init__(self, send: str) -> None:
        self._send, self._items, self._sent = send, [], None

    async def add(self, item: dict[str, Any]) -> None:
        """Add an item, and wait until all that were added meanwhile are sent."""
        self._items.append(item)
        if len(self._items) == 1:
            self._sent = asyncio.create_task(self._send_all())
        await asyncio.shield(self._sent)

    async def _send_all(self) -> None:
        await asyncio.sleep(0)
        items, self._items = self._items, []
        await getattr(services, self._send)(items)


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
