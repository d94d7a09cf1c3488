"""A consumer's metrics through OpenTelemetry's own SDK, and as Prometheus scrapes them."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry, start_http_server

from idempotent_receiver import MemoryStore, Transaction, sqs_consumer
from idempotent_receiver.testing import explore, lambda_context, sqs_event
from idempotent_receiver.testing.worker import SILENT, failed_ids
from tests.metering import Metering
from tests.unit.test_telemetry import Sink

if TYPE_CHECKING:
    from collections.abc import Iterator


def pay(order: dict) -> None:
    if order.get("fails"):
        raise ValueError


def consume(meter: Any, **options: Any) -> list[str]:
    """The ids of the messages that must come again, of three."""
    options = {"logger": SILENT, "metrics": SILENT} | options
    consumer = sqs_consumer(MemoryStore("orders"), meter=meter, **options)(pay)
    return failed_ids(consumer(sqs_event({}, {"fails": True}, {}), lambda_context()))


def test_a_meter_gets_what_metrics_get_under_the_names_of_the_log() -> None:
    """Sums over both batches; the durations as histograms with a value a batch."""
    metering, first, second = Metering(), Sink(), Sink()
    for sink in (first, second):
        assert consume(metering.meter, metrics=sink, logger=sink.logger) == ["message-2"]

    sent = {name: first.metrics[name] + second.metrics[name] for name in first.metrics}
    fields = {name: re.sub(r"\B(?=[A-Z])", "_", name).lower() for name in sent}
    assert metering.values == {f"idempotent_receiver.{fields[name]}": pytest.approx(sent[name]) for name in sent}
    (line,) = [line for line in first.lines if line["message"] == "batch"]
    assert {fields[name] for name in sent} - {"batch_duration"} <= line.keys()
    durations = {name for name in metering.values if metering.counts.get(name) == 2}
    assert durations == {name for name in metering.values if "milliseconds" in name or "duration" in name}


def test_units_are_in_opentelemetrys_style() -> None:
    metering = Metering()
    consume(metering.meter)

    units = metering.units
    assert (units["idempotent_receiver.completed"], units["idempotent_receiver.requests"]) == ("{message}", "{request}")
    assert units["idempotent_receiver.batch_duration"] == units["idempotent_receiver.claim_milliseconds"] == "ms"
    assert set(units.values()) == {"{message}", "{request}", "ms"}


class Broken:
    """A meter that raises, at once or when its instruments are used."""

    def __init__(self, *, makes: bool) -> None:
        self.makes = makes

    def create_counter(self, *_: object, **options: object) -> Any:
        if not self.makes:
            raise OSError("secret")
        return self

    create_histogram = create_counter

    def add(self, value: float) -> None:
        raise OSError("secret")


@pytest.mark.parametrize("makes", [True, False])
def test_a_meter_that_raises_loses_metrics_only_and_is_told_once_a_batch(makes: bool) -> None:
    sink = Sink()
    consumer = sqs_consumer(MemoryStore("orders"), meter=Broken(makes=makes), metrics=sink, logger=sink.logger)(pay)  # type: ignore[arg-type]
    for batch in (1, 2):
        answer = consumer(
            sqs_event({"batch": batch}, {"fails": True}, ids=[f"{batch}-1", f"{batch}-2"]), lambda_context()
        )
        assert failed_ids(answer) == [f"{batch}-2"]

    told = [line for line in sink.lines if "meter" in line["message"]]
    assert [(line["message"], line["level"], line["error_type"]) for line in told] == [
        ("the meter raised, so metrics are missing", "WARNING", "OSError")
    ] * 2
    assert "secret" not in sink.stream.getvalue()
    assert (sink.metrics["Completed"], sink.metrics["Failed"]) == (1, 1)


def test_metrics_that_raise_take_nothing_from_the_meter() -> None:
    class Raising(Sink):
        def flush_metrics(self) -> None:
            raise OSError

    metering = Metering()
    assert consume(metering.meter, metrics=Raising()) == ["message-2"]
    assert metering.values["idempotent_receiver.completed"] == 2


@pytest.mark.parametrize("disabled", [True, False])
def test_cloudwatchs_metrics_are_turned_off_by_powertools_own_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], disabled: bool
) -> None:
    """The page says so; the meter gets them all the same."""
    if disabled:
        monkeypatch.setenv("POWERTOOLS_METRICS_DISABLED", "true")
    metering = Metering()
    consume(metering.meter, metrics=None)

    assert ("CloudWatchMetrics" in capsys.readouterr().out) is not disabled
    assert metering.values["idempotent_receiver.completed"] == 2


def test_what_is_no_meter_is_refused_at_set_up() -> None:
    with pytest.raises(TypeError, match=r"meter must be an OpenTelemetry meter: metrics\.get_meter\(name\)"):
        sqs_consumer(MemoryStore(), meter=MeterProvider(shutdown_on_exit=False))  # type: ignore[arg-type]


def test_what_is_explored_is_not_measured() -> None:
    """An exploration plays thousands of runs, which would drown those of the day."""
    metering = Metering()

    @sqs_consumer(MemoryStore(), meter=metering.meter)
    def put(order: dict, tx: Transaction) -> None:
        tx.put(TableName="orders", Item=order)

    assert explore(put, sqs_event({"id": "1"}), tables={"orders": "id"}, workers=1, faults=0).complete
    assert metering.values == {}


@pytest.fixture
def scraped() -> Iterator[tuple[Any, str]]:
    """A meter, and the address where Prometheus finds what it has."""
    registry = CollectorRegistry()
    provider = MeterProvider([PrometheusMetricReader(registry=registry)], shutdown_on_exit=False)
    server, thread = start_http_server(0, addr="127.0.0.1", registry=registry)
    yield provider.get_meter("orders"), f"http://127.0.0.1:{server.server_port}/metrics"
    server.shutdown()
    server.server_close()
    thread.join()
    provider.shutdown()


def test_prometheus_scrapes_counters_and_histograms(scraped: tuple[Any, str]) -> None:
    meter, address = scraped
    consume(meter)

    with urlopen(address, timeout=10) as answer:
        text = answer.read().decode()
    values = dict(re.findall(r"(?m)^(idempotent_receiver_\w+)\{[^}]*\} (\S+)$", text))
    assert {name: float(values[f"idempotent_receiver_{name}"]) for name in ("completed_total", "failed_total")} == {
        "completed_total": 2,
        "failed_total": 1,
    }
    assert float(values["idempotent_receiver_taken_over_total"]) == 0
    for duration in ("batch_duration_milliseconds", "handler_milliseconds"):
        assert float(values[f"idempotent_receiver_{duration}_count"]) == 1
    assert not [name for name in values if "milliseconds_milliseconds" in name]


def test_a_consumer_without_a_meter_has_no_instruments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "idempotent_receiver.instruments", None)
    assert consume(None) == ["message-2"]
