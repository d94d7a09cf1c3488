"""Keeps an exploration isolated: refuses and reports requests by a handler's own clients."""

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from botocore.client import BaseClient

from idempotent_receiver.handler.attempt import current_attempt

INTERNET = (socket.AF_INET, socket.AF_INET6)


@contextmanager
def closed(*, but: str | None) -> Iterator[list[str]]:
    """Stop boto3 from sending (even under a library such as moto) and sockets from connecting, unless `but` gives a
    reason to allow both.

    The list names each refused action: `sends DynamoDB.UpdateItem`, `connects to example.com:443`.

    Datagrams, such as metrics, are dropped silently, as on any network. C libraries are not stopped.
    """
    told: list[str] = []
    if but is not None:
        yield told
        return

    def refuse(what: str) -> None:
        told.append(what)
        raise RuntimeError(f"explore blocks the network: the handler {what}")

    def call_api(client: Any, operation: str, arguments: object) -> None:
        refuse(f"sends {client.meta.service_model.service_id}.{operation}")

    def resolve(host: object, port: object, *more: object, **named: object) -> None:
        refuse(f"connects to {_shown((host, port))}")

    with ExitStack() as stack:
        stack.enter_context(patch.object(BaseClient, "_make_api_call", call_api))
        stack.enter_context(patch.object(socket, "getaddrinfo", resolve))
        for kind, name in _WAYS_OUT:
            stack.enter_context(patch.object(kind, name, _closed(getattr(kind, name), name, refuse)))
        yield told


_WAYS_OUT = (
    *((socket.socket, name) for name in ("connect", "connect_ex", "send", "sendall", "sendto")),
    *((ssl.SSLSocket, name) for name in ("send", "sendall")),
)


def _closed(real: Callable[..., Any], name: str, refuse: Callable[[str], None]) -> Callable[..., Any]:
    def way_out(one: socket.socket, given: Any, *more: Any) -> Any:
        if one.family not in INTERNET or (name.startswith("connect") and one.type == socket.SOCK_DGRAM):
            return real(one, given, *more)
        if one.type == socket.SOCK_DGRAM:
            return len(given)
        if name.startswith("connect"):
            refuse(f"connects to {_shown(given)}")
        elif current_attempt.get() is not None:  # other sockets, such as a debugger's, may be connected
            refuse(f"sends to {_shown(one.getpeername())}")
        return real(one, given, *more)

    return way_out


def _shown(address: Any) -> str:
    host, port = address[:2]
    return f"{host.decode() if isinstance(host, bytes) else host}:{port}"
