"""The SQS entry point: takes Lambda's event and returns exactly the messages that SQS must redeliver."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial, update_wrapper
from inspect import signature
from typing import TYPE_CHECKING, Any, Protocol, cast

from idempotent_receiver.batch.executor import Executor, NewExecutor, threads
from idempotent_receiver.batch.items import Work
from idempotent_receiver.batch.receiver import receive
from idempotent_receiver.batch.settings import Host, SendMessages, Settings, Spans
from idempotent_receiver.clock import Clock, Deadline
from idempotent_receiver.errors import Failure
from idempotent_receiver.handler.attempt import Attempt
from idempotent_receiver.handler.lending import LendingStore
from idempotent_receiver.handler.outcome import SUCCEEDED, Failed, Outcome
from idempotent_receiver.protocol import namespaces
from idempotent_receiver.protocol.transitions import Claim
from idempotent_receiver.sqs import dead_letter, visibility
from idempotent_receiver.sqs.binding import Binding
from idempotent_receiver.sqs.message import Message, lined_up, messages_of
from idempotent_receiver.sqs.options import ConsumerOptions, bound
from idempotent_receiver.sqs.sends import send_messages
from idempotent_receiver.sqs.work import Terms, find_claim, is_s3_test, nothing, nothing_async, work_of

if TYPE_CHECKING:
    from idempotent_receiver.sqs.spans import BatchSpans

BatchResponse = dict[str, list[dict[str, str]]]
MessageFunction = Callable[..., Any]
NewHost = Callable[[Sequence[Message], Sequence[Work]], Host]
"""Creates one batch's host from the batch's messages and their work. Used outside Lambda."""


class LambdaHandler(Protocol):
    """The function that `sqs_consumer` returns: takes `(event, context)` and returns the messages to redeliver.

    `options` are the consumer's options, including its store; `__wrapped__` is the function for one message.
    """

    __wrapped__: MessageFunction
    options: ConsumerOptions

    def __call__(self, event: Any, context: Any) -> BatchResponse:
        """Process an SQS event and return the messages to redeliver. Raises InvalidEvent for any other event."""

    def with_options(
        self,
        options: ConsumerOptions,
        function: MessageFunction | None = None,
        *,
        clock: Clock | None = None,
        executor: NewExecutor | None = None,
    ) -> "LambdaHandler":
        """A copy of this handler with other options, such as `dataclasses.replace(handler.options, store=store)`, and
        optionally another function. For tests, `clock` and `executor` replace the sources of time and concurrency.
        """


class Consumer:
    """What a Lambda handler that `sqs_consumer` returns does, and `lambda_handler`, that function.

    Raises TypeError if the function cannot handle a message or does not fit the options.
    """

    def __init__(
        self, options: ConsumerOptions, function: MessageFunction, *, clock: Clock | None, executor: NewExecutor | None
    ) -> None:
        binding = bound(function, options)
        namespaces.take(options.store, *namespaces.user_of("sqs_consumer", function))
        asynchronous = binding.asynchronous or options.callees.any_asynchronous
        new_executor = threads(asynchronous=asynchronous) if executor is None else executor
        new_spans = None if options.tracer is None else _spans(options)

        def handle(event: Any, context: Any, **outside: Any) -> BatchResponse:
            deadline = Deadline.of_invocation(context, clock)
            return _Invocation(options, binding, context, deadline, new_spans, **outside).receive(event, new_executor)

        self.options, self.__wrapped__, self._handle = options, function, handle
        self._copy = partial(Consumer, clock=clock, executor=executor)
        self.lambda_handler = _function_of(self)

    def __call__(self, event: Any, context: Any) -> BatchResponse:
        """Process an event, as `LambdaHandler` does."""
        return self._handle(event, context)

    def receive(self, event: Any, context: Any, lease_ms: int, new_host: NewHost) -> BatchResponse:
        """Process an event outside Lambda: a lease lasts `lease_ms` from when it is written, and the host renews it."""
        return self._handle(event, context, lease_ms=lease_ms, new_host=new_host)

    def with_options(self, options: ConsumerOptions, function: Any = None, **controls: Any) -> "Consumer":
        """As `LambdaHandler.with_options`. `controls` are its `clock` and `executor`, by default this consumer's."""
        return self._copy(options, self.__wrapped__ if function is None else function, **controls)


def _function_of(consumer: Consumer) -> LambdaHandler:
    """A function in front of the consumer, because decorators for Lambda handlers may insist on a function.

    It has the names of the user's function, but its own signature and annotations: Powertools' `event_parser` takes
    the first one as the event's model.
    """

    def lambda_handler(event: Any, context: Any) -> BatchResponse:
        return consumer(event, context)

    def with_options(options: ConsumerOptions, function: Any = None, **controls: Any) -> LambdaHandler:
        return consumer.with_options(options, function, **controls).lambda_handler

    made: Any = lambda_handler
    itself = signature(made)  # before `__wrapped__` is set, which `signature` follows
    update_wrapper(made, consumer.__wrapped__, assigned=("__module__", "__name__", "__qualname__", "__doc__"))
    made.__signature__, made.options, made.with_options = itself, consumer.options, with_options
    made._consumer = consumer  # noqa: SLF001  # read by `handlers.py`
    return cast("LambdaHandler", made)


class sqs_consumer(ConsumerOptions):  # noqa: N801  # a decorator
    """Turn a function for one message into a Lambda handler for SQS batches in which every message takes effect once.

    The function takes parameters by annotation: one body (`dict`, `str`, `bytes`, or any type that pydantic can
    validate) and, optionally, a `Message` and a `Transaction`. It may be an `async def`.

    The handler returns `{"batchItemFailures": [{"itemIdentifier": messageId}, ...]}` with exactly the messages that
    SQS must redeliver, so the event source mapping needs `ReportBatchItemFailures`.

    `key` selects a message's key, by default its messageId. Any other strategy needs a store with a namespace.
    `effects="transaction"` declares that all the function's effects go through its `Transaction`. Then no key is
    claimed: the record is written once, together with the effects, in half the round trips. Two workers may handle
    the same message at once, but only one of them commits.
    `calls` are the functions that `Transaction.call` may call after the commit: a list, or a mapping of names to
    functions. Records have these names, so keep the old name for a while when you rename one.
    `concurrency` is the number of messages handled at once. On Lambda, a plain function with 1 runs on the calling
    thread. An `async def` runs on the process's one event loop.
    `sqs` is a boto3 client. With it, failed messages are redelivered after a backoff or when `RetryLater` says. Without
    `dead_letter_queue`, those that failed for good return within seconds, so that the redrive policy soon moves them.
    `dead_letter_queue` is the URL of a queue that receives a message at its first permanent failure, with the reason.
    `max_attempts`, with both, is how many failures and crashes of its own a message may have: the last one sends it
    there. A `RetryLater` that ends later than `max_age_seconds` after the first send does so, too: keep that below the
    queue's retention.
    `envelope` extracts the body from its envelope: a JMESPath expression, such as `"detail"` for EventBridge and
    `"Message"` for SNS, or a callable that takes the body as it was sent and returns the body as text.
    Your own `key` and `envelope` are called before a claim, for up to 16 messages at once, on other threads. An error
    that blames the message, such as KeyError or ValueError, is permanent; after any other, the message is retried.
    `payload` selects the part of a body that must be the same under one key: by default and with messageIds, all of it.
    A result that would make its record larger than 1 KB is dropped, because no caller waits for it.
    `retention_seconds` is a record's lifetime. It must exceed the time that a message can spend in its queues.
    A lease outlasts Lambda's deadline by `lease_margin_seconds`; `stop_margin_seconds` is the time reserved to settle
    and answer. `error_texts` stores and logs the texts of all errors, not only of `PermanentError` and `RetryLater`,
    and logs their tracebacks.
    `end_process_at_deadline` ends the process. Use it on Lambda Managed Instances, where a timeout does not stop a run.
    `logger` is a Powertools `Logger` by default, or a `logging.Logger`. `metrics` is Powertools' `Metrics` by default,
    or any object with `add_metric` and `flush_metrics`. `tracer` is an OpenTelemetry tracer (the `otel` extra): each
    message gets a span, linked to its producer's. While the function runs, it is the current span. `meter` is an
    OpenTelemetry meter, which gets the same metrics as `metrics`, and more outside Lambda.

    Raises TypeError or ValueError at set-up for invalid options, and RuntimeError if `end_process_at_deadline`
    is set on a system that does not support it.
    """

    def __call__(self, function: MessageFunction) -> LambdaHandler:
        """Decorate a function for one message."""
        return Consumer(self, function, clock=None, executor=None).lambda_handler


@dataclass
class _Invocation:
    """One call of the Lambda handler: the consumer's options and the call's state."""

    options: ConsumerOptions
    binding: Binding
    context: Any
    deadline: Deadline
    new_spans: Callable[..., "BatchSpans"] | None
    lease_ms: int | None = None
    new_host: NewHost | None = None
    messages: list[Message] = field(default_factory=list)
    works: list[Work] = field(default_factory=list)
    raised: bool = False

    def __post_init__(self) -> None:
        owner = str(getattr(self.context, "aws_request_id", "unknown"))
        lease_until_ms = self.deadline.ends_ms + int(self.options.lease_margin_seconds * 1000)
        self.terms = Terms(owner, lease_until_ms, self.lease_ms)
        self.unclaimed = self.options.effects == "transaction" or isinstance(self.options.store, LendingStore)

    def receive(self, event: object, new_executor: NewExecutor) -> BatchResponse:
        """Process an event. Raises InvalidEvent, before any handler runs, if it is not an SQS batch."""
        options = self.options
        self.messages = lined_up(messages_of(event))
        if not self.messages:
            return {"batchItemFailures": []}
        if (left_seconds := self.deadline.left_seconds) <= options.stop_margin_seconds:
            options.telemetry.report_too_short(left_seconds, options.stop_margin_seconds)
        with options.lifetime(self.deadline):
            executor = new_executor()
            try:
                return self._answer(executor)
            except Exception as error:  # noqa: BLE001  # a bug here must not acknowledge anything
                options.telemetry.report_defect(error)
                return _failures(self.messages)
            finally:
                self._close(executor)

    def _answer(self, executor: Executor) -> BatchResponse:
        self._line_up()
        host = None if self.new_host is None else self.new_host(self.messages, self.works)
        spans = None if self.new_spans is None else self.new_spans(self.messages, self.works, on_lambda=host is None)
        try:
            processed = receive(self.works, self._settings(executor, host, spans), self.deadline)
        finally:
            if spans is not None:
                spans.close()
        self.raised = any(isinstance(one, Failed) and one.failure.started for one in processed.outcomes)
        ended = enumerate(processed.outcomes)
        failed = [(self._keyed(place), outcome) for place, outcome in ended if not isinstance(outcome, SUCCEEDED)]
        if failed and host is None:
            self._send_back(failed, executor)
        spent = asdict(processed.spent)
        options = self.options
        if not self.binding.transactional:
            del spent["read"]
        if not options.callees:
            del spent["call"]
        options.telemetry.report(
            processed.outcomes,
            self._log_fields,
            self.deadline.elapsed_seconds,
            spent=spent,
            claims=not self.unclaimed,
            often=host is not None,
            claimed=processed.claimed,
            taken_over=processed.taken_over,
            released=processed.released,
            requests=spent.pop("requests"),
        )
        return _failures([message for message, _ in failed])

    def _line_up(self) -> None:
        """Create each message's work. Where keys are made in the user's own code, each is a job of the batch."""
        for place, message in enumerate(self.messages):
            handle: Any = partial(self._run, place)
            if is_s3_test(message, self.options):
                handle = nothing_async if self.binding.asynchronous else nothing
            if self.options.in_code:
                self.works.append(work_of(message, "", partial(self._make_claim, place), handle))
            else:
                self.works.append(work_of(message, *self._find_claim(place), handle))

    def _find_claim(self, place: int) -> tuple[str, Claim | Failure]:
        """A message's key and claim. From now on, the message has its body."""
        self.messages[place], key, claim = find_claim(self.messages[place], self.options, self.terms)
        return key, claim

    def _make_claim(self, place: int) -> tuple[str, Claim | Failure]:
        """A message's key and claim, made during the batch on another thread."""
        key, claim = self._find_claim(place)
        self.works[place] = self.works[place]._replace(key=key, claim=claim)
        return key, claim

    def _run(self, place: int, attempt: Attempt) -> Any:
        if attempt.call is not None:
            return attempt.call.make()
        return self.binding.run(self.messages[place], attempt)

    def _settings(self, executor: Executor, host: Host | None, spans: Spans | None) -> Settings:
        options = self.options
        return Settings(
            store=options.store,
            executor=executor,
            concurrency=options.concurrency,
            asynchronous=self.binding.asynchronous,
            callees=options.callees,
            unclaimed=self.unclaimed,
            send_dead_letter=None if options.dead_letter_queue is None else self._send_dead_letter,
            send_messages=self._send_messages,
            stop_margin_seconds=options.stop_margin_seconds,
            host=host,
            spans=spans,
            error_texts=options.error_texts,
        )

    @property
    def _send_messages(self) -> SendMessages | None:
        """How transactions send: to an in-memory store, so that tests never reach AWS, or through the client."""
        sqs = self.options.sqs
        into_memory: SendMessages | None = getattr(self.options.store, "send_messages", None)
        return into_memory or (None if sqs is None else partial(send_messages, sqs))

    def _send_back(self, failed: Sequence[tuple[Message, Outcome]], executor: Executor) -> None:
        options = self.options
        if options.sqs is None:
            return
        left_to_sqs = options.dead_letter_queue is None
        try:
            visibility.send_back(options.sqs, options.backoff, failed, executor, self.deadline, left_to_sqs=left_to_sqs)
        except Exception as error:  # noqa: BLE001  # a user's own backoff may raise; the answer stays the same
            options.telemetry.report_raised("the backoff raised, so the queue's visibility timeout applies", error)

    def _close(self, executor: Executor) -> None:
        """End the work that handlers left running, within a stop margin and before the answer is due.

        Once a handler has raised, there is no such limit: its message is redelivered, and leftover work must not run
        alongside the next attempt.
        """
        margin = self.options.stop_margin_seconds
        within_seconds = min(margin, self.deadline.left_seconds - margin / 4)
        left = executor.close(None if self.raised else within_seconds)
        if left is not None:
            self.options.telemetry.report_left_behind(left.cancelled, left.tasks, left.generators, left.threads)

    def _keyed(self, place: int) -> Message:
        """A copy of a message with its key. Created on demand: a successful batch needs few copies."""
        message, work = self.messages[place], self.works[place]
        return replace(message, key=work.key, record_id=work.claim.id) if isinstance(work.claim, Claim) else message

    def _log_fields(self, place: int) -> dict[str, Any]:
        message, work = self.messages[place], self.works[place]
        return {"message_id": message.id, "key": work.key, "receive_count": message.receive_count}

    def _send_dead_letter(self, place: int, failure: Failure) -> bool:
        """Send a dead letter; returns whether SQS confirmed it."""
        sqs, queue = self.options.sqs, self.options.dead_letter_queue
        assert sqs is not None and queue is not None  # noqa: PT018  # checked at set-up and by the caller
        function = str(getattr(self.context, "function_name", "unknown"))
        try:
            dead_letter.send(sqs, queue, self._keyed(place), failure, function)
        except Exception as error:  # noqa: BLE001  # whatever the reason, it is unconfirmed: the message is redelivered
            told = isinstance(error, dead_letter.NoRoom | dead_letter.OwnQueue)
            why = str(error) if told else "check that it exists, and allow sqs:SendMessage"
            what = f"not sent to the dead-letter queue {queue}: {why}"
            self.options.telemetry.report_message_error(what, error, self._log_fields(place))
            return False
        return True


def _spans(options: ConsumerOptions) -> Callable[..., "BatchSpans"]:
    # Imported here because most consumers have no tracer.
    from idempotent_receiver.sqs.spans import BatchSpans  # noqa: PLC0415

    return partial(BatchSpans, options)


def _failures(messages: Sequence[Message]) -> BatchResponse:
    """The answer that makes SQS redeliver `messages`. Each id appears once: an unknown or repeated id would fail the
    whole batch.
    """
    return {"batchItemFailures": [{"itemIdentifier": id} for id in dict.fromkeys(one.id for one in messages)]}
