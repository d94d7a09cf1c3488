"""`make cloud`: the application on a local cloud that stays, with a story behind it, to try commands on.

What it takes comes from the environment: N and SEED, PORT, and REQUEST_KEY, which is the template's parameter
RequestKey. It is set up as `make run` is, and plays its story without the kills. Then it adds what that does not leave
behind: dead letters that can succeed, one that is done, the claim of a worker that died of a message which nobody
delivers again, and what `events/` presupposes. It ends by Ctrl-C or SIGTERM, and leaves nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from local import container
from local.cloud import LOOPBACK, ROOT, in_containers
from local.invoke import put_given
from local.play import Player, StandinPrompter
from local.program import run_to_its_end, whole
from local.run import ledger_player, perform_on, set_up, wish_of
from local.server import ServerError
from local.show import Show
from local.stage import StageError
from local.standin import Standin
from local.story import CURRENCY, Kind, Part, tell

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from local.cloud import Cloud
    from local.run import Wish
    from local.stage import Stage
    from local.story import Story

STACK = "transfers"
ENVIRONMENT = ROOT / ".build" / "cloud.env"
"""What is sourced by a shell that is to work on this cloud. It is there for as long as the cloud is."""
SAM_ENVIRONMENT = ROOT / ".build" / "cloud.env.json"
"""The variables of the functions that `sam local` runs against this cloud, as samconfig.toml has it. Likewise."""

NUMBER = "50"
POLL_SECONDS = 0.2
PAYER, PAYEE = "erin", "frank"  # events/ has accounts of its own
HIGHEST_PORT = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """The keys of records that are worth a look."""

    completed: str
    failed: str
    orphan: str | None


def sandbox(wish: Wish, show: Show, port: int | None = None) -> None:
    """Set all up, say what to type, and stay until somebody interrupts."""
    engine = container.engine()
    also_at = LOOPBACK if engine is None else engine.address
    story = tell(wish.seed, wish.number, kills=False)  # else one waits for their leases
    orphan = None if in_containers() else _late(story, "orphan")
    standin = Standin({**story.kinds, **({} if orphan is None else {orphan.name: Kind.KILLED_BEFORE})})
    parameters = {"RequestKey": os.environ.get("REQUEST_KEY") or "header"}
    with set_up(standin, show, name=STACK, parameters=parameters, port=port, also_at=also_at) as (cloud, stage):
        leftovers = _leave(stage, story, standin, orphan, show)
        put_given(cloud, stage.stack)
        assert stage.api is not None, "the template has one unless it is told otherwise"
        lines = exports({**cloud.environment, "API_URL": stage.api.url})
        variables = {name: container.environment(cloud, stage.stack, name) for name in ("Consumer", "Api")}
        files = {ENVIRONMENT: lines, SAM_ENVIRONMENT: json.dumps(variables, indent=2)}
        with _written(files), contextlib.suppress(KeyboardInterrupt):
            say(lines, commands(leftovers), engine is not None)
            _stay(cloud)


def _leave(stage: Stage, story: Story, standin: Standin, orphan: Part | None, show: Show) -> Leftovers:
    player = Player(stage, story, StandinPrompter(standin)) if orphan else ledger_player(stage, story)[0]
    gave_up = perform_on(stage, story, standin, player, show)
    if gave_up is not None:
        raise StageError(f"the story did not come to its end: {gave_up}")
    said = show.step("leftovers")
    stage.open_accounts({PAYER: 100_000, PAYEE: 0}, CURRENCY)
    key = None if orphan is None else stage.abandon(orphan)
    stage.let_die([_late(story, name) for name in ("done", "unhandled-1", "unhandled-2")], handled=1)
    said("three more dead letters, of which one is done" + ("; and a claim whose worker is dead" if orphan else ""))
    return Leftovers(
        completed=player.sent[_first(story, Kind.GOOD)],
        failed=player.sent[_first(story, Kind.OVERDRAWN)],
        orphan=key,
    )


def _late(story: Story, name: str) -> Part:
    """A transfer that the story does not know of."""
    name = f"{story.parts[0].name.partition('-')[0]}-late-{name}"
    transfer = {"transfer_id": name, "from_account": PAYER, "to_account": PAYEE, "amount": 1, "currency": CURRENCY}
    return Part(name=name, kind=Kind.GOOD, body=json.dumps(transfer))


def _first(story: Story, kind: Kind) -> str:
    return next(part.name for part in story.parts if part.kind is kind)


def exports(variables: Mapping[str, str]) -> str:
    """What a shell must be told to work on this cloud, and on no account of its user's."""
    unset = "unset AWS_PROFILE AWS_DEFAULT_PROFILE AWS_SESSION_TOKEN\n"
    return unset + "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())


def commands(leftovers: Leftovers) -> list[tuple[str, str]]:
    """What to type, and what it shows."""
    on = f"--stack {STACK}"
    return [
        (f"doctor {on}", "what the stack would need, and has"),
        (f"dlq list {on}", "the dead letters, by reason"),
        (f"dlq redrive {on}", "the plan; then, once agreed to, back to the queue with what can succeed"),
        (f"show {leftovers.completed} {on}", "a record that is COMPLETED"),
        (f"show {leftovers.failed} {on}", "one that has FAILED, and why"),
        *([(f"show {leftovers.orphan} {on}", "one whose worker is dead")] if leftovers.orphan else []),
        (f"stuck {on}", "claims whose workers are dead, once their leases are over"),
    ]


def say(lines: str, commands: Sequence[tuple[str, str]], contained: bool) -> None:
    """Say what to type. Not by way of the console: what is to be copied must not be wrapped."""
    path = ENVIRONMENT.relative_to(ROOT)
    text = [
        "",
        f"The stack is called {STACK}. In another terminal, in this folder:",
        "",
        f"    . {path}",
        *(f"    .venv/bin/receiver {command}    # {meaning}" for command, meaning in commands),
        "",
        f"{path} says:",
        "",
        *(f"    {line}" for line in lines.splitlines()),
        "",
        'And curl, as in the README under "Behind HTTP". The functions by themselves, in containers:',
        "",
        "    make sam-local    # builds them for this machine",
        "    sam local invoke Consumer -e events/fresh.json    # or .tools/sam/bin/sam",
        "",
        f"finds this cloud by {SAM_ENVIRONMENT.relative_to(ROOT)}; so do `sam local start-api` and `start-lambda`."
        + ("" if contained else " No container engine answers now: start it, and then `make cloud` again."),
        "",
        "It stays until you press Ctrl-C, and leaves nothing.",
        "",
    ]
    sys.stdout.write("\n".join(text))
    sys.stdout.flush()


def _stay(cloud: Cloud) -> None:
    while cloud.alive:
        time.sleep(POLL_SECONDS)
    raise ServerError("the local cloud has ended by itself")


@contextlib.contextmanager
def _written(texts: Mapping[Path, str]) -> Iterator[None]:
    """Have these files for the length of the block, unless another sandbox puts its own in their place."""
    for path, text in texts.items():
        path.write_text(text)
    try:
        yield
    finally:
        for path, text in texts.items():
            if path.exists() and path.read_text() == text:
                path.unlink()


def perform(show: Show) -> int:
    """Stay until the end; return the exit status."""
    wish = wish_of({"N": os.environ.get("N") or NUMBER, "SEED": os.environ.get("SEED", "")})
    port = whole(os.environ, "PORT", 0)
    if port > HIGHEST_PORT:
        raise ValueError(f"PORT is at most {HIGHEST_PORT}; it is {port}")
    show.title(wish.number, wish.seed, protected=True)
    sandbox(wish, show, port or None)
    return 0


def main() -> int:
    """Stay, whatever comes between; return the exit status."""
    show = Show()
    return run_to_its_end(lambda: perform(show), show)


if __name__ == "__main__":
    sys.exit(main())
