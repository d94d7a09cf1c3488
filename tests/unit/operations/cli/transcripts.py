"""What a command answers, with what is said in words left out: figures, names, keys, times and options stay."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

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
    return "NOW" if abs(datetime.fromisoformat(found[0]) - datetime.now(UTC)) < timedelta(minutes=5) else found[0]


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
            return f"({said(value)})" if " " in value else lasting(value)
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


def played(receiver: stack.Receiver, transcript: str) -> str:
    """The same commands with the answers that they have now: on `|` to people, on `!` besides, on `=` its exit code."""
    lines = []
    for typed in (line for line in transcript.splitlines() if line.startswith("$ ")):
        line = typed.removeprefix("$ ")
        for key, name in KEYS.items():
            line = line.replace(name, key)
        if line.startswith("cat "):
            lines += [typed, *(part for each in kept(line.removeprefix("cat ")) for part in told(each).splitlines())]
            continue
        ran = receiver(line) if "--queue" in line else receiver.on(line)
        if line.endswith("--json") and ran.out:
            document = ran.json
            for name in {"acted", "left"} & document.keys():  # what was archived comes in the order of random names
                document[name].sort(key=lambda letter: letter["key"])
            answer = told(document).splitlines()
        else:
            answer = [f"| {each}" for each in figures(ran.out)] or (["|"] if ran.out else [])
        remarks = [f"! {said(each)}".rstrip() for each in ran.err.splitlines() if each]
        lines += [typed, *answer, *remarks, f"= {ran.code}"]
    return "\n".join(lines)
