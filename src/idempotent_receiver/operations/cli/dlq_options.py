"""The options by which the commands about dead letters know which ones are meant, and how they speak of them."""

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from idempotent_receiver.operations.account import UsageError
from idempotent_receiver.operations.cli.deployment import Deployment
from idempotent_receiver.operations.cli.terminal import Terminal, clean, flag, moment
from idempotent_receiver.operations.dead_letters.selection import SavedPlan, Selection

TIMES = "a time such as 2026-11-22T02:00Z (UTC if it names no zone), or how long ago: 90s, 45m, 2h, 3d"
_UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

SavePlan = Annotated[
    Path | None,
    typer.Option("--save-plan", metavar="FILE", help="Write the plan to a new file to review, and do nothing else."),
]
FromPlan = Annotated[
    Path | None, typer.Option("--plan", metavar="FILE", help="Carry out a saved plan: exactly what is in it.")
]


@dataclass(frozen=True, kw_only=True)
class Which:
    """Which dead letters are meant: those that every given filter lets through. Raises UsageError for empty ones."""

    group: Annotated[
        list[str] | None, typer.Option(help="Only those of this group of `dlq list`; may be given again.")
    ] = None
    error_type: Annotated[str | None, typer.Option(help="Only those whose error has this type.")] = None
    key: Annotated[list[str] | None, typer.Option(help="Only those of this key; may be given again.")] = None
    message_id: Annotated[list[str] | None, typer.Option(help="Only this one; may be given again.")] = None
    since: Annotated[str | None, typer.Option(help=f"Only those first sent since {TIMES}.")] = None
    until: Annotated[str | None, typer.Option(help="Only those first sent until then.")] = None

    def __post_init__(self) -> None:
        for name, given in vars(self).items():
            # An unset variable of the shell must not come to mean everything.
            if given == "" or (isinstance(given, list) and "" in given):
                raise UsageError(f"{flag(name)} is empty: give it a value, or leave it out")

    @property
    def given(self) -> list[str]:
        """The filters that were given, as they are typed."""
        return [flag(name) for name, value in vars(self).items() if value]

    def selection(self, now_ms: int, *, limit: int | None = None) -> Selection:
        """What they mean at this time. Raises UsageError for times that mean nothing."""
        since = None if self.since is None else epoch_ms("--since", self.since, now_ms)
        until = None if self.until is None else epoch_ms("--until", self.until, now_ms)
        if since is not None and until is not None and until < since:
            raise UsageError(f"--until {self.until} is before --since {self.since}: nothing is sent between them")
        return Selection(
            groups=frozenset(self.group or ()),
            error_type=self.error_type,
            keys=frozenset(self.key or ()),
            ids=frozenset(self.message_id or ()),
            since_ms=since,
            until_ms=until,
            limit=limit,
        )


@dataclass(frozen=True, kw_only=True)
class Filters(Which):
    """Which dead letters are meant, for a command that takes no reason of the operator's own."""

    reason: Annotated[str | None, typer.Option(help="Only those whose reason or error type contains this.")] = None

    def selection(self, now_ms: int, *, limit: int | None = None) -> Selection:
        """What they mean at this time. Raises UsageError for times that mean nothing."""
        return replace(super().selection(now_ms, limit=limit), reason=self.reason)


def chosen(
    which: Which, command: str, plan: Path | None, deployment: Deployment, terminal: Terminal, **rules: object
) -> tuple[Selection, SavedPlan | None]:
    """What a command is to act on: what the filters mean now, or exactly what a saved plan has, which takes no other
    option. `rules` are those.
    """
    if plan is None:
        limit = rules.get("limit")
        return which.selection(terminal.clock.epoch_ms(), limit=limit if isinstance(limit, int) else None), None
    given = [*which.given, *(flag(name) for name, value in rules.items() if value)]
    if given:
        raise UsageError(f"--plan says what is meant: it takes no {', '.join(given)}")
    saved = saved_plan(plan, command, deployment)
    return Selection.of_plan(saved.letters), saved


def epoch_ms(option: str, text: str, now_ms: int) -> int:
    """The time that an option names. Raises UsageError for one that means nothing."""
    if ago := re.fullmatch(r"(\d{1,5})([smhd])", text, re.ASCII):
        return now_ms - int(ago[1]) * _UNITS[ago[2]]
    try:
        time = datetime.fromisoformat(text)
        time = time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise UsageError(f"{option} {text} is no time: give {TIMES}") from None
    return int(time.timestamp() * 1000)


def none_of(selection: Selection, which: str = "visible") -> str:
    """Says that no dead letter, of those that are looked at, is what was meant."""
    either = [("in the group", selection.groups), ("of the key", selection.keys), ("of the id", selection.ids)]
    of = [f"{what} {' or '.join(sorted(names))}" for what, names in either if names]
    of += [] if selection.error_type is None else [f"of the error type {selection.error_type}"]
    of += [] if selection.reason is None else [f'with "{selection.reason}" in their reason or error type']
    bounds = (("since", selection.since_ms), ("until", selection.until_ms))
    sent = [f"{bound} {moment(at_ms)}" for bound, at_ms in bounds if at_ms is not None]
    of += [f"sent {' and '.join(sent)}"] if sent else []
    of += [] if selection.planned is None else ["of the plan"]
    return clean(" ".join([f"There are no {which} dead letters", *of]) + ".")


def saved_plan(file: Path, command: str, deployment: Deployment) -> SavedPlan:
    """The plan in a file. Raises UsageError where there is none, or one for another command or other queues."""
    try:
        saved = SavedPlan.read(file)
    except OSError as error:
        raise UsageError(f"--plan {file}: {error.strerror}") from None
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(map(str, problem["loc"]))
        raise UsageError(f"--plan {file} holds no plan that this version reads: {place} {problem['msg']}") from None
    if saved.command != command:
        raise UsageError(f"--plan {file} was made by dlq {saved.command}: it is no plan for dlq {command}")
    ours = (deployment.queue.arn, deployment.dead_letter_queue.arn)
    if (saved.queue, saved.dead_letter_queue) != ours:
        of = f"{saved.queue} in {saved.dead_letter_queue}"
        raise UsageError(f"--plan {file} is for dead letters of {of}, not of {ours[0]} in {ours[1]}")
    return saved


def write_plan(plan: SavedPlan, file: Path) -> None:
    """Write a plan to a new file. Raises UsageError where that cannot be done."""
    try:
        plan.write(file)
    except FileExistsError:
        raise UsageError(f"--save-plan {file} exists, and a plan is never replaced: give another name") from None
    except OSError as error:
        raise UsageError(f"--save-plan {file}: {error.strerror}") from None
