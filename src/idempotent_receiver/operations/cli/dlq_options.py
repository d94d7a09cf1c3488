"""The options that select dead letters, and how commands describe that selection."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from idempotent_receiver.operations.account import UsageError
from idempotent_receiver.operations.cli.deployment import Deployment
from idempotent_receiver.operations.cli.terminal import clean, flag, moment
from idempotent_receiver.operations.dead_letters.queue import DEFAULT_RATE, HOLD_SECONDS
from idempotent_receiver.operations.dead_letters.selection import Plan, SavedPlan, Selection
from idempotent_receiver.operations.dead_letters.verbs import Dispositions

TIMES = "a time such as 2026-11-22T02:00Z (UTC by default), or an age such as 90s, 45m, 2h or 3d"
_UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, kw_only=True)
class Named:
    """Dead letters selected by key or messageId. Raises UsageError for an empty value."""

    key: Annotated[list[str] | None, typer.Option(help="Only dead letters with this key; repeatable.")] = None
    message_id: Annotated[
        list[str] | None, typer.Option(help="Only the dead letter with this messageId; repeatable.")
    ] = None

    def __post_init__(self) -> None:
        for name, given in vars(self).items():
            # An unset shell variable must not select everything.
            if given == "" or (isinstance(given, list) and "" in given):
                raise UsageError(f"{flag(name)} is empty: give it a value or omit it")

    @property
    def given(self) -> list[str]:
        """The names of the filters given, as typed on the command line."""
        return [flag(name) for name, value in vars(self).items() if value]

    def selection(self, now_ms: int, *, limit: int | None = None) -> Selection:
        """The selection, with at most `limit` dead letters to act on."""
        return Selection(keys=frozenset(self.key or ()), ids=frozenset(self.message_id or ()), limit=limit)


@dataclass(frozen=True, kw_only=True)
class Filters(Named):
    """Dead letters selected by filters: those that match every filter given."""

    group: Annotated[list[str] | None, typer.Option(help="Only this group, as `dlq list` shows it; repeatable.")] = None
    error_type: Annotated[str | None, typer.Option(help="Only this error type.")] = None
    since: Annotated[str | None, typer.Option(help=f"Only those first sent since {TIMES}.")] = None
    until: Annotated[str | None, typer.Option(help="Only those first sent up to this time.")] = None
    matching: Annotated[str | None, typer.Option(help="Only those whose reason or error type contains this text.")] = (
        None
    )

    def selection(self, now_ms: int, *, limit: int | None = None) -> Selection:
        """The selection; ages count back from `now_ms`. Raises UsageError for a time that cannot be parsed."""
        since = None if self.since is None else epoch_ms("--since", self.since, now_ms)
        until = None if self.until is None else epoch_ms("--until", self.until, now_ms)
        if since is not None and until is not None and until < since:
            raise UsageError(f"--until {self.until} is before --since {self.since}: no dead letter can match")
        return replace(
            super().selection(now_ms, limit=limit),
            groups=frozenset(self.group or ()),
            error_type=self.error_type,
            matching=self.matching,
            since_ms=since,
            until_ms=until,
        )


Hold = Annotated[
    int,
    typer.Option(min=1, max=43_200, help="Seconds that dead letters stay invisible to others if this command crashes."),
]


@dataclass(frozen=True, kw_only=True)
class Acting:
    """How a command acts on the selected dead letters."""

    because: Annotated[str | None, typer.Option(help="The reason to record in the history.")] = None
    limit: Annotated[int | None, typer.Option(min=1, help="Act on at most this many dead letters.")] = None
    hold: Hold = HOLD_SECONDS
    save_plan: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Only write the plan to a new file for review."),
    ] = None
    plan: Annotated[Path | None, typer.Option(metavar="FILE", help="Carry out exactly this saved plan.")] = None
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt.")] = False

    def __post_init__(self) -> None:
        if self.because is not None and not self.because.strip():
            raise UsageError("--because is empty: give it a value or omit it")

    def saved(self, command: str, deployment: Deployment, given: Iterable[str]) -> SavedPlan | None:
        """The saved plan to carry out. Raises UsageError if another option also selects dead letters."""
        if self.plan is None:
            return None
        others = [*given, *(flag(name) for name in ("limit", "save_plan") if getattr(self, name))]
        if others:
            raise UsageError(f"--plan selects the dead letters: omit {', '.join(others)}")
        return saved_plan(self.plan, command, deployment)

    def selection(self, which: Named, now_ms: int, saved: SavedPlan | None) -> Selection:
        """The selection: exactly the saved plan, or whatever the filters match now."""
        return which.selection(now_ms, limit=self.limit) if saved is None else Selection.of_plan(saved.letters)


@dataclass(frozen=True, kw_only=True)
class Task:
    """A command's task.

    `asks` begins the confirmation question, and `doing` labels the progress bar. `options` are stored in a saved plan;
    `saved` is the plan to carry out. `check` returns extra values for the JSON output, or raises UsageError for an
    impossible plan. `follow_seconds` is how long to follow the messages that were sent back.
    """

    command: str
    asks: str
    doing: str
    dispositions: Dispositions
    acting: Acting
    selection: Selection
    options: dict[str, bool] = field(default_factory=dict)
    new_body_sha256: str | None = None
    saved: SavedPlan | None = None
    rate: float = DEFAULT_RATE
    check: Callable[[Plan], Mapping[str, str]] = lambda plan: {}
    follow_seconds: float | None = None


def epoch_ms(option: str, text: str, now_ms: int) -> int:
    """The time that an option gives. Raises UsageError if it cannot be parsed."""
    if ago := re.fullmatch(r"(\d{1,5})([smhd])", text, re.ASCII):
        return now_ms - int(ago[1]) * _UNITS[ago[2]]
    try:
        time = datetime.fromisoformat(text)
        time = time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise UsageError(f"{option} {text} is not a time: give {TIMES}") from None
    return int(time.timestamp() * 1000)


def none_of(selection: Selection, which: str = "visible") -> str:
    """A sentence saying that no dead letter matched the selection."""
    either = [("in the group", selection.groups), ("with the key", selection.keys), ("with the id", selection.ids)]
    of = [f"{what} {' or '.join(sorted(names))}" for what, names in either if names]
    of += [] if selection.error_type is None else [f"with the error type {selection.error_type}"]
    of += [] if selection.matching is None else [f'with "{selection.matching}" in their reason or error type']
    bounds = (("since", selection.since_ms), ("until", selection.until_ms))
    sent = [f"{bound} {moment(at_ms)}" for bound, at_ms in bounds if at_ms is not None]
    of += [f"sent {' and '.join(sent)}"] if sent else []
    of += [] if selection.planned is None else ["in the plan"]
    return clean(" ".join([f"There are no {which} dead letters", *of]) + ".")


def saved_plan(file: Path, command: str, deployment: Deployment) -> SavedPlan:
    """The plan in a file. Raises UsageError if the file holds none, or a plan for a different command or queue."""
    try:
        saved = SavedPlan.read(file)
    except OSError as error:
        raise UsageError(f"--plan {file}: {error.strerror}") from None
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(map(str, problem["loc"]))
        raise UsageError(f"--plan {file} is not a plan that this version can read: {place} {problem['msg']}") from None
    if saved.command != command:
        raise UsageError(f"--plan {file} was made by dlq {saved.command}: it cannot be used for dlq {command}")
    if saved.queue != deployment.queue.arn:
        raise UsageError(f"--plan {file} is for dead letters of {saved.queue}, not of {deployment.queue.arn}")
    return saved


def write_plan(plan: SavedPlan, file: Path) -> None:
    """Write a plan to a new file. Raises UsageError if the file exists or cannot be written."""
    try:
        plan.write(file)
    except FileExistsError:
        raise UsageError(f"--save-plan {file} exists, and a plan never replaces a file: choose another name") from None
    except OSError as error:
        raise UsageError(f"--save-plan {file}: {error.strerror}") from None
