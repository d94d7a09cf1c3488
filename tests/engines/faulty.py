"""A DynamoDB that conflicts, throttles, gives short reasons and loses answers. The other engines never do.

It is a server in this process, so that a real client sends and parses what it does in production. Its tables are the
benchmark's. A test decides how it answers a transaction, or gives transactions a time in which they are under way: then
others on the same items conflict.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from benchmarks.server import Endpoint
from harness.serving import serving
from tests.engines.engine import DynamoDB, client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Answer = tuple[int, bytes]


def refused(code: str, status: int = 400, **fields: Any) -> Answer:
    """An error for a whole request."""
    return status, json.dumps({"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "x"} | fields).encode()


def cancelled(*codes: str) -> Answer:
    """A cancelled transaction, with these reasons."""
    return refused("TransactionCanceledException", CancellationReasons=[{"Code": code} for code in codes])


class Sent:
    """A transaction as it was sent."""

    def __init__(self, body: bytes) -> None:
        request = json.loads(body)
        self.body = body
        self.token: str = request["ClientRequestToken"]
        actions = [next(iter(action.items())) for action in request["TransactItems"]]
        self.items = [_item(kind, arguments) for kind, arguments in actions]
        """The table and the key that each action is on."""
        written = [item for item, (kind, _) in zip(self.items, actions, strict=True) if kind != "ConditionCheck"]
        self.ids = [key for table, key in written if table.startswith("records")]
        """The ids of the records that it writes."""

    def naming(self, codes: Mapping[str, str]) -> Answer | None:
        """A cancellation with these codes at the items with these keys; None if none of them is there."""
        reasons = [codes.get(key, "None") for _, key in self.items]
        return None if set(reasons) == {"None"} else cancelled(*reasons)


def _item(kind: str, arguments: Mapping[str, Any]) -> tuple[str, str]:
    table = arguments["TableName"].rpartition("/")[2]
    key = arguments["Item" if kind == "Put" else "Key"]
    name = "id" if table.startswith("records") else "account"
    return table, key[name]["S"] if name in key else json.dumps(key)


class Faults:
    """How the server answers transactions, and which were sent."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.answer: Callable[[Sent], Answer | None] = lambda sent: None
        """What a transaction is answered, instead of being executed."""
        self.losing: Callable[[Sent], bool] = lambda sent: False
        """Whether a transaction that is executed gets no answer."""
        self.seconds_under_way = 0.0
        self._endpoint = Endpoint()
        self._lock = threading.Lock()
        self._under_way: Counter[tuple[str, str]] = Counter()

    @property
    def sizes(self) -> list[int]:
        """How many records each transaction had."""
        return [len(sent.ids) for sent in self.sent]

    def respond(self, path: str, headers: Mapping[str, str], body: bytes) -> Answer | None:
        """Answer a request; None breaks the connection."""
        target = headers["X-Amz-Target"]
        if not target.endswith(".TransactWriteItems"):
            return self._executed(target, body)
        sent = Sent(body)
        with self._lock:
            self.sent.append(sent)
            answer = self.answer(sent) or self._conflict(sent)
            if answer is not None:
                return answer
            self._under_way.update(sent.items)
        time.sleep(self.seconds_under_way)
        answer = self._executed(target, body)
        with self._lock:
            self._under_way -= Counter(sent.items)
        return None if self.losing(sent) else answer

    def _conflict(self, sent: Sent) -> Answer | None:
        reasons = ["TransactionConflict" if self._under_way[item] else "None" for item in sent.items]
        return None if set(reasons) == {"None"} else cancelled(*reasons)

    def _executed(self, target: str, body: bytes) -> Answer:
        with self._lock:
            status, answer, _ = self._endpoint.answer(target, body)
        return status, answer


@contextmanager
def faulty_dynamodb(attempts: int = 1) -> Iterator[tuple[DynamoDB, Faults]]:
    """The engine and its faults, for the length of the block."""
    faults = Faults()
    with serving(faults.respond) as port, closing(client(f"http://127.0.0.1:{port}", attempts)) as connected:
        yield DynamoDB(connected), faults
