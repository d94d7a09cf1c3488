"""Whether messages go where the consumer and its operators look for them: pure checks, as in `checks.py`."""

import json
from collections.abc import Iterator

from idempotent_receiver.operations.doctor.asking import Answer, Missing, Problem, known, name_of_queue
from idempotent_receiver.operations.doctor.bounds import MIN_RECEIVES, described_limits, in_days
from idempotent_receiver.operations.doctor.facts import Facts
from idempotent_receiver.sqs.dead_letter import names_queue

LEAST_RETENTION_SECONDS = 3600
"""After five receives that failed because the store was away, 36 minutes may have passed."""


def queue_retention(facts: Facts) -> Iterator[Problem]:
    """SQS must not delete a message before its last receive."""
    queue = known(facts.queue)
    receives = int(_policy(queue, "RedrivePolicy").get("maxReceiveCount") or MIN_RECEIVES)
    least = max(LEAST_RETENTION_SECONDS, receives * int(queue["VisibilityTimeout"]))
    if (kept := int(queue["MessageRetentionPeriod"])) < least:
        yield (
            f"SQS deletes messages after {kept} s, but {receives} receives may take {least} s: they can be lost",
            "set the queue's MessageRetentionPeriod to 345600 (4 days), or at least to what its receives take",
        )
    limits = described_limits(facts)
    delays = in_days(limits.max_age_seconds)
    if limits.max_attempts is not None and kept <= limits.max_age_seconds:
        yield (
            f"SQS deletes messages after {in_days(kept)}, but RetryLater may delay them for {delays}: they can be lost",
            "set a longer MessageRetentionPeriod on the queue, or a smaller max_age_seconds in code",
        )


def dead_letter_queue(facts: Facts) -> Iterator[Problem]:
    """Dead letters must arrive where operators look for them, and stay there."""
    queue = known(facts.queue)
    if isinstance(facts.dead_letter_queue, Missing):
        yield (
            f"{facts.dead_letter_queue}, which the queue's redrive policy names: SQS can move nothing",
            "create it, or name another queue in the RedrivePolicy",
        )
    if (dead := known(facts.dead_letter_queue)) is not None:
        yield from _refusals(queue, dead)
        named = known(facts.named_dead_letter_queue)
        if named and not names_queue(named, dead["QueueArn"]):
            yield (
                f"the queue's redrive policy moves messages to {name_of_queue(dead)}, but the stack names {named}",
                "make the RedrivePolicy and the stack's output name the same queue",
            )
    given = known(facts.settings).get("DEAD_LETTER_QUEUE_URL")
    if given and names_queue(given, queue["QueueArn"]):
        yield (
            f"DEAD_LETTER_QUEUE_URL is {given}, the consumer's own queue: no dead letter is sent there",
            "set it to the dead-letter queue's URL, or remove it",
        )
    elif given and dead is not None and not names_queue(given, dead["QueueArn"]):
        yield (
            f"DEAD_LETTER_QUEUE_URL is {given}, but operators read {name_of_queue(dead)}, the redrive policy's",
            "set it to the URL of the redrive policy's queue",
        )


def _refusals(queue: Answer, dead: Answer) -> Iterator[Problem]:
    if "deadLetterTargetArn" in _policy(dead, "RedrivePolicy"):
        yield (
            f"{name_of_queue(dead)} has a redrive policy of its own: dead letters that are read move on",
            "remove the dead-letter queue's RedrivePolicy",
        )
    allowed = _policy(dead, "RedriveAllowPolicy")
    permission, sources = allowed.get("redrivePermission", "allowAll"), allowed.get("sourceQueueArns") or []
    if permission == "denyAll" or (permission == "byQueue" and queue["QueueArn"] not in sources):
        yield (
            f"the RedriveAllowPolicy of {name_of_queue(dead)} does not let SQS move messages there",
            f"remove it, or allow {queue['QueueArn']} in it",
        )


def one_consumer(facts: Facts) -> Iterator[Problem]:
    """No other function may take messages or dead letters. Workers share their queue with functions (`one_table`)."""
    own = {each.name for each in known(facts.functions)} if facts.container is None else {*known(facts.readers)}
    for name in sorted({*known(facts.readers)} - own):
        yield (
            f"function {name} reads the queue, too: each message goes to one of them only",
            f"remove the event source mapping of {name}: a second consumer needs a queue and a copy of its own",
        )
    for name in known(facts.dead_letter_readers):
        yield (
            f"function {name} reads the dead-letter queue: operators do not see what it takes",
            f"remove the event source mapping of {name}, and use `receiver dlq`",
        )


def _policy(queue: Answer, name: str) -> Answer:
    found: Answer = json.loads(queue.get(name) or "{}")
    return found
