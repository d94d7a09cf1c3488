"""A consumer's metrics as instruments of an OpenTelemetry meter. Imported only for a consumer with a meter.

An instrument is named like the field in a batch's log line, after `idempotent_receiver.`. Durations are in
milliseconds, as in the log; the SDK's default buckets fit them. Each method may raise what the meter raises.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from idempotent_receiver.log_lines import field_name

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation

UNITS = {"Requests": "{request}"}
"""The units of counters that count anything but messages."""

OF_WORKER = {
    "InFlight": ("create_observable_up_down_counter", "{message}"),
    "Renewals": ("create_observable_counter", "{lease}"),
    "Restarts": ("create_observable_counter", "{process}"),
    "Suspects": ("create_observable_gauge", "{message}"),
}
"""What only a worker outside Lambda measures. All its processes know the same suspects, so these do not add up."""


class Instruments:
    """A destination for metrics: see `telemetry.Metrics`. Counts are counters, and milliseconds are histograms."""

    def __init__(self, meter: "Meter") -> None:
        self._meter = meter
        self._record: dict[str, Callable[[float], None]] = {}

    def add_metric(self, name: str, unit: str, value: float) -> None:
        """Record a value. The first one creates the instrument."""
        if name not in self._record:
            self._record[name] = self._recording(name, unit)
        self._record[name](value)

    def flush_metrics(self) -> None:
        """Do nothing: the meter's SDK exports at its own times."""

    def watch(self, **values: Callable[[], int]) -> None:
        """Observe the metrics in `OF_WORKER`, each by a callable, whenever the meter's SDK collects."""
        for name, value in values.items():
            create, unit = OF_WORKER[name]
            getattr(self._meter, create)(instrument_name(name), [_observing(value)], unit=unit)

    def _recording(self, name: str, unit: str) -> Callable[[float], None]:
        if unit == "Milliseconds":
            return self._meter.create_histogram(instrument_name(name), unit="ms").record
        return self._meter.create_counter(instrument_name(name), unit=UNITS.get(name, "{message}")).add


def instrument_name(name: str) -> str:
    """The name of a metric's instrument."""
    return f"idempotent_receiver.{field_name(name)}"


def _observing(value: Callable[[], int]) -> "Callable[[CallbackOptions], Iterable[Observation]]":
    from opentelemetry.metrics import Observation  # noqa: PLC0415  # instruments without callbacks need no import

    return lambda _: [Observation(value())]
