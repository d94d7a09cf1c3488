"""API and consumer as deployed, with stores in memory; a test delivers the messages of the queue between them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from app.ledger import Ledger
from app.routes import served, tenant
from app.transfer_service import TransferService
from app.transfers import Transfer
from idempotent_receiver import MemoryStore, Transaction, header, http_endpoint
from tests.consumers import controlled
from tests.contexts import Context
from tests.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

ALICE = "arn:aws:iam::123456789012:user/alice"
ASKED = {"from_account": "alice", "to_account": "bob", "amount": 1250, "currency": "USD"}
QUEUE = "https://sqs.us-east-1.amazonaws.com/123456789012/transfers"


class Bank:
    """API and consumer with one table of records, and a queue between them whose messages a test delivers."""

    def __init__(self, queue_url: str = QUEUE, caller: Callable[[Any], str] = tenant) -> None:
        self.clock = ManualClock()
        self.claims = MemoryStore(namespace="transfers", tables={"transfers": "transfer_id"})
        self.records = MemoryStore(tables={"accounts": "account_id", "entries": "entry_id"})
        self.queue: list[dict[str, Any]] = []
        self.runs: list[str] = []
        self.unreadable: str | None = None
        accounts = self.records.tables["accounts"].items
        accounts["alice",] = {"account_id": "alice", "balance": 10_000, "currency": "USD"}
        accounts["bob",] = {"account_id": "bob", "balance": 0, "currency": "USD"}
        service = TransferService(
            sqs=self,  # type: ignore[arg-type]  # it has what is called
            dynamodb=self,  # type: ignore[arg-type]
            records=self.records,
            queue_url=queue_url,
            transfers="transfers",
            entries="entries",
        )
        key = header("Idempotency-Key")
        idempotent_handler = http_endpoint(self.claims, key=key, scope=caller, clock=self.clock)
        self.api = served(service, idempotent_handler, caller=caller)
        ledger = Ledger(accounts="accounts", entries="entries")

        def post(transfer: Transfer, tx: Transaction) -> None:
            self.runs.append(transfer.transfer_id)
            ledger.post(transfer, tx)

        self.consumer = controlled(self.records, clock=self.clock)(post)

    # What the service asks of AWS.

    def send_message(self, **message: Any) -> None:
        self.queue.append(message)

    def get_item(self, **asked: Any) -> dict[str, Any]:
        assert asked["ConsistentRead"]
        ((_, key),) = asked["Key"].items()
        store = self.claims if asked["TableName"] == "transfers" else self.records
        found = store.tables[asked["TableName"]].items.get((key["S"],))
        return {} if found is None else {"Item": {name: {"S": str(value)} for name, value in found.items()}}

    # The API's client.

    def post(
        self, key: str | None = "k-1", asked: Any = ASKED, caller: str | None = ALICE, **more: str
    ) -> tuple[int, Any, Any]:
        """Request a transfer, with more headers; returns status, headers and body of the response."""
        body = asked if isinstance(asked, str) else json.dumps(asked)
        headers = more if key is None else {"idempotency-key": key, **more}
        return self._ask("POST", "/transfers", caller, headers=headers, body=body)

    def get(self, transfer_id: str, caller: str | None = ALICE) -> tuple[int, Any, Any]:
        """Request the status of a transfer."""
        return self._ask("GET", "/transfers/{transfer_id}", caller, pathParameters={"transfer_id": transfer_id})

    def _ask(self, method: str, resource: str, caller: str | None, **event: Any) -> tuple[int, Any, Any]:
        identity = {} if caller is None else {"userArn": caller}
        event |= {
            "httpMethod": method,
            "resource": resource,
            "path": resource,
            "requestContext": {"identity": identity},
        }
        answer = self.api(event, context())
        return answer["statusCode"], answer["headers"], json.loads(answer["body"])

    # Lambda's poller.

    def deliver(self) -> list[str]:
        """Deliver all messages; returns the ids of the failed ones."""
        records = [_record(place, message) for place, message in enumerate(self.queue)]
        return [each["itemIdentifier"] for each in self.consumer({"Records": records}, context())["batchItemFailures"]]


def _record(place: int, message: dict[str, Any]) -> dict[str, Any]:
    attributes = {
        name: {"stringValue": each["StringValue"], "dataType": each["DataType"]}
        for name, each in message["MessageAttributes"].items()
    }
    return {"messageId": f"m-{place}", "body": message["MessageBody"], "messageAttributes": attributes}


def context() -> Any:
    return Context(seconds=10)
