"""Further requirements for workers outside Lambda: pure checks, as in `checks.py`."""

from argparse import ArgumentError, ArgumentParser
from collections.abc import Iterator

from idempotent_receiver.operations.doctor.asking import Answer, NotAnswered, Problem, known
from idempotent_receiver.operations.doctor.facts import Facts, settings_of
from idempotent_receiver.worker.supervisor import DRAIN_SECONDS

STOP_TIMEOUT_SECONDS = 30
"""ECS's default."""


def one_table(facts: Facts) -> Iterator[Problem]:
    """Functions and workers that read one queue must share one records table."""
    table = known(facts.table)["TableName"]
    for function in known(facts.functions):
        configuration = known(function.configuration)
        other = settings_of(configuration).get("RECORDS_TABLE", table)
        if other != table:
            yield (
                f"function {configuration['FunctionName']} also reads the queue, but keeps records in table {other}",
                "give both the same RECORDS_TABLE: otherwise messages that both receive run twice",
            )


def stop_timeout(facts: Facts) -> Iterator[Problem]:
    """Handlers running at SIGTERM must be able to finish before ECS kills the task."""
    container = known(facts.container) or {}
    drain = float(_option(container, "--drain-seconds") or DRAIN_SECONDS)
    stop = int(container.get("stopTimeout") or STOP_TIMEOUT_SECONDS)
    if drain >= stop:
        yield (
            f"ECS kills the task {stop} s after SIGTERM, but its handlers may run for {drain:g} s",
            f"set StopTimeout to more than {drain:g} (120 at most on Fargate), or --drain-seconds to less than {stop}",
        )


def health_check(facts: Facts) -> Iterator[Problem]:
    """ECS must replace a task whose supervisor is frozen or has no processes."""
    container = known(facts.container) or {}
    file, probe = _option(container, "--health-file"), (container.get("healthCheck") or {}).get("command") or []
    if file is None or not any(file in word for word in probe):
        yield (
            "the container has no health check on the file that the worker touches",
            "give the worker a --health-file, and the container a HealthCheck of that file's age (see container.yaml)",
        )


ON_A_TASK = (one_table, stop_timeout, health_check)
"""Checks for workers outside Lambda only."""


def _option(container: Answer, name: str) -> str | None:
    """The value of a `receiver work` option in the container's command."""
    if not container.get("command"):
        raise NotAnswered("the task definition has no command")
    parser = ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument(name, dest="value")
    try:
        value: str | None = parser.parse_known_args(container["command"])[0].value
    except ArgumentError as error:
        raise NotAnswered(f"the task's command cannot be read: {error}") from None
    return value
