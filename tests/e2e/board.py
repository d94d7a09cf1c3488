"""`make board`: docs/dashboard.svg, the deployed dashboard with half an hour of data from functions and queues.

A minute of the picture is what happens here in one. Two messages fail permanently, and in the last three minutes the
table of records is gone. What only AWS counts and nobody here can observe, such as DynamoDB's throttles, has no line.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from contextlib import nullcontext
from html import escape
from typing import TYPE_CHECKING, Any

from harness.cloud import ROOT, running_cloud
from harness.deploy import deploy
from tests.e2e.deployed import EVENTS, Aws, Deployed
from tests.e2e.observed import NAMESPACE, Observed
from tests.e2e.test_alarms import gone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cloudwatch import CloudWatch

PICTURE = ROOT / "docs" / "dashboard.svg"
MINUTES = 30
HOPELESS = 16
AWAY = range(28, 31)
COLUMN, ROW = 45, 42
"""Pixels of CloudWatch's grid."""
COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f")
QUERY = ("failures", "messages", "last_reason", "error_type", "line")


def main() -> None:
    with running_cloud() as cloud:
        aws = Aws(cloud.endpoint_url.removeprefix("http://"))
        bank = Deployed(aws, deploy(cloud, name="transfers"), [], [])
        observed = Observed(aws, bank.stack, [bank.stack.outputs["ConsumerLogGroup"]])
        for account in json.loads((EVENTS / "given" / "accounts.json").read_text()):
            bank.put("Accounts", account)
        for minute in range(1, MINUTES + 1):
            play(minute, bank, observed)
        name = bank.stack.resources["Dashboard"]
        body = json.loads(aws.client("cloudwatch").get_dashboard(DashboardName=name)["DashboardBody"])
        PICTURE.write_text(drawn(body["widgets"], observed))


def play(minute: int, bank: Deployed, observed: Observed) -> None:
    """A minute's messages; some come twice."""
    number = 4 + minute * 7 % 5
    queue = bank.stack.outputs["QueueArn"].rpartition(":")[2]
    transfers = [bank.transfer(bank.new_account(10), bank.new_account(0), 1) for _ in range(number)]
    transfers += [bank.transfer(bank.new_account(1), "nobody", 1)] * (minute == HOPELESS) * 2
    with gone(bank.aws, bank.stack.resources["Records"]) if minute in AWAY else nullcontext():
        bank.send(*transfers)
        observed.cloudwatch.put(("AWS/SQS", "NumberOfMessagesSent", "QueueName", queue), len(transfers))
        wanted = "ClaimFailures" if minute in AWAY else "Completed"
        observed.wait_for((NAMESPACE, wanted, "service", bank.stack.name))
        if minute not in AWAY:
            bank.drained(seconds=50)
        if minute % 4 == 0:
            observed.invoke("Consumer", bank.recorded("fresh"))
    observed.pass_minutes()


def drawn(widgets: list[dict[str, Any]], observed: Observed) -> str:
    """The dashboard as an SVG."""
    height = max(each["y"] + each["height"] for each in widgets) * ROW
    parts = [
        f'<g transform="translate({each["x"] * COLUMN},{each["y"] * ROW})">{"".join(drawing(each, observed))}</g>'
        for each in widgets
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {24 * COLUMN} {height}" font-family="sans-serif" '
        'font-size="11"><rect width="100%" height="100%" fill="#f2f3f3"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def drawing(widget: dict[str, Any], observed: Observed) -> Iterator[str]:
    width, height, properties = widget["width"] * COLUMN, widget["height"] * ROW, widget["properties"]
    yield f'<rect x="4" y="4" width="{width - 8}" height="{height - 8}" fill="#fff" stroke="#d5dbdb"/>'
    yield text(12, 22, properties.get("title", ""), 'font-weight="bold" font-size="12"')
    match widget["type"], properties.get("view"):
        case "alarm", _:
            yield from alarms(properties, observed)
        case "text", _:
            lines = [each.strip("#| `") for each in properties["markdown"].replace("`", "").split("\n")]
            for place, line in enumerate(each for each in lines if each.strip("-|")):
                cells = line.split(" | ")
                yield from (text(12 + x * 300, 24 + 24 * place, cell) for x, cell in enumerate(cells))
        case "log", _:
            yield from failures(observed)
        case _, "singleValue":
            yield from numbers(properties, observed.cloudwatch)
        case _:
            yield from chart(properties, observed.cloudwatch, width, height)


def text(x: float, y: float, words: str, style: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" {style}>{escape(words)}</text>'


def alarms(properties: dict[str, Any], observed: Observed) -> Iterator[str]:
    names = {each["AlarmArn"]: name for name, each in observed.alarms.items() if "AlarmArn" in each}
    for place, arn in enumerate(properties["alarms"]):
        x, y, red = 12 + place % 5 * 212, 36 + place // 5 * 56, names[arn] in observed.red
        yield f'<rect x="{x}" y="{y}" width="204" height="44" fill="{"#d13212" if red else "#1d8102"}"/>'
        yield text(x + 10, y + 27, f"{names[arn]}: {'In alarm' if red else 'OK'}", 'fill="#fff"')


def numbers(properties: dict[str, Any], cloudwatch: CloudWatch) -> Iterator[str]:
    for place, (*metric, options) in enumerate(properties["metrics"]):
        values = cloudwatch.by_minute(tuple(metric), properties["stat"])
        yield text(16 + place * 210, 72, f"{values[max(values)]:g}" if values else "-", 'font-size="30"')
        yield text(16 + place * 210, 100, options["label"])


def failures(observed: Observed) -> Iterator[str]:
    """What the query makes of the log."""
    counts: Counter[tuple[str, str]] = Counter()
    ids, last = defaultdict(set), {}
    for line in observed.lines:
        if "error_type" in line:
            group = (line["error_type"], (line.get("at") or "").partition(",")[0])
            counts[group] += 1
            ids[group].add(line["message_id"])
            last[group] = line.get("reason") or line.get("why") or ""
    rows = [QUERY, *((f"{n}", f"{len(ids[group])}", last[group], *group) for group, n in counts.most_common())]
    for y, row in enumerate(rows):
        for x, cell in zip((12, 80, 150, 780, 880), row, strict=True):
            yield text(x, 46 + y * 22, cell[:100], 'fill="#555"' if y == 0 else "")


def chart(properties: dict[str, Any], cloudwatch: CloudWatch, width: float, height: float) -> Iterator[str]:
    series = []
    for line in properties["metrics"]:
        options = line[-1] if isinstance(line[-1], dict) else {}
        values = cloudwatch.by_minute(tuple(line[:4]), options.get("stat") or properties["stat"])
        label = options.get("label") or " ".join([line[1], *filter(None, [options.get("stat")])])
        series.append((label, values, options.get("yAxis") == "right"))
    marks = properties.get("annotations", {}).get("horizontal", [])
    left = max([1.0, *(each["value"] for each in marks), *(max(v.values(), default=0) for _, v, r in series if not r)])
    right = max([1.0, *(max(values.values(), default=0) for _, values, is_right in series if is_right)])
    bottom, top, x_of = height - 44, 40, lambda minute: 60 + (minute - 1) / (MINUTES - 1) * (width - 110)
    y_of = lambda value, most: bottom - value / most * (bottom - top)  # noqa: E731
    for share in (0, 0.5, 1):
        y = y_of(share, 1)
        yield f'<path d="M60 {y:g}H{width - 50:g}" stroke="#eee"/>'
        yield text(56, y + 4, f"{share * left:g}", 'text-anchor="end" fill="#555"')
        if any(is_right for *_, is_right in series):
            yield text(width - 46, y + 4, f"{share * right:g}", 'fill="#555"')
    for mark in marks:
        y = y_of(mark["value"], left)
        yield f'<path d="M60 {y:g}H{width - 50:g}" stroke="#d13212" stroke-dasharray="4"/>'
        yield text(64, y + 12, mark["label"], 'fill="#d13212"')
    x = 16.0
    for (label, values, is_right), colour in zip(series, COLOURS, strict=False):
        points = " ".join(f"{x_of(m):.1f},{y_of(v, right if is_right else left):.1f}" for m, v in values.items())
        yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        yield f'<rect x="{x:g}" y="{height - 25:g}" width="8" height="8" fill="{colour}"/>'
        yield text(x + 11, height - 17, label, 'font-size="9"')
        x += 24 + len(label) * 5.4


if __name__ == "__main__":
    main()
