"""The commands `receiver pause` and `receiver resume`, which turn Lambda's polling of a queue off and on."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated

import typer
from botocore.exceptions import BotoCoreError, ClientError

from idempotent_receiver.dynamodb.codes import code_of
from idempotent_receiver.operations.account import CONSUMER, UsageError
from idempotent_receiver.operations.cli.command import of_a_deployment
from idempotent_receiver.operations.cli.common_options import NO_ARCHIVE, Yes
from idempotent_receiver.operations.cli.deployment import Deployment
from idempotent_receiver.operations.cli.terminal import Exit, Terminal, clean, command, counted, typed
from idempotent_receiver.operations.dead_letters.history import Act, ActOutcome, History, NotKept, Verb
from idempotent_receiver.operations.mappings import (
    DISABLED,
    ENABLED,
    SWITCHED_SECONDS,
    Backlog,
    Mapping,
    backlog_of,
    mappings_of,
    switch,
)

WORDS = {DISABLED: ("Pause", Verb.PAUSED), ENABLED: ("Resume", Verb.RESUMED)}
"""The command and the history's verb for each state."""

CONTAINERS = (
    "There is nothing to pause or resume in Lambda. If containers read the queue (receiver work), "
    'see docs/containers.md, "Pause them".'
)

FunctionOption = Annotated[
    str | None, typer.Option(help="The function, if several read the queue: NAME or NAME:ALIAS.", show_default=False)
]
Because = Annotated[str, typer.Option(help="The reason to record in the history.")]
Wait = Annotated[float, typer.Option(min=0, help="Wait up to this many seconds for Lambda.")]


@of_a_deployment
def pause(
    *,
    deployment: Deployment,
    terminal: Terminal,
    function: FunctionOption = None,
    wait: Wait = SWITCHED_SECONDS,
    because: Because = "",
    yes: Yes = False,
) -> None:
    """Stop Lambda from reading the queue.

    Disables the event source mapping and waits until Lambda has stopped polling. Messages stay in the queue.
    """
    _switch(deployment, terminal, DISABLED, function=function, wait=wait, because=because, yes=yes)


@of_a_deployment
def resume(
    *,
    deployment: Deployment,
    terminal: Terminal,
    function: FunctionOption = None,
    wait: Wait = SWITCHED_SECONDS,
    because: Because = "",
    yes: Yes = False,
) -> None:
    """Let Lambda read the queue again.

    Enables the event source mapping and waits until Lambda polls.
    """
    _switch(deployment, terminal, ENABLED, function=function, wait=wait, because=because, yes=yes)


def _switch(
    deployment: Deployment,
    terminal: Terminal,
    state: str,
    *,
    function: str | None,
    wait: float,
    because: str,
    yes: bool,
) -> None:
    if function == "":
        raise UsageError("--function is empty: give it a value or omit it")
    name, unused = "pause" if state == DISABLED else "resume", "it needs only the queue"
    deployment.options.refuse(name, dlq=unused, table=unused, consumer=unused, archive=NO_ARCHIVE)
    queue, functions = deployment.queue, deployment.client("lambda")
    found = mappings_of(functions, queue.arn)
    chosen = _chosen(deployment, found, function)
    others = [each for each in found if each not in chosen]
    backlog = backlog_of(deployment.client("sqs"), queue.url)
    values = {
        "queue": queue.url,
        "wanted": state,
        "waiting": backlog.waiting,
        "in_flight": backlog.in_flight,
        "mappings": [asdict(each) for each in chosen],
        "others": [asdict(each) for each in others],
    }
    if others:
        terminal.note(f"The queue is also read by {_named(others)}, which this command does not change.")
    if not chosen:
        terminal.answer(
            {**values, "confirmed": False}, f"No event source mapping reads {_queue(queue.arn)}.\n{CONTAINERS}"
        )
        raise typer.Exit(Exit.LEFT)
    act, done = WORDS[state]
    if all(each.state == state for each in chosen):
        terminal.answer({**values, "confirmed": True}, f"Already {done}: {_named(chosen)}.\n{_where(backlog)}")
        return
    terminal.show(clean(f"{act}: {_named(chosen)}.\n{_where(backlog)}\n{_becomes(state, backlog)}"))
    if not terminal.confirm(f"{act}?", yes=yes):
        terminal.answer({**values, "confirmed": False}, "Nothing was changed.")
        raise typer.Exit(Exit.LEFT)
    with terminal.stoppable() as stopped, _kept(deployment, terminal, done, because) as ended:
        states = switch(functions, chosen, state=state, seconds=wait, clock=terminal.clock, stopped=stopped)
        halted = stopped()
        reached = [Mapping(each.id, each.function, states[each.id]) for each in chosen]
        complete = all(each.state == state for each in reached)
        ended(complete)
    values |= {"confirmed": True, "mappings": [asdict(each) for each in reached]}
    if complete:
        back = command(f"receiver {'resume' if state == DISABLED else 'pause'}", *_options(deployment, function))
        terminal.answer(values, clean(f"{done.capitalize()}: {_named(reached)}. To undo:\n{back}"))
        return
    terminal.answer(values, clean(f"Not {done} yet: {_named(reached)}."))
    terminal.note("Lambda takes up to two minutes and refuses other changes until then. Run the same command again.")
    raise typer.Exit(Exit.STOPPED if halted else Exit.LEFT)


@contextmanager
def _kept(deployment: Deployment, terminal: Terminal, verb: Verb, why: str) -> Iterator[Callable[[bool], None]]:
    """Records the act in the history, if one is kept; yields a function to call with whether the act succeeded.

    Unlike acts on dead letters, pausing loses nothing and may be urgent, so it goes ahead without a history.
    """
    history = History(deployment.client("dynamodb"), deployment.history_table, terminal.clock)
    begun: list[Act] = []

    @contextmanager
    def best_effort() -> Iterator[None]:
        try:
            yield
        except (NotKept, ClientError, BotoCoreError) as error:
            terminal.note(f"Not recorded in the history: {error}")

    def end(outcome: ActOutcome, code: str | None = None) -> None:
        with best_effort():
            history.confirm([each.ended(outcome, code) for each in begun])

    with best_effort():
        if history.table is not None:
            begun += history.begin([_act(deployment, verb, why)])
    try:
        yield lambda done: end(ActOutcome.DONE if done else ActOutcome.UNCONFIRMED)
    except ClientError as error:
        end(ActOutcome.REFUSED, code_of(error))
        raise


def _act(deployment: Deployment, verb: Verb, why: str) -> Act:
    arn = deployment.queue.arn
    return Act(
        verb=verb,
        key=arn,
        message_id="",
        queue=arn,
        dead_letter_queue="",
        operator=deployment.operator,
        why=why,
        plan="",
    )


def _chosen(deployment: Deployment, found: Sequence[Mapping], function: str | None) -> list[Mapping]:
    """The selected mappings. Raises UsageError if the choice is ambiguous."""
    meant = function or deployment.outputs.get(CONSUMER)
    if meant is not None:
        chosen = [each for each in found if each.invokes(meant)]
        if function is not None and not chosen:
            others = f": the queue is read by {_named(found)}" if found else ""
            raise UsageError(f"function {function} does not read {_queue(deployment.queue.arn)}{others}")
        return chosen
    names = sorted({each.function for each in found})
    if len(names) > 1:
        which = " or ".join(f"--function {each}" for each in names)
        raise UsageError(f"{_queue(deployment.queue.arn)} is read by {_named(found)}: give {which}")
    return list(found)


def _options(deployment: Deployment, function: str | None) -> list[str]:
    options = deployment.options
    return typed(stack=options.stack, queue=options.queue, function=function, **options.account)


def _named(mappings: Sequence[Mapping]) -> str:
    return ", ".join(f"{each.function} (mapping {each.id}, {each.state})" for each in mappings)


def _queue(arn: str) -> str:
    return f"queue {arn.rpartition(':')[2]}"


def _where(backlog: Backlog) -> str:
    return f"About {counted(backlog.waiting, 'message')} waiting, {backlog.in_flight} in flight."


def _becomes(state: str, backlog: Backlog) -> str:
    """What happens to the messages now."""
    if state == ENABLED:
        return "Lambda reads the queue again, up to the mapping's concurrency. Completed messages do not run twice."
    days = backlog.retention_seconds / 86_400
    return (
        "In flight: running messages may finish. The others return after their visibility timeout, "
        f"{backlog.visibility_seconds} s at most, and wait with the rest. Completed messages do not run twice.\n"
        f"Waiting: SQS deletes a message {days:g} days after it was sent. The alarm on the oldest message will fire."
    )
