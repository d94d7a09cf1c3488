"""`make run`: play a story on the local cloud, or on a stack that is deployed, and close the books.

What it takes comes from the environment: N, SEED, PROTECTION and STACK, and LOCALSTACK_HOST. Its last line is one JSON
object, and its status 0 only if everything in it is as promised.

The template goes onto the local cloud byte for byte. Three of its parameters are set and said aloud: two, so that
leases end within the run, and DeadLetterAtOnce, so that nobody waits for what fails for good to be received five times.
One attribute of the queue is changed afterwards and said aloud too: its visibility timeout, which is when the messages
of a killed worker come back. Only the code folder is overlaid, by `local/overlay/`: with the shipped composition root
kept beside one that wraps its handler with faults.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import secrets
import sys
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from local.account import Account
from local.books import Books
from local.caller import at_local_cloud
from local.cloud import LOOPBACK, NAMED_BY, ROOT, in_containers, running_cloud
from local.deploy import HOST_BUILD, deploy, describe
from local.emulator import MACHINES
from local.play import LOCAL, REMOTE, LedgerPrompter, Player, StandinPrompter
from local.program import protected, run_to_its_end, whole
from local.show import Show
from local.stage import Stage, StageError
from local.standin import Server, Standin
from local.story import CURRENCY, Kind, tell

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from local.books import Entry
    from local.cloud import Cloud
    from local.play import Pace
    from local.standin import Line
    from local.story import Story

ARCHITECTURE = MACHINES.get(platform.machine().lower(), "arm64")
LAMBDA_BUILD = HOST_BUILD.with_name(f"python3.13-{ARCHITECTURE}")
"""For a cloud that runs functions in containers of this machine."""
OVERLAY = Path(__file__).with_name("overlay")
EVIDENCE = ROOT / ".build" / "run"

PARAMETERS = {"FunctionTimeout": "10", "MaximumConcurrency": "4", "DeadLetterAtOnce": "true"}
VISIBILITY_SECONDS = 15
"""Longer than a lease, which ends 3 seconds after the function's timeout: a killed worker's messages are then free."""

MOST_LOG_LINES = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What was asked for."""

    number: int
    seed: int
    protected: bool
    stack: str | None


def wish_of(environment: Mapping[str, str]) -> Wish:
    """Read the environment. Raises ValueError, saying what is wrong with it."""
    wish = Wish(
        number=whole(environment, "N", 500),
        seed=whole(environment, "SEED", 1),
        protected=protected(environment),
        stack=environment.get("STACK") or None,
    )
    if wish.stack is not None and not wish.protected:
        raise ValueError("PROTECTION=off replaces the handler, which is only done on the local cloud: leave out STACK")
    return wish


def on_local_cloud(wish: Wish, show: Show) -> Books:
    """Play the story on a cloud of its own, which is gone afterwards; or on one that is named, which stays."""
    if in_containers():
        with set_up(Standin({}), show, protected=wish.protected) as (_, stage):
            return _by_the_ledger(wish, stage, tell(wish.seed, wish.number, kills=False), show)
    story = tell(wish.seed, wish.number)
    standin = Standin(story.kinds)
    with set_up(standin, show, protected=wish.protected) as (cloud, stage):
        was = stage.shorten_visibility(VISIBILITY_SECONDS)
        show.note(
            f"the queue's visibility timeout was set from {was} to {VISIBILITY_SECONDS} s after deployment, "
            "so that a killed worker's messages come back while you wait"
        )
        try:
            books, gave_up = _performed(wish, story, stage, standin, show)
        except StageError:
            show.note(f"what the function and the local cloud have logged is kept in {_keep_logs(cloud, stage)}")
            raise
        show.gave_up(gave_up)
        if books.complaints and wish.protected:
            _keep_logs(cloud, stage)
            show.note(f"all logs, the stand-in's among them, are kept in {_keep_evidence(books)}")
    return books


@contextlib.contextmanager
def set_up(
    standin: Standin,
    show: Show,
    *,
    protected: bool = True,
    name: str | None = None,
    parameters: Mapping[str, str] | None = None,
    port: int | None = None,
    also_at: str = LOOPBACK,
) -> Iterator[tuple[Cloud, Stage]]:
    """Have a local cloud, and deploy the template onto it under this name, or one that no other run has; the stack
    is gone after the block.

    In containers functions run as they are built for Lambda, for the stand-in could not be heard of there.
    """
    said = show.step("local cloud")
    with Server(standin) as standin_port, running_cloud(port=port, also_at=also_at) as cloud:
        said(f"{cloud.endpoint_url}, {cloud.whose}")
        given = {**PARAMETERS, **(parameters or {})}
        if in_containers():
            if not protected:
                raise ValueError(f"PROTECTION=off needs functions that are processes of this machine: unset {NAMED_BY}")
            show.note("functions run in containers there: none is killed, and no fault is put in their way")
            code, overlay = LAMBDA_BUILD, {}
            given["Architecture"] = ARCHITECTURE
        else:
            code, overlay = HOST_BUILD, overlay_of(standin_port, protected=protected)
        said = show.step("stack")
        stack = deploy(cloud, name=name or f"receiver-{os.getpid()}", code=code, overlay=overlay, parameters=given)
        said("template.yaml as it stands, with " + ", ".join(f"{name}={value}" for name, value in given.items()))
        yield (
            cloud,
            Stage(
                stack=stack,
                sqs=cloud.client("sqs"),
                dynamodb=cloud.client("dynamodb"),
                functions=cloud.client("lambda"),
                api=at_local_cloud(cloud, stack),
            ),
        )


def _performed(wish: Wish, story: Story, stage: Stage, standin: Standin, show: Show) -> tuple[Books, str | None]:
    player = Player(stage, story, StandinPrompter(standin))
    gave_up = perform_on(stage, story, standin, player, show)
    entries, log = stage.all_entries(), standin.lines()
    return _close(wish, story, stage, player, entries=entries, log=log, witnessed=True), gave_up


def perform_on(stage: Stage, story: Story, standin: Standin, player: Player, show: Show) -> str | None:
    """Play the whole story; None then, else what was waited for in vain."""
    standin.attach(partial(posted, stage))
    return _play(player, stage, story, LOCAL, show)


def overlay_of(port: int, *, protected: bool) -> dict[str, bytes]:
    """Return the files that are laid over the code folder, by their path in it."""
    files = {f"local/overlay/{path.name}": path.read_bytes() for path in OVERLAY.glob("*.py")}
    settings = {"host": "127.0.0.1", "port": port, "protection": protected}
    return files | {
        "local/__init__.py": b"",
        "local/overlay/settings.json": json.dumps(settings).encode(),
        "app/consumer.py": files["local/overlay/root.py"],
        "app/shipped.py": (HOST_BUILD / "app" / "consumer.py").read_bytes(),
    }


def on_stack(wish: Wish, name: str, show: Show) -> Books:
    """Play the story on a stack that is deployed: the same messages, and nobody is killed."""
    account = Account()
    said = show.step("stack")
    stack = describe(account, name)
    stage = Stage(
        stack=stack,
        sqs=account.client("sqs"),
        dynamodb=account.client("dynamodb"),
        functions=account.client("lambda"),
        receive_seconds=2,
        api=account.caller(stack),
    )
    said(f"{name}, as it is deployed: its handler runs without faults")
    prefix, http = f"{secrets.token_hex(3)}-", stage.api is not None
    books = _by_the_ledger(wish, stage, tell(wish.seed, wish.number, prefix=prefix, kills=False, http=http), show)
    stage.bury([letter for letter in books.dead_letters if letter.message_id in set(books.sent.values())])
    show.note("the story's own dead letters were deleted; its accounts, entries and records stay")
    return books


def _by_the_ledger(wish: Wish, stage: Stage, story: Story, show: Show) -> Books:
    """Play the story where no stand-in hears of the handlers: what has happened is in the ledger."""
    player, prompter = ledger_player(stage, story)
    show.gave_up(_play(player, stage, story, REMOTE, show))
    entries = stage.entries_of([*story.sides, *(player.sent[name] for name in _posted_ones(story))])
    return _close(wish, story, stage, player, entries=entries, log=prompter.log, witnessed=False)


def ledger_player(stage: Stage, story: Story) -> tuple[Player, LedgerPrompter]:
    """Return who plays a story by the ledger alone, and who prompts."""
    sent: dict[str, str] = {}
    prompter = LedgerPrompter(stage, partial(posted, stage), sent)
    return Player(stage, story, prompter, sent), prompter


def posted(stage: Stage, names: Sequence[str]) -> frozenset[str]:
    """Which of these transfers are in the ledger."""
    return frozenset(entry.transfer for entry in stage.entries_of(names))


def _play(player: Player, stage: Stage, story: Story, pace: Pace, show: Show) -> str | None:
    stage.open_accounts(story.opening, CURRENCY)
    show.opened(story)
    with show.progress(len(story.parts)) as said:
        player.send(said)
        return player.finish(pace, said)


def _close(
    wish: Wish,
    story: Story,
    stage: Stage,
    player: Player,
    *,
    entries: Sequence[Entry],
    log: Sequence[Line],
    witnessed: bool,
) -> Books:
    sent = player.sent
    # What was asked for over HTTP was given another name there: of these, the story's is used again from here on.
    names = {sent[name]: name for name in _posted_ones(story) if name in sent}
    return Books(
        story=story,
        protected=wish.protected,
        sent=sent,
        entries=[replace(each, transfer=names.get(each.transfer, each.transfer)) for each in entries],
        closing=stage.balances(list(story.opening)),
        records=stage.records(list(sent.values())),
        dead_letters=stage.dead_letters(),
        left=stage.backlog(stage.queue).total,
        log=[_renamed(line, names) for line in log],
        replayed=player.replayed,
        witnessed=witnessed,
    )


def _renamed(line: Line, names: Mapping[str, str]) -> Line:
    return line if line.name is None else replace(line, name=names.get(line.name, line.name))


def _posted_ones(story: Story) -> list[str]:
    """The names of what is asked for over HTTP."""
    return [name for name, kind in story.kinds.items() if kind is Kind.POSTED]


def _keep_evidence(books: Books) -> Path:
    """Keep the stand-in's log beside the build, for whoever looks into it; return the folder."""
    lines = [json.dumps({"line": type(line).__name__, **asdict(line)}) for line in books.log]
    (EVIDENCE / "standin.jsonl").write_text("\n".join(lines))
    return EVIDENCE


def _keep_logs(cloud: Cloud, stage: Stage) -> Path:
    """Keep what the function has logged, and the local cloud itself; return the folder."""
    EVIDENCE.mkdir(parents=True, exist_ok=True)
    (EVIDENCE / "cloud.log").write_text(cloud.log())
    pages = (
        cloud.client("logs")
        .get_paginator("filter_log_events")
        .paginate(logGroupName=stage.stack.outputs["ConsumerLogGroup"], PaginationConfig={"MaxItems": MOST_LOG_LINES})
    )
    said = [event["message"] for page in pages for event in page["events"]]
    (EVIDENCE / "consumer.log").write_text("\n".join(said))
    return EVIDENCE


def perform(show: Show) -> int:
    """Play what the environment asks for, and close the books; return the exit status."""
    wish = wish_of(os.environ)
    show.title(wish.number, wish.seed, protected=wish.protected)
    books = on_local_cloud(wish, show) if wish.stack is None else on_stack(wish, wish.stack, show)
    show.books(books)
    sys.stdout.write(json.dumps(books.line()) + "\n")
    sys.stdout.flush()
    return 1 if books.complaints else 0


def main() -> int:
    """Play the story; return the exit status."""
    show = Show()
    return run_to_its_end(lambda: perform(show), show)


if __name__ == "__main__":
    sys.exit(main())
