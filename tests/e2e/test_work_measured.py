"""What `receiver work` tells an OpenTelemetry collector: OTLP over HTTP, sent to an endpoint here."""

from __future__ import annotations

import os
import signal
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from tests.e2e.test_work import Place

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.deployed import Aws

Received = list[ExportMetricsServiceRequest]


@pytest.fixture
def collector() -> Iterator[tuple[str, Received]]:
    received: Received = []

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append(ExportMetricsServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1/metrics", received
        server.shutdown()


def values_of(request: ExportMetricsServiceRequest) -> dict[str, float]:
    """The sums and gauges of an export."""
    metrics = [metric for of in request.resource_metrics for scope in of.scope_metrics for metric in scope.metrics]
    return {
        metric.name.removeprefix("idempotent_receiver."): point.as_int or point.as_double
        for metric in metrics
        for point in (*metric.sum.data_points, *metric.gauge.data_points)
    }


def test_a_replacement_counts_the_death_before_it_and_a_worker_that_drains_exports_what_it_has(
    aws: Aws, tmp_path: Path, collector: tuple[str, Received]
) -> None:
    """The process that was killed exported nothing; the page says so."""
    place = Place(aws, tmp_path)
    place.more["COLLECTOR"], received = collector
    place.send("interrupted", seconds=4)

    with place.worker(handler="worker_measured:handle") as worker:
        place.wait_for(lambda: place.of("interrupted"))
        os.kill(place.of("interrupted")[0].pid, signal.SIGKILL)
        place.wait_for(place.settled)
        assert received == []
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0

    place.once()
    (request,) = received
    names = ("completed", "failed", "restarts", "in_flight")
    assert {name: values_of(request)[name] for name in names} == dict(zip(names, (1, 0, 1, 0), strict=True))
    assert values_of(request)["renewals"] >= 1
