"""`receiver work`: the worker outside Lambda."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from idempotent_receiver.operations.account import UsageError
from idempotent_receiver.sqs.visibility import MOST_ENTRIES
from idempotent_receiver.worker.supervisor import DRAIN_SECONDS, Supervisor

LONGEST_LEASE_SECONDS = 43_200
"""A message stays invisible for its lease, and SQS limits invisibility to twelve hours."""


def work(
    queue_url: Annotated[str, typer.Argument(help="The queue's URL.")],
    handler: Annotated[str, typer.Argument(help="The decorated handler, as module:function.")],
    *,
    processes: Annotated[int, typer.Option(min=1, help="The number of worker processes.")] = 1,
    concurrency: Annotated[int, typer.Option(min=1, help="The number of handlers that each process runs at once.")] = 1,
    receive: Annotated[int, typer.Option(min=1, max=MOST_ENTRIES, help="The number of messages per receive.")] = (
        MOST_ENTRIES
    ),
    lease_seconds: Annotated[
        float,
        typer.Option(
            min=1, max=LONGEST_LEASE_SECONDS, help="Lease duration in seconds; leases are renewed after a third of it."
        ),
    ] = 60,
    time_limit: Annotated[
        float, typer.Option(min=1, max=LONGEST_LEASE_SECONDS, help="Seconds that a handler may run.")
    ] = LONGEST_LEASE_SECONDS,
    drain_seconds: Annotated[
        float, typer.Option(max=LONGEST_LEASE_SECONDS, help="Seconds that handlers may keep running after SIGTERM.")
    ] = DRAIN_SECONDS,
    health_file: Annotated[
        Path | None, typer.Option(help="A file to touch regularly once a process has loaded the handler.")
    ] = None,
    max_messages_per_process: Annotated[
        int | None,
        typer.Option(min=1, help="Replace a process after it has received this many messages.", show_default="never"),
    ] = None,
) -> None:
    """Run a queue's consumer outside Lambda.

    Processes poll the queue and run the decorated handler with the same guarantees as on Lambda. Leases of long runs
    are renewed; a process that cannot renew a lease is killed before the lease ends. SIGTERM drains; a second one
    stops at once.
    """
    seconds = {"--lease-seconds": lease_seconds, "--time-limit": time_limit, "--drain-seconds": drain_seconds}
    for option, value in seconds.items():
        if (
            not 0 < value <= LONGEST_LEASE_SECONDS
        ):  # also excludes NaN, which some versions of typer accept in any range
            raise UsageError(f"{option}: {value:g} must be more than 0, and at most {LONGEST_LEASE_SECONDS} seconds")
    if health_file is not None:
        _remove(health_file)
    limits = {
        "concurrency": concurrency,
        "receive": receive,
        "lease_seconds": lease_seconds,
        "time_limit_seconds": time_limit,
        "max_messages": max_messages_per_process,
    }
    task = {"queue_url": queue_url, "handler": handler, "limits": limits}
    status = Supervisor(task, processes=processes, drain_seconds=drain_seconds, health=health_file).run()
    raise typer.Exit(status)


def _remove(health_file: Path) -> None:
    """Remove an earlier run's file, which would report this run as started. Raises UsageError if the file cannot
    be removed, or a new one cannot be created.
    """
    with suppress(OSError):
        health_file.unlink(missing_ok=True)
        if os.access(health_file.parent, os.W_OK):
            return
    raise UsageError(f"--health-file: {health_file} cannot be written; choose a file in a writable folder")
