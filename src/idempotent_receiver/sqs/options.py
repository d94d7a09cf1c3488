"""A consumer's options: checked once, and used by the consumer, by `receiver work` and by tests."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

from idempotent_receiver import options
from idempotent_receiver.handler.annotations import function_name, require_transactions
from idempotent_receiver.handler.callees import Callees, DeclaredCalls
from idempotent_receiver.handler.lending import LendingStore
from idempotent_receiver.payload import Payload
from idempotent_receiver.process_end import Lifetime, lifetime
from idempotent_receiver.protocol.record import DEFAULT_RETENTION_SECONDS
from idempotent_receiver.protocol.store import RecordStore
from idempotent_receiver.sqs.binding import Binding, bind
from idempotent_receiver.sqs.keys import KeyStrategy, OpenEnvelope, envelope_opener, in_code, message_id
from idempotent_receiver.sqs.visibility import Backoff
from idempotent_receiver.telemetry import Log, Metrics, Telemetry, metrics_factory

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from opentelemetry.metrics import Meter
    from opentelemetry.trace import Tracer


DEFAULT_AGE_SECONDS = 3 * 24 * 60 * 60
"""Three days: a queue keeps its messages for four, unless told otherwise."""


@dataclass(frozen=True)
class ConsumerOptions:
    """A consumer's options, documented in `sqs_consumer`. Use `dataclasses.replace` to vary them.

    Raises TypeError, ValueError or RuntimeError for invalid options, as `sqs_consumer` does.
    """

    store: RecordStore
    _: KW_ONLY
    key: KeyStrategy = message_id
    effects: str = "any"
    concurrency: int = 1
    dead_letter_queue: str | None = None
    sqs: "SQSClient | None" = None
    calls: DeclaredCalls = ()
    max_attempts: int | None = None
    max_age_seconds: int = DEFAULT_AGE_SECONDS
    envelope: str | OpenEnvelope | None = None
    payload: Payload | None = None
    retention_seconds: int = DEFAULT_RETENTION_SECONDS
    lease_margin_seconds: float = 3.0
    stop_margin_seconds: float = 1.0
    backoff: Backoff = Backoff()  # noqa: RUF009  # frozen
    error_texts: bool = False
    end_process_at_deadline: bool = False
    logger: Log | None = None
    metrics: Metrics | None = None
    tracer: "Tracer | None" = None
    meter: "Meter | None" = None

    open_envelope: OpenEnvelope = field(init=False, repr=False, compare=False)
    in_code: bool = field(init=False, repr=False, compare=False)
    """Whether a user's own callable makes bodies or keys."""
    callees: Callees = field(init=False, repr=False, compare=False)
    lifetime: Lifetime = field(init=False, repr=False, compare=False)
    telemetry: Telemetry = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check()
        # Computed once, at set-up. A frozen dataclass sets derived fields this way.
        object.__setattr__(self, "open_envelope", envelope_opener(self.envelope))
        object.__setattr__(self, "in_code", in_code(self.key, self.payload, self.envelope))
        object.__setattr__(self, "callees", self.calls if isinstance(self.calls, Callees) else Callees(self.calls))
        object.__setattr__(self, "lifetime", lifetime(end_process_at_deadline=self.end_process_at_deadline))
        new_metrics = metrics_factory(self.metrics, self.logger)
        object.__setattr__(self, "telemetry", Telemetry(self.logger, new_metrics, self.meter))

    def _check(self) -> None:
        options.require_store(self.store, "sqs_consumer")
        options.require_key(self.key, self.store, message_id)
        if self.sqs is not None:
            options.require_client(self.sqs, "sqs", "sqs")
        options.require_dead_letter_queue(self.dead_letter_queue, self.sqs)
        options.require_max_attempts(self.max_attempts, self.dead_letter_queue)
        options.require_count(self.max_age_seconds, "max_age_seconds")
        options.require_envelope(self.envelope)
        options.require_payload(self.payload, self.key, message_id)
        options.require_queue_retention(self.retention_seconds)
        options.require_effects(self.effects)
        options.require_count(self.concurrency, "concurrency")
        options.require_numbers(
            lease_margin_seconds=self.lease_margin_seconds, stop_margin_seconds=self.stop_margin_seconds
        )
        options.require_flags(error_texts=self.error_texts, end_process_at_deadline=self.end_process_at_deadline)
        if self.backoff is None:
            raise TypeError("backoff must not be None: leave it out for the default")
        wanted = "a Backoff(first_seconds=..., longest_seconds=...)"
        options.require_kind(self.backoff, "backoff", wanted, "seconds", "outage_seconds")
        options.require_kind(self.logger, "logger", "a Powertools Logger or a logging.Logger", "info", "error")
        options.require_kind(self.metrics, "metrics", "Powertools Metrics or the like", "add_metric", "flush_metrics")
        options.require_kind(self.tracer, "tracer", "an OpenTelemetry tracer: trace.get_tracer(name)", "start_span")
        wanted = "an OpenTelemetry meter: metrics.get_meter(name)"
        options.require_kind(self.meter, "meter", wanted, "create_counter", "create_histogram")


def bound(function: Callable[..., Any], given: ConsumerOptions) -> Binding:
    """The function for one message, bound by its annotations. Raises TypeError if it does not fit the options."""
    store = given.store
    if isinstance(store, LendingStore):
        return _bound_to_lender(function, store, given)
    binding = bind(function)
    if binding.transactional:
        require_transactions(given.store, function_name(function))
    elif given.effects == "transaction":
        raise TypeError(
            f"{function_name(function)} takes no Transaction, so effects='transaction' cannot apply: add a"
            f" parameter of type Transaction for all its effects, or keep effects='any'"
        )
    return binding


def _bound_to_lender(function: Callable[..., Any], store: LendingStore, given: ConsumerOptions) -> Binding:
    name, lender = function_name(function), type(store).__name__
    binding = bind(function, store.lends)
    if binding.asynchronous:
        raise TypeError(f"{name} is an `async def`, and {lender} lends a session that blocks: make it a plain function")
    if given.effects == "transaction":
        raise TypeError(f"effects='transaction' is about DynamoDB's transactions; {lender} claims no key anyway")
    store.require_concurrency(given.concurrency)
    return binding
