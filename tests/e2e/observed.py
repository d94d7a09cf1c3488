"""A deployed stack as CloudWatch would observe it: its alarms, and the metrics of its functions and queues.

What functions print in the embedded metric format is read from their logs. What AWS itself would count is counted where
it happens: queues by their attributes, requests and invocations by their answers. A minute is what a test does in one;
it never takes longer than a real one.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from tests.cloudwatch import CloudWatch
from tests.e2e.deployed import eventually
from tests.queues import IN_FLIGHT, LEFT_OUT_RECEIVES, OLDEST, VISIBLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from harness.caller import Answer
    from idempotent_receiver.local.deployment import Stack
    from tests.cloudwatch import Alarm, Metric
    from tests.e2e.deployed import Aws

NAMESPACE = "IdempotentReceiver"
MINUTE_SECONDS = 60
QUEUES = ("Queue", "DeadLetterQueue", "Unreconciled")


class Observed:
    """A stack, watched from now on. `logs` are the groups to read, and `more` are alarms besides the deployed ones."""

    def __init__(self, aws: Aws, stack: Stack, logs: list[str], more: Mapping[str, Alarm] | None = None) -> None:
        self._aws, self._stack, self._logs = aws, stack, logs
        names = {physical: logical for logical, physical in stack.resources.items()}
        pages = aws.client("cloudwatch").get_paginator("describe_alarms").paginate()
        deployed = [each for page in pages for each in page["MetricAlarms"] if each["AlarmName"] in names]
        self.alarms = {names[each["AlarmName"]]: each for each in deployed} | dict(more or {})
        self.cloudwatch = CloudWatch(self.alarms)
        self._seen = set(self._printed())
        self.lines: list[dict[str, Any]] = []
        """What functions have logged."""
        self._receives: dict[str, int] = {}
        """How often messages were received that have failed since the consumer's queue was last empty."""
        # Lambda polls the consumer's queue, so it is never idle.
        self._filled_at = {url: 0 for name, url in stack.resources.items() if name == "Queue"}
        self._started = time.monotonic()

    @property
    def rung(self) -> dict[str, list[int]]:
        """The minutes at whose end each alarm turned red, by the alarm's name in the template."""
        found: dict[str, list[int]] = {}
        for name, minute in self.cloudwatch.rung:
            found.setdefault(name, []).append(minute)
        return found

    @property
    def red(self) -> set[str]:
        """The alarms that are red."""
        return {name for name, state in self.cloudwatch.states.items() if state == "ALARM"}

    def pass_minutes(self, number: int = 1) -> None:
        """Let the minute end, and so many more in which nothing happens: what was printed and what queues hold is sent,
        and alarms are evaluated.
        """
        self._take_in()
        urls = [self._stack.resources[each] for each in QUEUES if each in self._stack.resources]
        held = {url: self._held(url) for url in urls}
        assert time.monotonic() - self._started < MINUTE_SECONDS, "too much for one minute: no alarm could keep up"
        for _ in range(number):
            for url, counts in held.items():
                self._sample(url, counts)
            self.cloudwatch.end_minute()
        self._started = time.monotonic()

    def wait_for(self, metric: Metric) -> None:
        """Wait until a function has printed a metric that is not zero."""
        eventually(self._take_in, lambda found: metric in found, what=f"{metric} is printed")

    def request(self, answer: Answer, seconds: float = 0.1) -> Answer:
        """Count a request of the API as API Gateway does, by the API's name."""
        id = self._stack.resources["RestApi"]
        api = self._aws.client("apigateway").get_rest_api(restApiId=id)["name"]
        counts = {"Count": 1, "5XXError": answer.status >= 500, "4XXError": 400 <= answer.status < 500}
        for name, value in {**counts, "Latency": seconds * 1000}.items():
            self.cloudwatch.put(("AWS/ApiGateway", name, "ApiName", api), value)
        return answer

    def invoke(self, function: str, event: object) -> Any:
        """Invoke a function, and count that as Lambda does; its answer, None if it was throttled."""
        functions, name = self._aws.client("lambda"), self._stack.resources[function]
        counts = dict.fromkeys(("Invocations", "Errors", "Throttles"), 0)
        answer = None
        try:
            answer = functions.invoke(FunctionName=name, Payload=json.dumps(event))
            counts |= {"Invocations": 1, "Errors": int("FunctionError" in answer)}
        except functions.exceptions.TooManyRequestsException:
            counts["Throttles"] = 1
        for count, value in counts.items():
            self.cloudwatch.put(("AWS/Lambda", count, "FunctionName", name), value)
        return None if answer is None else json.loads(answer["Payload"].read())

    def _take_in(self) -> set[Metric]:
        """Send what functions have printed since the last time; which metrics were not zero."""
        found = set()
        for printed in self._printed():
            if printed in self._seen or not printed[-1].startswith("{"):
                continue
            self._seen.add(printed)
            line = json.loads(printed[-1])
            self.lines.append(line)
            if "receive_count" in line:
                self._receives[line["message_id"]] = line["receive_count"]
            for directive in line.get("_aws", {}).get("CloudWatchMetrics", []):
                ((dimension,),) = directive["Dimensions"]
                for name in (each["Name"] for each in directive["Metrics"]):
                    metric = (directive["Namespace"], name, dimension, line[dimension])
                    for value in line[name] if isinstance(line[name], list) else [line[name]]:
                        self.cloudwatch.put(metric, value)
                        found |= {metric} if value else set()
        return found

    def _printed(self) -> Iterator[tuple[str, int, str]]:
        """All lines so far, each with its stream and its time."""
        pages = self._aws.client("logs").get_paginator("filter_log_events")
        for log in self._logs:
            for page in pages.paginate(logGroupName=log):
                yield from ((each["logStreamName"], each["timestamp"], each["message"]) for each in page["events"])

    def _held(self, url: str) -> dict[str, int]:
        """What SQS says that a queue holds, by the names of its metrics."""
        asked = {
            metric: metric.removesuffix("Visible") if metric == VISIBLE else metric for metric in (VISIBLE, IN_FLIGHT)
        }
        told = self._aws.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=list(asked.values()))
        return {metric: int(told["Attributes"][attribute]) for metric, attribute in asked.items()}

    def _sample(self, url: str, held: Mapping[str, int]) -> None:
        """What SQS sends of a queue each minute, as in queues.py. It sends nothing of one that nobody has used for
        hours.
        """
        minute, queue = self.cloudwatch.minute, url.rpartition("/")[2]
        received = self._receives if url == self._stack.resources.get("Queue") else {}
        if not any(held.values()):
            if url not in self._filled_at:
                return
            self._filled_at[url] = minute
            received.clear()
        age = (minute - self._filled_at.setdefault(url, minute - 1)) * MINUTE_SECONDS
        left_out = 0 if queue.endswith(".fifo") else sum(each >= LEFT_OUT_RECEIVES for each in received.values())
        sent = {
            VISIBLE: held[VISIBLE],
            IN_FLIGHT: held[IN_FLIGHT] or None,
            OLDEST: age if sum(held.values()) > left_out else None,
        }
        for metric, value in sent.items():
            if value is not None:
                self.cloudwatch.put(("AWS/SQS", metric, "QueueName", queue), value)
