"""What a command answers, whole, with names for what is another at each run."""

from __future__ import annotations

import json
import re
import shlex
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from idempotent_receiver.transaction.outbox import Outgoing, to_text
from tests.unit.operations.cli import stack
from tests.unit.operations.dead_letters.acts import OPERATOR

KEYS = {
    stack.DONE: "DONE",
    stack.FLAKY: "FLAKY",
    stack.CLOSED: "CLOSED",
    stack.CONFLICT: "CONFLICT",
    stack.STUCK: "STUCK",
}
WORD = re.compile(r"(?!None)[A-Za-z]?[a-z]*(['-][a-z]+)*")
TYPED = re.compile("    (receiver|aws) ")
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
STAMP_MS = re.compile(r"\b1[0-9]{12}\b")
RANDOM = re.compile(r"\b([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{64}|[0-9a-f]{32}|[0-9a-f]{8})\b")


def lasting(text: str) -> str:
    """A text with names for what is another at each run."""
    for key, name in KEYS.items():
        text = text.replace(key, name)
    text = re.sub(r"\bv\d+\b", "ID", text.replace(f"{stack.ARN}:", "sqs:").replace(OPERATOR, "ALICE"))
    return RANDOM.sub("ID", STAMP_MS.sub("NOW", MOMENT.sub(_time, text)))


def _time(found: re.Match[str]) -> str:
    after = datetime.fromisoformat(found[0]) - datetime.now(UTC)
    names = {"NOW": timedelta(), "IN-30-DAYS": timedelta(days=30)}
    return next((name for name, at in names.items() if abs(after - at) < timedelta(minutes=5)), found[0])


def said(text: str) -> str:
    """A line without its words; one to type is whole."""
    if TYPED.match(text):
        return lasting(text).strip()
    parts = (part.strip("().,:;`\"'?") for part in lasting(text).split())
    return " ".join(part for part in parts if not WORD.fullmatch(part))


def figures(text: str) -> list[str]:
    """A screen, without the lines that are only words."""
    return [line for line in map(said, text.splitlines()) if line]


def told(value: Any, depth: int = 1) -> str:
    """A document, a line for each of its parts that have names themselves."""
    match value:
        case dict():
            parts = (f"{name}={told(held, depth)}" for name, held in value.items() if name != "receiptHandle")
            return f"{{{' '.join(parts)}}}"
        case [dict(), *_]:
            lines = (f"\n{'  ' * depth}{told(held, depth + 1)}" for held in value)
            return f"[{''.join(lines)}]"
        case list():
            return f"[{' '.join(told(held) for held in value)}]"
        case str():
            return f"({lasting(value)})" if " " in value else lasting(value)
    return json.dumps(value)


def kept(name: str) -> list[Any]:
    """What is in a file, in the archive or in the history."""
    if name == "history":
        return sorted(stack.acts(), key=lambda act: act["key"])
    if name == "archive":
        s3 = stack.client("s3")
        objects = s3.list_objects_v2(Bucket="archive")["Contents"]
        found = [json.load(s3.get_object(Bucket="archive", Key=each["Key"])["Body"]) for each in objects]
        return sorted(found, key=lambda each: each["key"])
    text, found = Path(name).read_text("utf-8"), []
    if name.endswith(".html"):
        text = text.partition('id="data">')[2].partition("</script>")[0]
    while text := text.strip():
        document, end = json.JSONDecoder().raw_decode(text)
        found.append(document)
        text = text[end:]
    return found


def prepared(on: stack.Stack, ends: ExitStack, line: str) -> None:
    """What is so before the next command, and until its part ends."""
    match shlex.split(line):
        case ["output", name]:
            del on.outputs[name]
        case ["output", name, value]:
            on.outputs[name] = value
        case ["record", key, status, attributes]:
            on.record(key, status, **json.loads(attributes))
        case ["unsent", key, queue, attributes]:
            outbox = to_text([Outgoing(on.queue.replace("transfers", queue), {"MessageBody": stack.SECRET})])
            lapsed = {"in_progress_expiration": stack.LONG_AGO_MS, "owner": "w"}
            on.record(key, **{"status": "SENDING", "outbox": outbox, **lapsed, **json.loads(attributes)})
        case ["dead-letter", key, stamped]:
            on.bury(key, **json.loads(stamped))
        case ["send", body]:
            on.sqs.send_message(QueueUrl=on.queue, MessageBody=body)
        case ["map", function]:
            on.map(function)
        case ["denied", *operations]:
            ends.enter_context(stack.denied(*operations))
        case _:
            raise ValueError(line)


def played(receiver: stack.Receiver, on: stack.Stack, transcript: str) -> str:
    """The same commands with the answers that they have now: on `|` to people, on `!` besides, on `=` its exit code."""
    lines = []
    with ExitStack() as ends:
        for typed in (line for line in transcript.splitlines() if line[:2] in ("# ", "$ ")):
            lines.append(typed)
            kind, _, line = typed.partition(" ")
            for key, name in KEYS.items():
                line = line.replace(name, key)
            if kind == "#":
                prepared(on, ends, line)
            elif line.startswith("cat "):
                lines += [part for each in kept(line.removeprefix("cat ")) for part in told(each).splitlines()]
            else:
                lines += answer(receiver(line.removeprefix("receiver ")), as_json="--json" in line)
    return "\n".join(lines)


def answer(ran: stack.Ran, *, as_json: bool) -> list[str]:
    """What a command answers people, or scripts, and what it says besides."""
    if as_json and ran.out:
        document = ran.json
        for name in {"acted", "left"} & document.keys():  # what was archived comes in the order of random names
            document[name].sort(key=lambda letter: letter["key"])
        lines = told(document).splitlines()
    else:
        lines = [f"| {lasting(each)}".rstrip() for each in ran.out.splitlines()]
    return [*lines, *(f"! {lasting(each)}".rstrip() for each in ran.err.splitlines()), f"= {ran.code}"]
