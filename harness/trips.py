"""A TCP proxy on the loopback that counts round trips, and makes them longer: one is whenever the client speaks after
the server has.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Trips:
    """The round trips of all connections since the last `reset`, and how much longer each takes."""

    def __init__(self, delay_seconds: float = 0.0) -> None:
        self.count = 0
        self.delay_seconds = delay_seconds

    def reset(self) -> None:
        self.count = 0


@contextlib.contextmanager
def counted(port: int, delay_seconds: float = 0.0) -> Iterator[tuple[int, Trips]]:
    """The port of a proxy before a server's port, and what it counts. `asked` asks for it from another process."""
    trips, ends = Trips(delay_seconds), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.1)
        accepting = threading.Thread(target=_accept, args=(listening, port, trips, ends))
        accepting.start()
        try:
            yield listening.getsockname()[1], trips
        finally:
            ends.set()
            accepting.join()


def _accept(listening: socket.socket, port: int, trips: Trips, ends: threading.Event) -> None:
    passing: list[threading.Thread] = []
    while not ends.is_set():
        with contextlib.suppress(TimeoutError):
            client, _ = listening.accept()
            server = socket.create_connection(("127.0.0.1", port))
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            passing.append(threading.Thread(target=_pass, args=(client, server, trips, ends)))
            passing[-1].start()
    for each in passing:
        each.join()


def _pass(client: socket.socket, server: socket.socket, trips: Trips, ends: threading.Event) -> None:
    spoke = server
    with client, server, selectors.DefaultSelector() as ready:
        ready.register(client, selectors.EVENT_READ, server)
        ready.register(server, selectors.EVENT_READ, client)
        while not ends.is_set():
            for key, _ in ready.select(0.1):
                source: socket.socket = key.fileobj  # type: ignore[assignment]
                with contextlib.suppress(OSError):
                    data = source.recv(65536)
                    if not data:
                        return
                    if data == _ASKS:
                        client.sendall(str(trips.count).encode())
                        return
                    if source is client and spoke is server:
                        trips.count += 1
                        time.sleep(trips.delay_seconds)
                    spoke = source
                    key.data.sendall(data)


_ASKS = b"trips?"
"""No database's protocol begins so."""


def asked(port: int) -> int:
    """The round trips so far, as the proxy at this port has counted them."""
    with socket.create_connection(("127.0.0.1", port)) as proxy:
        proxy.sendall(_ASKS)
        return int(proxy.recv(64))
