"""Bugs between SQS and the batch: messages in, failures out."""

from __future__ import annotations

from tests.mutants.change import (
    always,
    argument,
    before,
    inside,
    instead_of,
    leave_out,
    never,
    replace,
    without_case,
)
from tests.mutants.mutant import Mutant, simulated, unit

DEADLINE = simulated("deadline")
KEYS = simulated("keys")
VISIBILITY = unit("sqs/visibility")

MUTANTS = {
    # An event, and the answer to it.
    "an empty batch is received like any other": Mutant(
        "sqs.consumer:_Invocation.receive", never("not self.messages"), where=()
    ),
    "a consumer's process outlives its deadline": Mutant(
        "sqs.consumer:_Invocation.receive",
        replace("self.lifetime($DEADLINE)", "__import__('contextlib').nullcontext()"),
        promise=2,
        where=unit("handler/process_end"),
    ),
    "an invocation is kept for the next": Mutant(
        "sqs.consumer:sqs_consumer.wrap.lambda_handler",
        replace(
            "$INVOCATION.receive($EVENT, $EXECUTOR)",
            "lambda_handler.__dict__.setdefault('kept', $INVOCATION).receive($EVENT, $EXECUTOR)",
        ),
        where=(),
    ),
    "what is done is remembered by the process": Mutant(
        "sqs.consumer:_Invocation._answer",
        replace(
            "[(self._keyed($PLACE), $OUTCOME) for $PLACE, $OUTCOME in $ENDED if $FAILED]",
            "[(self._keyed($PLACE), $OUTCOME)"
            " for done in [_failures.__dict__.setdefault('done', set())] for $PLACE, $OUTCOME in $ENDED"
            " if self._keyed($PLACE).id not in done if $FAILED or done.add(self._keyed($PLACE).id)]",
        ),
        promise=1,
        where=(),
    ),
    "where everything failed nothing is named": Mutant(
        "sqs.consumer:_Invocation._answer",
        replace("[$ONE for $ONE, $WHY in $FAILED]", "$0 if len($FAILED) < len(self.messages) else []"),
        promise=1,
        where=(),
    ),
    "an answer names keys": Mutant(
        "sqs.consumer:_failures", replace("$ONE.id", "$ONE.key or $ONE.id"), promise=1, where=()
    ),
    "two messages with one body are taken for one": Mutant(
        "sqs.message:lined_up", replace("($ONE.id, $ONE.raw_body)", "$ONE.raw_body"), promise=1, where=()
    ),
    "the most received go last": Mutant(
        "sqs.message:lined_up", replace("-$ONE.receive_count", "$ONE.receive_count"), where=DEADLINE
    ),
    "the answer leaves although what a failed coroutine has left behind still runs": Mutant(
        "sqs.consumer:_Invocation._close", never("self.raised"), promise=2, where=unit("batch/executor")
    ),
    # A message's key, claim and handler.
    "an exit in a key strategy fails for good": Mutant(
        "sqs.keys:_no_key", argument("permanent", "True"), promise=1, where=KEYS
    ),
    "an unusable key runs under its messageId": Mutant(
        "sqs.keys:ClaimTerms.work", replace("self.key(message)", "str($0 or message.id)"), where=KEYS
    ),
    "a body is validated before its claim": Mutant(
        "sqs.consumer:_Invocation._answer",
        before(
            "self.claims.work",
            "from idempotent_receiver.handler.attempt import Attempt\n"
            "[self.binding.arguments(message, Attempt('', '', 1, self.deadline)) for message in self.messages]",
        ),
        where=(),
    ),
    "a lease in seconds where milliseconds are meant": Mutant(
        "sqs.consumer:_Invocation._answer", replace("self.deadline.ends_ms", "self.deadline.ends_ms // 1000"), promise=2
    ),
    "a lease without a margin for clocks that differ": Mutant(
        "sqs.consumer:_Invocation._answer", leave_out("self.lease_margin_ms"), promise=2, where=DEADLINE
    ),
    "a handler is lent the event's own attributes": Mutant(
        "sqs.binding:_lent", replace("deepcopy($ATTRIBUTES)", "$ATTRIBUTES"), where=()
    ),
    "a number's key depends on how it is written": Mutant(
        "sqs.keys:_digits", replace("int($NUMBER)", "$NUMBER"), promise=3, where=unit("sqs/keys")
    ),
    # Messages.
    "what is no batch is an empty batch": Mutant(
        "sqs.message:messages_of", instead_of("InvalidEvent", "return []"), promise=1, where=unit("sqs/consumer")
    ),
    "a malformed record is passed over": Mutant(
        "sqs.message:messages_of",
        replace("enumerate($ALL)", "(one for one in $0 if isinstance(one[1], dict) and 'body' in one[1])"),
        promise=1,
        where=(),
    ),
    "an empty messageId is let in": Mutant("sqs.message:_message", never("not $RECORD['messageId']"), where=()),
    "another idempotency key at each attempt": Mutant(
        "sqs.message:Message.idempotency_key", replace("self.record_id", "f'{self.record_id}{self.attempt}'"), promise=5
    ),
    # Dead letters.
    "a dead letter is confirmed by an error": Mutant(
        "sqs.consumer:_Invocation._send_dead_letter", replace("False", "True"), promise=1
    ),
    "a deduplication id that a second send shares": Mutant(
        "sqs.dead_letter:send", replace("f'{$ID}-{$COUNT}'", "$ID"), where=simulated("fifo")
    ),
    "a dead letter under the new id of a message that was sent again": Mutant(
        "sqs.dead_letter:_stamp", replace(".original_id", "message.id"), where=unit("sqs/dead_letter")
    ),
    # When a message comes again.
    "what is in progress comes again before the lease has ended": Mutant(
        "sqs.visibility:visibility_seconds",
        replace("math.ceil($SECONDS + $JITTER)", "math.floor($SECONDS)"),
        where=VISIBILITY,
    ),
    "a backoff beyond the twelve hours of SQS": Mutant(
        "sqs.visibility:Backoff._bound", leave_out("LONGEST_SECONDS"), where=VISIBILITY
    ),
    "what was not started backs off": Mutant("sqs.visibility:visibility_seconds", without_case("NotStarted"), where=()),
    "what failed for good goes round at full speed where no redrive policy moves it": Mutant(
        "sqs.visibility:visibility_seconds", inside("Failed", always("$BEYOND <= 0")), where=VISIBILITY
    ),
    "a store's trouble backs off like a handler's": Mutant(
        "sqs.visibility:visibility_seconds", replace("$BACKOFF.outage_seconds", "$BACKOFF.seconds"), where=()
    ),
}
