"""Whether the limits of queue, function, table and account fit together: pure checks, as in `checks.py`."""

import json
from collections.abc import Iterator

from idempotent_receiver.operations.description import DAY_SECONDS, Description
from idempotent_receiver.operations.doctor.asking import Answer, NotAnswered, Problem, known, name_of_queue
from idempotent_receiver.operations.doctor.facts import DeployedFunction, Facts

MIN_RECEIVES = 5
MIN_RECEIVES_WITH_ATTEMPTS = 50
"""With `max_attempts`, SQS's own move is only the backstop."""
LONGEST_TIMEOUT_SECONDS, LONGEST_ON_INSTANCES_SECONDS = 900, 5400
"""Lambda's maximum timeouts: for a function that reads a queue, and for one on Lambda Managed Instances. Source: Lambda
API, UpdateFunctionConfiguration.
"""
LARGEST_BATCH = 10
"""The maximum for a FIFO queue, or without a batching window."""
INVOCATIONS_A_POLLER = 10
"""A poller in provisioned mode runs up to ten invocations at once (Lambda Developer Guide, scaling for SQS)."""
DEFAULT_POLLERS = 200
"""The default MaximumPollers in provisioned mode."""


MOST_BATCHES = 1250
"""The most batches that Lambda runs at once without MaximumConcurrency (Lambda Developer Guide, scaling for SQS)."""
LEAST_CONCURRENCY, LEAST_POLLERS = 2, 2
"""The smallest MaximumConcurrency and MaximumPollers that Lambda accepts."""


def visibility(facts: Facts) -> Iterator[Problem]:
    """A throttled batch must not reappear while Lambda is retrying it (AWS advises six timeouts plus the window)."""
    for function in known(facts.functions):
        timeout = int(known(function.configuration)["Timeout"])
        window = int(known(function.mapping).get("MaximumBatchingWindowInSeconds") or 0)
        hidden, least = int(known(facts.queue)["VisibilityTimeout"]), 6 * timeout + window
        if hidden < least:
            yield (
                f"messages are hidden for {hidden} s, but need {least} s: six {timeout} s timeouts + {window} s window",
                f"set the queue's VisibilityTimeout to {least} or more",
            )


def limits(facts: Facts) -> Iterator[Problem]:
    """AWS must accept the function's timeout and batch settings. A local cloud may accept others."""
    fifo = known(facts.queue).get("FifoQueue") == "true"
    for function in known(facts.functions):
        timeout, mapping = int(known(function.configuration)["Timeout"]), known(function.mapping)
        if timeout > LONGEST_TIMEOUT_SECONDS and timeout > (longest := _longest_timeout(function)):
            yield (
                f"the timeout of {function.name} is {timeout} s, but AWS allows {longest}",
                f"set its Timeout to {longest} or less, or run longer handlers in a container (docs/containers.md)",
            )
        batch = int(mapping.get("BatchSize") or LARGEST_BATCH)
        window = int(mapping.get("MaximumBatchingWindowInSeconds") or 0)
        if fifo and (batch > LARGEST_BATCH or window):
            yield (
                f"for a FIFO queue, Lambda rejects a batch of {batch} with a window of {window} s",
                f"set BatchSize to {LARGEST_BATCH} or less, and remove MaximumBatchingWindowInSeconds",
            )
        elif batch > LARGEST_BATCH and not window:
            yield (
                f"Lambda rejects a batch of {batch} without a batching window",
                f"set MaximumBatchingWindowInSeconds to 1 or more, or BatchSize to {LARGEST_BATCH}",
            )


def receives(facts: Facts) -> Iterator[Problem]:
    """A message needs a dead-letter queue, and spare receives, because SQS counts those that are not its own, too."""
    queue, attempts = known(facts.queue), described_limits(facts).max_attempts
    policy = json.loads(queue.get("RedrivePolicy") or "{}")
    if "deadLetterTargetArn" not in policy:
        yield (
            f"queue {name_of_queue(queue)} has no dead-letter queue: messages that keep failing are eventually deleted",
            f"give the queue a RedrivePolicy with maxReceiveCount: {MIN_RECEIVES} or more",
        )
        return
    least = MIN_RECEIVES if attempts is None else max(MIN_RECEIVES_WITH_ATTEMPTS, attempts + 1)
    if (most := int(policy["maxReceiveCount"])) < least:
        early = "" if attempts is None else f": SQS may move a message before its {attempts} attempts (max_attempts)"
        yield (
            f"maxReceiveCount is {most}, and throttled deliveries count as receives{early}",
            f"set maxReceiveCount in the queue's RedrivePolicy to {least} or more",
        )


def blocked_groups(facts: Facts) -> Iterator[str]:
    """Messages of a FIFO queue pay for those before them in their group. A note, because SQS's policy may be meant."""
    queue = known(facts.queue)
    if queue.get("FifoQueue") == "true" and described_limits(facts).max_attempts is None:
        yield (
            f"queue {name_of_queue(queue)} is FIFO, and no max_attempts of its consumer is known: messages behind a "
            "failing one of their group use up receives, and may become dead letters without ever running. Set "
            "max_attempts in code (docs/consumer.md); if it is set, give --consumer, or update the stack's output"
        )


def described_limits(facts: Facts) -> Description:
    """The consumer's description, which has its `max_attempts`; empty if there is none."""
    return known(facts.given) or known(facts.stated) or Description()


def record_retention(facts: Facts) -> Iterator[Problem]:
    """A record must outlast its message, which would otherwise run again."""
    dead = known(facts.dead_letter_queue)
    seconds = _retention(known(facts.queue)) + (0 if dead is None else _retention(dead))
    kept, stay = known(facts.retention_seconds), in_days(seconds)
    if kept <= seconds:
        yield (
            f"records last {in_days(kept)}, but a message can stay {stay} in its queues: it could run again",
            f"keep records for longer than {stay}: RecordRetentionDays, or retention_seconds in code",
        )


def dead_letter_retention(facts: Facts) -> Iterator[Problem]:
    """A message keeps its age when SQS moves it, so the dead-letter queue must keep messages longer."""
    dead, queue = known(facts.dead_letter_queue), known(facts.queue)
    if dead is not None and (kept := _retention(dead)) <= _retention(queue):
        yield (
            f"dead letters are deleted after {in_days(kept)}, but the queue keeps {in_days(_retention(queue))}",
            "set the dead-letter queue's MessageRetentionPeriod to 1209600 (14 days)",
        )


def concurrency(facts: Facts) -> Iterator[Problem]:
    """Lambda must not take more batches than can run: throttled batches use up receives."""
    for function in known(facts.functions):
        yield from _concurrency(known(function.mapping), function.reserved)


def _concurrency(mapping: Answer, may_run: int | NotAnswered | None) -> Iterator[Problem]:
    maximum = (mapping.get("ScalingConfig") or {}).get("MaximumConcurrency")
    pollers = mapping.get("ProvisionedPollerConfig")
    if pollers and maximum is not None:
        yield (
            f"both provisioned mode and MaximumConcurrency {maximum} are set, but Lambda obeys only one",
            "remove ProvisionedPollerConfig, or MaximumConcurrency",
        )
        return
    most, reserved = _most_batches(mapping) or MOST_BATCHES, known(may_run)
    if reserved == 0:
        yield (
            "the function's reserved concurrency is 0: nothing runs, and each throttled batch uses up receives",
            "reserve more concurrency, or none; to stop the consumer, use `receiver pause`",
        )
    elif reserved is not None and most > reserved:
        least = INVOCATIONS_A_POLLER * LEAST_POLLERS if pollers else LEAST_CONCURRENCY
        setting = (
            f"MaximumPollers to {reserved // INVOCATIONS_A_POLLER}" if pollers else f"MaximumConcurrency to {reserved}"
        )
        text = f"Lambda takes up to {most} batches at once, but only {reserved} can run: the rest are throttled"
        yield (
            f"{text}, and their messages may become dead letters without ever running",
            f"reserve at least {least}" if reserved < least else f"set {setting} or less, or reserve more concurrency",
        )


def account_limit(facts: Facts) -> Iterator[Problem]:
    """The account must be able to run the queue's batches and other functions. New accounts get ten at once."""
    for function in known(facts.functions):
        mapping = known(function.mapping)
        most = _most_batches(mapping)
        if most is None or known(function.reserved) is not None:
            continue
        shared = int(known(facts.account)["UnreservedConcurrentExecutions"])
        if most >= shared and known(function.instances) is None:
            setting = "MaximumPollers" if mapping.get("ProvisionedPollerConfig") else "MaximumConcurrency"
            yield (
                f"Lambda runs up to {most} batches at once, but the account's functions share {shared} executions",
                f"request a higher quota for concurrent executions, or set {setting} for fewer than {shared} batches",
            )


def _most_batches(mapping: Answer) -> int | None:
    """The maximum number of concurrent batches, if set."""
    pollers = mapping.get("ProvisionedPollerConfig")
    if pollers:
        return INVOCATIONS_A_POLLER * int(pollers.get("MaximumPollers") or DEFAULT_POLLERS)
    maximum = (mapping.get("ScalingConfig") or {}).get("MaximumConcurrency")
    return None if maximum is None else int(maximum)


def _longest_timeout(function: DeployedFunction) -> int:
    return LONGEST_TIMEOUT_SECONDS if known(function.instances) is None else LONGEST_ON_INSTANCES_SECONDS


def _retention(queue: Answer) -> int:
    return int(queue["MessageRetentionPeriod"])


def in_days(seconds: int) -> str:
    """A time in days."""
    days = f"{seconds / DAY_SECONDS:g}"
    return f"{days} day" if days == "1" else f"{days} days"
