"""What the ways in share that are called and must answer: `http_endpoint` and `idempotent`.

How a function's calls are set up, and how one of them runs. What its outcome means to the caller is each way in's own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from idempotent_receiver import options
from idempotent_receiver.clock import Deadline
from idempotent_receiver.handler.attempt import Attempt, Handle, Handled, run
from idempotent_receiver.handler.endings import Ending
from idempotent_receiver.handler.results import fetched
from idempotent_receiver.handler.single_call import Call, CallContext, CallSettings
from idempotent_receiver.payload import Payload, PayloadKey
from idempotent_receiver.protocol.record import Record, record_id, usable

Key = Callable[..., str] | PayloadKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """How the calls of one function are made."""

    settings: CallSettings
    key: Key
    payload: Payload | None
    lease_margin_seconds: float
    stop_margin_seconds: float

    def check(self, way_in: str) -> None:
        """Raise TypeError or ValueError for an option that cannot work."""
        options.require_store(self.settings.store, way_in)
        options.require_call_key(self.key, way_in)
        options.require_namespace(self.settings.store)
        options.require_kind(self.payload, "payload", "a Payload(fields=..., without=...)", "fingerprint")
        options.require_kind(self.settings.results, "results", "a S3Results(bucket, client)", "put", "get")
        options.require_count(self.settings.retention_seconds, "retention_seconds")
        options.require_numbers(
            lease_margin_seconds=self.lease_margin_seconds, stop_margin_seconds=self.stop_margin_seconds
        )

    def usable(self, key: object) -> str:
        """The key, if its record's id fits into DynamoDB. Raises UnusableKey otherwise."""
        return usable(key, partial(record_id, self.settings.store.namespace))

    def begin(self, key: str, fingerprint: str | None, context: CallContext) -> Call:
        """A call under a usable key, of which nothing has been done yet."""
        return Call(self.settings, key, fingerprint, context)

    def result_of(self, record: Record) -> str | None:
        """The result of a COMPLETED record, as JSON text; None for none. Raises ResultGone."""
        return fetched(record, self.settings.results)

    def within(self, context: Any) -> CallContext:
        """The context of a call in the invocation that has this Lambda context."""
        deadline = Deadline.after(self.settings.clock, context.get_remaining_time_in_millis())
        return self.until(deadline, str(getattr(context, "aws_request_id", "unknown")))

    def until(self, deadline: Deadline, owner: str) -> CallContext:
        """The context of a call that must be over by the invocation's deadline."""
        return CallContext(
            deadline=deadline,
            lease_margin_seconds=self.lease_margin_seconds,
            stop_margin_seconds=self.stop_margin_seconds,
            owner=owner,
        )


def run_once(
    call: Call,
    handle: Handle,
    *,
    wait_seconds: float = 0,
    is_final: Callable[[Handled], bool] = lambda handled: True,
) -> tuple[Ending, Handled | None]:
    """Claim, run and settle; how the call ended, and what the function did if it ran."""
    begun = call.claim(wait_seconds)
    if not isinstance(begun, Attempt):
        return begun, None
    handled = run(handle, begun)
    return call.settle(handled, keep=is_final(handled)), handled
