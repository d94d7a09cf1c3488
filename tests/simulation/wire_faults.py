"""The faults of requests to DynamoDB, by name. A fault answers as DynamoDB or a proxy does, or raises what
botocore raises of a network. botocore may send the request again, which may meet another fault.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ConnectionClosedError, ConnectTimeoutError, EndpointConnectionError

from harness.dynamodb.in_process import refused
from tests.simulation.reached import declare

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.wire import Answer, Sent, Wire

LONGEST_SECONDS = 40.0
ENDPOINT = "https://dynamodb.us-east-1.amazonaws.com"
CONNECT_TIMEOUT_SECONDS = 1.0
SLOWEST_SECONDS = 2.5
"""Slower than this, and it is time that the client gave up."""
WHOLE = ("ThrottlingException", "ProvisionedThroughputExceededException", "RequestLimitExceeded")
IN_PART = ("ThrottlingError", "ProvisionedThroughputExceeded")
PAGE = b"<html>sign in first</html>"


def lost_request(wire: Wire, sent: Sent) -> Answer:
    """It does not arrive."""
    match wire.random.choice(["closed", "refused", "connecting", "reading"]):
        case "closed":
            raise ConnectionClosedError(endpoint_url=ENDPOINT)
        case "refused":
            raise EndpointConnectionError(endpoint_url=ENDPOINT, error="refused")
        case "connecting":
            wire.world.sleep(CONNECT_TIMEOUT_SECONDS)
            raise ConnectTimeoutError(endpoint_url=ENDPOINT)
        case _:
            return wire.time_out()


def lost_answer(wire: Wire, sent: Sent) -> Answer:
    """It takes effect, and nobody says so."""
    if wire.random.random() < 0.5:
        wire.arrive(sent, wire.latency())
        return wire.time_out()
    wire.deliver(sent)
    raise ConnectionClosedError(endpoint_url=ENDPOINT)


def delayed(wire: Wire, sent: Sent) -> Answer:
    """It arrives when its sender has given up on it, and others may have gone first."""
    wire.arrive_late(sent)
    if wire.random.random() < 0.5:
        return wire.time_out()
    raise ConnectionClosedError(endpoint_url=ENDPOINT)


def copied(wire: Wire, sent: Sent) -> Answer:
    """It arrives, and once more later."""
    wire.arrive_late(sent)
    return wire.deliver(sent)


def slow(wire: Wire, sent: Sent) -> Answer:
    """It takes long to arrive."""
    wire.world.sleep(wire.random.random() * SLOWEST_SECONDS)
    return wire.deliver(sent)


def throttled(wire: Wire, sent: Sent) -> Answer:
    """It is refused whole."""
    wire.world.sleep(wire.latency())
    return refused(wire.random.choice(WHOLE))


def throttled_in_part(wire: Wire, sent: Sent) -> Answer:
    """Some of its items are not served: at least the first."""
    return _refused_in_part(wire, sent, wire.random.choice(IN_PART))


def hot_item(wire: Wire, sent: Sent) -> Answer:
    """For a while one of its records is not served, whoever asks."""
    if (ids := sent.ids or sent.keys) and not wire.simulation.quiet:
        wire.hot[wire.random.choice(ids)] = wire.world.now + wire.random.choice([0.05, 0.5, 3.0])
    return wire.deliver(sent)


def conflict(wire: Wire, sent: Sent) -> Answer:
    """Another transaction is on some of its items."""
    return _refused_in_part(wire, sent, "TransactionConflict")


def reasons_missing(wire: Wire, sent: Sent) -> Answer:
    """A transaction that was cancelled has one reason for all of its actions, or none."""
    status, body = conflict(wire, sent)
    answer: dict[str, Any] = json.loads(body)
    if "CancellationReasons" in answer:
        answer["CancellationReasons"] = answer["CancellationReasons"][: wire.random.randint(0, 1)]
    return status, json.dumps(answer).encode()


def server_error(wire: Wire, sent: Sent) -> Answer:
    """DynamoDB does not say whether it took effect."""
    if wire.random.random() < 0.5:
        wire.deliver(sent)
    return wire.random.choice([refused("InternalServerError", status=500), refused("ServiceUnavailable", status=503)])


def unknown_in_part(wire: Wire, sent: Sent) -> Answer:
    """DynamoDB does not say whether some of its statements took effect."""
    status, body = wire.deliver(sent)
    answer: dict[str, Any] = json.loads(body)
    if status != 200 or sent.operation != "BatchExecuteStatement":
        return refused("InternalServerError", status=500)
    unknown = {"Error": {"Code": "InternalServerError", "Message": "unknown"}}
    first = wire.random.randrange(len(answer["Responses"]))
    answer["Responses"] = [
        unknown if place == first or wire.random.random() < 0.5 else one
        for place, one in enumerate(answer["Responses"])
    ]
    return status, json.dumps(answer).encode()


def cut_short(wire: Wire, sent: Sent) -> Answer:
    """Only the beginning of DynamoDB's answer arrives."""
    status, body = wire.deliver(sent)
    return status, body[: wire.random.randrange(1, len(body))]


def another_page(wire: Wire, sent: Sent) -> Answer:
    """What comes back is a proxy's page, whether the request took effect or not."""
    if wire.random.random() < 0.5:
        wire.deliver(sent)
    return 200, PAGE


def crash(wire: Wire, sent: Sent) -> Answer:
    """The process dies: its request arrives all the same, or late, or never."""
    match wire.random.choice(["arrives", "late", "never"]):
        case "arrives":
            wire.arrive(sent, wire.latency())
        case "late":
            wire.arrive_late(sent)
    wire.simulation.kill(sent.process)
    never: Answer = wire.world.stop()
    return never


def _refused_in_part(wire: Wire, sent: Sent, code: str) -> Answer:
    codes = iter([code])
    sent.refuse = lambda: next(codes, code if wire.random.random() < 0.5 else None)
    return wire.deliver(sent)


FAULTS: dict[str, Callable[[Wire, Sent], Answer]] = {
    "lost request": lost_request,
    "lost answer": lost_answer,
    "delayed on the wire": delayed,
    "copied by the network": copied,
    "slow": slow,
    "throttled": throttled,
    "throttled in part": throttled_in_part,
    "hot item": hot_item,
    "conflict": conflict,
    "reasons missing": reasons_missing,
    "server error": server_error,
    "unknown in part": unknown_in_part,
    "cut short": cut_short,
    "another page": another_page,
    "crash": crash,
}

SEVERAL = "TransactWriteItems of several"
CANCELLING = ("conflict", "reasons missing", "throttled in part")
OPERATIONS = ("PutItem", "UpdateItem", "BatchGetItem", "BatchExecuteStatement", "TransactWriteItems", SEVERAL)
declare("wire", [f"{operation}: {fault}" for operation in OPERATIONS for fault in FAULTS])
