"""The worker tests' handler with a meter, whose SDK exports only at a process's end."""

import os
from dataclasses import replace

import worker_handlers as shared
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

exporter = OTLPMetricExporter(endpoint=os.environ["COLLECTOR"])
provider = MeterProvider([PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)])
handle = shared.handle.with_options(replace(shared.handle.options, meter=provider.get_meter("orders")))
