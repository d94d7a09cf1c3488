"""OpenTelemetry's SDK in memory: a meter, and what it has measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter
    from opentelemetry.sdk.metrics.export import Metric


class Metering:
    """A meter whose measurements are kept."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.meter: Meter = MeterProvider([self._reader], shutdown_on_exit=False).get_meter("orders")

    @property
    def values(self) -> dict[str, float]:
        """What each has come to: a histogram's is its sum."""
        return {
            metric.name: point.sum if isinstance(point, HistogramDataPoint) else point.value
            for metric in self._metrics()
            for point in metric.data.data_points
        }

    @property
    def counts(self) -> dict[str, int]:
        """How many values each histogram has had."""
        points = [(metric.name, point) for metric in self._metrics() for point in metric.data.data_points]
        return {name: point.count for name, point in points if isinstance(point, HistogramDataPoint)}

    @property
    def units(self) -> dict[str, str]:
        """The unit of each."""
        return {metric.name: str(metric.unit) for metric in self._metrics()}

    def _metrics(self) -> list[Metric]:
        data = self._reader.get_metrics_data()
        resources = [] if data is None else data.resource_metrics
        return [metric for of in resources for scope in of.scope_metrics for metric in scope.metrics]
