"""A process with the library's entry points for calls: an HTTP endpoint, a function, and one within a consumer.

All of them have the same keys in one table, and only their namespaces and tenants keep them apart.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, get_type_hints
from urllib.parse import quote

from idempotent_receiver import (
    FingerprintMismatch,
    InProgress,
    LostClaim,
    PermanentError,
    Transaction,
    body_field,
    http_endpoint,
    idempotent,
)
from idempotent_receiver.errors import NotStarted, ResultUnavailable, StoreUnavailable
from idempotent_receiver.handler.results import S3Results
from idempotent_receiver.http.response import REPLAYED
from idempotent_receiver.testing.worker import SILENT, failed_ids
from tests.consumers import controlled
from tests.simulation.explored_clients import LOST, Bucket
from tests.simulation.handlers import Failed
from tests.simulation.network_faults import NetworkStore
from tests.simulation.process import Process
from tests.simulation.results import BUCKET
from tests.simulation.world import sqs_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.simulation.call_simulation import CallSimulation

RAISED, CREATED, AGAIN = 0, 201, 503
CONFLICT, GONE, MISMATCH, FAILED_FOR_GOOD = 409, 410, 422, 500
PAY, SHIP, ORDERS, CHARGE = "pay", "ship", "orders", "orders.charge"
LARGE_BYTES = 900
"""A result of this size does not stay in its record here."""


@dataclass(frozen=True)
class Request:
    """What a client wants: one call of one function, under its key."""

    function: str
    tenant: str
    key: str
    amount: int

    @property
    def id(self) -> str:
        scope = f"{quote(self.tenant, safe='')}#" if self.function == PAY else ""
        return f"{self.function}#{scope}{self.key}"

    @property
    def ids(self) -> tuple[str, ...]:
        return (self.id, self.charge.id) if self.function == ORDERS else (self.id,)

    @property
    def charge(self) -> Request:
        return Request(CHARGE, "", self.key, self.amount)

    @property
    def told(self) -> list[Any]:
        return [self.function, self.tenant, self.key, self.amount]

    @property
    def body(self) -> dict[str, Any]:
        return {"key": self.key, "amount": self.amount}


@dataclass(frozen=True)
class Reply:
    """What a client is answered. `content` is the function's result, if there is one."""

    status: int
    content: Any = None
    replayed: bool | None = None
    """Whether it is marked as a replay; None where nothing is marked."""

    @property
    def final(self) -> bool:
        return self.status in (CREATED, GONE, MISMATCH, FAILED_FOR_GOOD)


def _order(body: dict[str, Any], context: Any = None, tx: Any = None) -> str:
    return str(body["key"])


class CallProcess(Process):
    simulation: CallSimulation

    def __init__(self, world: CallSimulation, name: str) -> None:
        super().__init__(world, name)
        plan = world.plan
        client: Any = Bucket(self)
        results = S3Results(BUCKET, client) if plan.bucket else None
        common: dict[str, Any] = {"clock": self.clock, "results": results, "retention_seconds": plan.retention_seconds}
        self.pay = http_endpoint(
            NetworkStore(self, PAY),
            scope=lambda event: event["headers"]["Tenant"],
            wait_seconds=plan.wait_seconds,
            on_exception="replay" if plan.replay else "retry",
            is_final=lambda status: status != AGAIN,
            logger=SILENT,
            **common,
        )(self._pay_posting if plan.transactional else self._pay)
        self.ship = idempotent(NetworkStore(self, SHIP), key=_order, **common)(self._function(SHIP))
        self.charge: Callable[..., Any] = idempotent(NetworkStore(self, CHARGE), key=_order, **common)(
            self._function(CHARGE)
        )
        self.consumer = controlled(
            NetworkStore(self, ORDERS),
            key=body_field("key"),
            clock=self.clock,
            executor=self.executor,
            logger=SILENT,
            metrics=SILENT,
        )(self._take_async if plan.asynchronous else self._take)

    def ask(self, kind: str, *parts: Any) -> Any:
        """Ask the bucket, over the faulty network. Nothing retries such a request."""
        world = self.simulation
        world.world.sleep(world.random.uniform(0.005, 0.05))
        lost = world.chance(world.plan.bucket_lost)
        if kind == "put" and (not lost or world.random.random() < 0.5):
            world.bucket |= parts
        if lost:
            self.invocation.fault_count += 2
        return (LOST if lost else "" if kind == "put" else world.bucket.get(parts[0], ""),)

    def answer(self, request: Request) -> Reply:
        serve = {PAY: self._over_http, SHIP: self._as_a_function, ORDERS: self._from_a_queue}[request.function]
        return serve(request)

    def _over_http(self, request: Request) -> Reply:
        headers = {"Idempotency-Key": request.key, "Tenant": request.tenant}
        event = {"httpMethod": "POST", "path": "/", "headers": headers, "body": json.dumps(request.body)}
        try:
            response = self.pay(event, self.context())
        except Failed:
            return Reply(RAISED)
        replayed = dict(response["headers"]).get(REPLAYED) == "true"
        return Reply(response["statusCode"], response_content(response), replayed)

    def _as_a_function(self, request: Request) -> Reply:
        call = partial(self.ship, request.body, self.context())
        return reply_of(lambda: self._awaited(call) if self.simulation.plan.asynchronous else call())

    def _awaited(self, call: Callable[[], Any]) -> Any:
        """What a coroutine function returns, on an event loop in the world's time."""
        executor, ended = self.executor(), []

        async def job() -> Any:
            try:
                return partial(_returned, await call())
            except Exception as error:  # noqa: BLE001  # raised below, outside the loop
                return partial(_raised, error)

        executor.start_async(job, ended.append)
        while not ended:
            executor.step(None)
        executor.close(1.0)
        return ended[0]()

    def _from_a_queue(self, request: Request) -> Reply:
        record = sqs_record(request.id, json.dumps(request.body))
        failed = failed_ids(self.consumer({"Records": [record]}, self.context()))
        return Reply(AGAIN if failed else CREATED)

    # The functions, each with and without a transaction and, where it may be one, as a coroutine.

    def _pay(self, event: Any, context: Any) -> dict[str, Any]:
        return self._respond(event)

    def _pay_posting(self, event: Any, context: Any, tx: Transaction) -> dict[str, Any]:
        return self._respond(event, tx)

    def _respond(self, event: Any, tx: Transaction | None = None) -> dict[str, Any]:
        body = json.loads(event["body"])
        request = Request(PAY, event["headers"]["Tenant"], body["key"], body["amount"])
        status = CREATED
        try:
            self._wait_for(self.simulation.handling(self.invocation, request, tx))
        except PermanentError:
            status = AGAIN
        content = self.simulation.result_of(self.invocation, request)
        return {"statusCode": status, "headers": {"Run": self.invocation.name}, "body": json.dumps(content)}

    def _function(self, name: str) -> Callable[..., Any]:
        def plain(body: Any, context: Any = None) -> Any:
            return self._handled(name, body)

        def posting(body: Any, context: Any = None, *, tx: Any) -> Any:
            return self._handled(name, body, tx)

        async def later(body: Any, context: Any = None) -> Any:
            return await self._handled_async(name, body)

        async def posting_later(body: Any, context: Any = None, *, tx: Any) -> Any:
            return await self._handled_async(name, body, tx)

        plan = self.simulation.plan
        function: Any = ((plain, later), (posting, posting_later))[plan.transactional][plan.asynchronous]
        function.__annotations__ = {"tx": Transaction} if plan.transactional else {}
        return function  # type: ignore[no-any-return]  # one of the four

    def _take(self, body: dict[str, Any]) -> dict[str, Any]:
        order = Request(ORDERS, "", body["key"], body["amount"])
        reply = reply_of(lambda: self.charge(body))
        return self._taken(order, reply)

    async def _take_async(self, body: dict[str, Any]) -> dict[str, Any]:
        order = Request(ORDERS, "", body["key"], body["amount"])
        try:
            found = partial(_returned, await self.charge(body))
        except Exception as error:  # noqa: BLE001  # told as a reply
            found = partial(_raised, error)
        return self._taken(order, reply_of(found))

    def _taken(self, order: Request, charged: Reply) -> dict[str, Any]:
        self.simulation.monitor.replied(self.invocation, order.charge, charged)
        if charged.status not in (CREATED, GONE):
            raise Failed("the card was not charged")
        self.simulation.monitor.ended_well(self.invocation, order)
        return self.simulation.result_of(self.invocation, order)

    def _handled(self, function: str, body: dict[str, Any], tx: Transaction | None = None) -> dict[str, Any]:
        request = Request(function, "", body["key"], body["amount"])
        self._wait_for(self.simulation.handling(self.invocation, request, tx))
        return self.simulation.result_of(self.invocation, request)

    async def _handled_async(
        self, function: str, body: dict[str, Any], tx: Transaction | None = None
    ) -> dict[str, Any]:
        request, invocation = Request(function, "", body["key"], body["amount"]), self.invocation
        for seconds in self.simulation.handling(invocation, request, tx):
            await asyncio.sleep(seconds)
        return self.simulation.result_of(invocation, request)

    def _wait_for(self, pauses: Iterator[float]) -> None:
        for seconds in pauses:
            self.simulation.world.sleep(seconds)


for _name, _function in list(vars(CallProcess).items()):
    if callable(_function) and _name.startswith(("_pay", "_take")):
        # Resolved once, because many processes are made and each of them reads the annotations.
        _function.__annotations__ = get_type_hints(_function)


def response_content(response: dict[str, Any]) -> Any:
    """What the handler put into a response; None if the library made it."""
    return json.loads(response["body"]) if "Run" in response["headers"] else None


def reply_of(call: Callable[[], Any]) -> Reply:
    """The reply that a function's caller gets, with the status that says the same over HTTP."""
    try:
        return Reply(CREATED, call())
    except InProgress:
        return Reply(CONFLICT)
    except FingerprintMismatch:
        return Reply(MISMATCH)
    except ResultUnavailable:
        return Reply(GONE)
    except (LostClaim, NotStarted, StoreUnavailable):
        return Reply(AGAIN)
    except (Failed, PermanentError):
        return Reply(RAISED)


def _returned(result: Any) -> Any:
    return result


def _raised(error: Exception) -> Any:
    raise error
