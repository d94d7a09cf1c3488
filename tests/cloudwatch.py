"""CloudWatch's alarms as AWS documents them, as far as the templates use them. No emulator fires any.

Sources: the CloudWatch User Guide, "Alarm evaluation", "Configuring how CloudWatch alarms treat missing data" and
"Using metric math". What SQS tells CloudWatch is in queues.py. Time is in whole minutes: an alarm is evaluated at the
end of each, on the window that ends there.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from itertools import pairwise
from operator import gt, lt
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Metric = tuple[str, str, str, str]
"""Its namespace and name, and the name and value of its one dimension."""
State = Literal["OK", "ALARM"]
Alarm = dict[str, Any]
"""As CloudFormation and DescribeAlarms have it."""

COMPARISONS = {"GreaterThanThreshold": gt, "LessThanThreshold": lt}
STATISTICS = {
    "Sum": sum,
    "Average": fmean,
    "Maximum": max,
    "p50": lambda values: sorted(values)[math.ceil(0.5 * len(values)) - 1],
    "p99": lambda values: sorted(values)[math.ceil(0.99 * len(values)) - 1],
}
BEYOND = 2
"""How many datapoints are retrieved besides the evaluation periods', in case some are missing: as in AWS's examples."""


def state_of(breaching: Sequence[bool | None], *, periods: int, needed: int, missing: str) -> State:
    """The state that these datapoints mean, oldest first; None is a missing one.

    Of the real ones the latest count. Only those that they leave wanting are filled in.
    """
    real = [each for each in breaching if each is not None][-periods:]
    filled = {"breaching": periods - len(real), "notBreaching": 0}[missing]
    return "ALARM" if sum(real) + filled >= needed else "OK"


class CloudWatch:
    """The metrics of a stack, and what its alarms make of them, minute by minute."""

    def __init__(self, alarms: Mapping[str, Alarm]) -> None:
        self._alarms = alarms
        self._values: defaultdict[Metric, defaultdict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.minute = 1
        self.states: dict[str, State] = dict.fromkeys(alarms, "OK")
        self.rung: list[tuple[str, int]] = []
        """Each notification: the alarm, and the minute at whose end it turned red."""

    def put(self, metric: Metric, value: float) -> None:
        """Take a value in, in the current minute."""
        self._values[metric][self.minute].append(value)

    def by_minute(self, metric: Metric, statistic: str) -> dict[int, float]:
        """A metric as a chart shows it."""
        return {minute: STATISTICS[statistic](values) for minute, values in sorted(self._values[metric].items())}

    def end_minute(self) -> None:
        """Evaluate all alarms. One that is red already notifies nobody."""
        for name, alarm in self._alarms.items():
            state = self._judged(alarm)
            if state == "ALARM" and self.states[name] == "OK":
                self.rung.append((name, self.minute))
            self.states[name] = state
        self.minute += 1

    def _judged(self, alarm: Alarm) -> State:
        periods = int(alarm["EvaluationPeriods"])
        compare, threshold = COMPARISONS[alarm["ComparisonOperator"]], float(alarm["Threshold"])
        return state_of(
            [None if each is None else compare(each, threshold) for each in self._watched(alarm, periods + BEYOND)],
            periods=periods,
            needed=int(alarm.get("DatapointsToAlarm") or periods),
            missing=alarm["TreatMissingData"],
        )

    def _watched(self, alarm: Alarm, count: int) -> list[float | None]:
        if "Metrics" not in alarm:
            return self._datapoints(alarm, alarm.get("ExtendedStatistic") or alarm["Statistic"], alarm["Period"], count)
        series = {
            each["Id"]: self._datapoints(stat["Metric"], stat["Stat"], stat["Period"], count + 1)
            for each in alarm["Metrics"]
            if (stat := each.get("MetricStat"))
        }
        (expression,) = [each["Expression"] for each in alarm["Metrics"] if each["ReturnData"]]
        return calculated(expression, series)

    def _datapoints(self, watched: Alarm, statistic: str, period: int, count: int) -> list[float | None]:
        (dimension,) = watched["Dimensions"]
        values = self._values[watched["Namespace"], watched["MetricName"], dimension["Name"], dimension["Value"]]
        minutes = int(period) // 60
        ends = range(self.minute - (count - 1) * minutes, self.minute + 1, minutes)
        windows = [[each for at in range(end - minutes + 1, end + 1) for each in values.get(at, [])] for end in ends]
        return [STATISTICS[statistic](window) if window else None for window in windows]


def calculated(expression: str, series: Mapping[str, Sequence[float | None]]) -> list[float | None]:
    """What DIFF makes of a sum of series: each value's difference to the one before it. The first has none.

    A value that is missing in some of the series counts as 0 in their sum.
    """
    (names,) = re.findall(r"^DIFF\((\w+(?: \+ \w+)*)\)$", expression)
    columns = zip(*(series[name] for name in names.split(" + ")), strict=True)
    sums = [None if set(each) == {None} else math.fsum(value or 0 for value in each) for each in columns]
    return [None if None in (before, after) else after - before for before, after in pairwise(sums)]  # type: ignore[operator]
