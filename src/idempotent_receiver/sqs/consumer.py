"""The way in for SQS: Lambda's event in, exactly the messages that SQS must deliver again out."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any

from idempotent_receiver import options
from idempotent_receiver.batch.executor import Executor, ThreadExecutor, ThreadPool
from idempotent_receiver.batch.items import Work
from idempotent_receiver.batch.receiver import Receiver
from idempotent_receiver.clock import Clock, Deadline, SystemClock
from idempotent_receiver.errors import Failure, UnusableKey, text_of
from idempotent_receiver.handler.annotations import Binding, bind, require_transactions
from idempotent_receiver.handler.attempt import AsyncHandle, Attempt, Handle
from idempotent_receiver.handler.outcome import SUCCEEDED, Failed, Outcome
from idempotent_receiver.handler.process_end import Lifetime, lifetime
from idempotent_receiver.handler.results import Results
from idempotent_receiver.payload import EVERYTHING, Payload, payload_key
from idempotent_receiver.protocol import namespaces
from idempotent_receiver.protocol.record import DEFAULT_RETENTION_SECONDS
from idempotent_receiver.protocol.store import RecordStore, record_id
from idempotent_receiver.protocol.transitions import Claim
from idempotent_receiver.sqs import dead_letter, keys, visibility
from idempotent_receiver.sqs.message import Message, messages_of
from idempotent_receiver.sqs.visibility import Backoff
from idempotent_receiver.telemetry import Telemetry

if TYPE_CHECKING:
    from aws_lambda_powertools import Logger
    from aws_lambda_powertools.metrics import EphemeralMetrics, Metrics
    from mypy_boto3_sqs import SQSClient

Response = dict[str, list[dict[str, str]]]
LambdaHandler = Callable[[Any, Any], Response]


def sqs_consumer(
    store: RecordStore,
    *,
    key: keys.KeyStrategy = keys.message_id,
    concurrency: int = 1,
    dead_letter_queue: str | None = None,
    sqs: "SQSClient | None" = None,
    envelope: str | None = None,
    payload: Payload | None = None,
    results: Results | None = None,
    retention_seconds: int = DEFAULT_RETENTION_SECONDS,
    lease_margin_seconds: float = 3.0,
    stop_margin_seconds: float = 1.0,
    backoff: Backoff | None = None,
    error_texts: bool = False,
    end_process_at_deadline: bool = False,
    logger: "Logger | None" = None,
    metrics: "Metrics | EphemeralMetrics | None" = None,
    clock: Clock | None = None,
    executor: Callable[[], Executor] | None = None,
) -> Callable[[Callable[..., Any]], LambdaHandler]:
    """Turn a function for one message into a Lambda handler for SQS batches in which every message takes effect once.

    The function's parameters are found by their annotations: one body (`dict`, `str`, `bytes`, or any type that
    pydantic can validate), and, if asked for, a `Message` and a `Transaction`. It may be an `async def`.

    The handler answers `{"batchItemFailures": [{"itemIdentifier": messageId}, ...]}` with exactly the messages that
    SQS must deliver again, so the event source mapping needs `ReportBatchItemFailures`.

    `key` makes the key: by default the messageId; any other strategy needs a store with a namespace.
    `concurrency` is how many messages are handled at once.
    `sqs` is a boto3 client: with it, failed messages come again after a backoff. What fails for good is a failure too:
    it comes again at once, five times, so that the queue's redrive policy soon moves it. With `dead_letter_queue`, a
    queue's URL, it goes there instead, with its reason, and is acknowledged once SQS has confirmed.
    `envelope` is a JMESPath expression that takes the body out of its envelope: `"detail"` for EventBridge,
    `"Message"` for SNS.
    `payload` says which part of a body must be the same under one key; by default all of it, and under messageIds
    that is not for choosing.
    `results` is where results go that would make their record larger than 1 KB, such as `S3Results(bucket, client)`;
    without it they are dropped, since nobody waits for them.
    `retention_seconds` is how long a record lasts; it must exceed the time that a message can spend in its queues.
    A lease lasts until Lambda's deadline and `lease_margin_seconds`; `stop_margin_seconds` is the time kept to settle
    and answer. `error_texts` stores and logs the texts of all errors, not only of `PermanentError`.
    `end_process_at_deadline` is for Lambda Managed Instances, where a time-out ends nothing: the process ends itself.

    Raises TypeError or ValueError at set-up for what can be known to be wrong then, RuntimeError for a system on which
    a process cannot be made to end at its deadline.
    """
    options.require_store(store, "sqs_consumer")
    options.require_key(key, store, (keys.message_attribute, keys.body_field, payload_key), keys.message_id)
    if sqs is not None:
        options.require_client(sqs, "sqs", "sqs")
    options.require_dead_letter_queue(dead_letter_queue, sqs)
    options.require_payload(payload, key, keys.message_id)
    options.require_kind(results, "results", "a S3Results(bucket, client)", "put", "get")
    options.require_queue_retention(retention_seconds)
    options.require_count(concurrency, "concurrency")
    options.require_numbers(lease_margin_seconds=lease_margin_seconds, stop_margin_seconds=stop_margin_seconds)
    options.require_flags(end_process_at_deadline=end_process_at_deadline)
    options.require_kind(backoff, "backoff", "a Backoff(first_seconds=..., longest_seconds=...)", "seconds")
    options.require_kind(logger, "logger", "a Powertools Logger", "info", "error")
    options.require_kind(metrics, "metrics", "Powertools Metrics", "add_metric", "flush_metrics")
    settings = _Settings(
        store=store,
        key=key,
        concurrency=concurrency,
        dead_letter_queue=dead_letter_queue,
        sqs=sqs,
        open_envelope=keys.envelope_opener(envelope),
        payload=EVERYTHING if payload is None else payload,
        results=results,
        retention_seconds=retention_seconds,
        lease_margin_ms=int(lease_margin_seconds * 1000),
        stop_margin_seconds=stop_margin_seconds,
        backoff=Backoff() if backoff is None else backoff,
        error_texts=error_texts,
        lifetime=lifetime(end_process_at_deadline=end_process_at_deadline),
        telemetry=Telemetry(logger, metrics),
        clock=SystemClock() if clock is None else clock,
        executor=executor,
    )

    def wrap(function: Callable[..., Any]) -> LambdaHandler:
        binding = bind(function)
        if binding.transactional:
            require_transactions(store, function.__qualname__)
        namespaces.take(store, *namespaces.user_of("sqs_consumer", function))

        executors = _threads(binding) if settings.executor is None else settings.executor

        def lambda_handler(event: Any, context: Any) -> Response:
            return _Invocation(settings, binding, context).receive(event, executors)

        return update_wrapper(lambda_handler, function)

    return wrap


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    """What `sqs_consumer` was given."""

    store: RecordStore
    key: keys.KeyStrategy
    concurrency: int
    dead_letter_queue: str | None
    sqs: "SQSClient | None"
    open_envelope: Callable[[str], str]
    payload: Payload
    results: Results | None
    retention_seconds: int
    lease_margin_ms: int
    stop_margin_seconds: float
    backoff: Backoff
    error_texts: bool
    lifetime: Lifetime
    telemetry: Telemetry
    clock: Clock
    executor: Callable[[], Executor] | None


class _Invocation:
    """One call of the Lambda handler. Nothing of it outlives it."""

    def __init__(self, settings: _Settings, binding: Binding, context: Any) -> None:
        options.require_context(context)
        self.settings = settings
        self.binding = binding
        self.deadline = Deadline.after(settings.clock, context.get_remaining_time_in_millis())
        self.owner = str(getattr(context, "aws_request_id", "unknown"))
        self.function = str(getattr(context, "function_name", "unknown"))
        self.messages: list[Message] = []
        self.works: list[Work] = []
        self.raised = False

    def receive(self, event: object, executors: Callable[[], Executor]) -> Response:
        """The answer to an event. Raises InvalidEvent, before any handler runs, where it is not an SQS batch."""
        self.messages = self._lined_up(messages_of(event, self.settings.open_envelope))
        if not self.messages:
            return {"batchItemFailures": []}
        with self.settings.lifetime(self.deadline):
            executor = executors()
            try:
                return self._answer(executor)
            except Exception as error:  # noqa: BLE001  # a defect of ours: nothing may be acknowledged by it
                self.settings.telemetry.defect(error)
                return _failures(self.messages)
            finally:
                self._close(executor)

    def _answer(self, executor: Executor) -> Response:
        self.works = [self._work(message) for message in self.messages]
        processed = self._receiver(executor).process(self.works, self.deadline)
        self.raised = any(isinstance(one, Failed) and one.failure.started for one in processed.outcomes)
        ended = enumerate(processed.outcomes)
        failed = [(self._keyed(place), outcome) for place, outcome in ended if not isinstance(outcome, SUCCEEDED)]
        self._send_back(failed, executor)
        self.settings.telemetry.report(processed, self._keyed, self.deadline.elapsed_seconds)
        return _failures([message for message, _ in failed])

    def _close(self, executor: Executor) -> None:
        """End what the handlers have left behind, for a stop margin at most and no longer than the answer can wait.
        Where one has raised there is no such bound: its message comes again, and what it has left behind must not wake
        up beside that.
        """
        margin = self.settings.stop_margin_seconds
        within_seconds = min(margin, self.deadline.left_seconds - margin / 4)
        left = executor.close(None if self.raised else within_seconds)
        if left is not None:
            self.settings.telemetry.left_behind(left.tasks, left.generators, left.threads)

    def _lined_up(self, messages: Sequence[Message]) -> list[Message]:
        """Each message once, even if the event has it twice; on standard queues the most received first, so that
        none is left over time and again.
        """
        once = list({(message.id, message.raw_body): message for message in messages}.values())
        if any(message.fifo for message in once):
            return once
        return sorted(once, key=lambda message: -message.receive_count)

    def _receiver(self, executor: Executor) -> Receiver:
        settings = self.settings
        return Receiver(
            store=settings.store,
            executor=executor,
            concurrency=settings.concurrency,
            asynchronous=self.binding.asynchronous,
            send_dead_letter=None if settings.dead_letter_queue is None else self._send_dead_letter,
            stop_margin_seconds=settings.stop_margin_seconds,
            results=settings.results,
            error_texts=settings.error_texts,
        )

    def _work(self, message: Message) -> Work:
        """The work of a message, under the key that it has."""
        group = message.group_id if message.fifo else None
        try:
            key = keys.usable(self.settings.key(message), self._record_id)
            fingerprint = keys.fingerprint_by(self.settings.key, message, self.settings.payload)
        except BaseException as error:  # noqa: BLE001  # the strategy is the user's, its exit too this message's alone
            text = (
                text_of(error) if isinstance(error, UnusableKey) else f"the key strategy raised {type(error).__name__}"
            )
            # An exit may be the process's own, by a signal that came just then: it says nothing against the message.
            failure = Failure(type="UnusableKey", text=text, permanent=isinstance(error, Exception), started=False)
            return Work(key="", claim=failure, handle=_never, group=group)
        claim = Claim(
            id=self._record_id(key),
            fingerprint=fingerprint,
            owner=self.owner,
            lease_until_ms=self.deadline.ends_ms + self.settings.lease_margin_ms,
            retention_seconds=self.settings.retention_seconds,
        )
        # A message that was sent again under its old key may be known although SQS delivers it for the first time.
        seen_before = message.receive_count > 1 or dead_letter.STAMP in message.message_attributes
        return Work(key=key, claim=claim, handle=self._handle(message), group=group, seen_before=seen_before)

    def _keyed(self, place: int) -> Message:
        """A message with its key, made where it is asked for: few are, of a batch that goes well."""
        message, work = self.messages[place], self.works[place]
        return replace(message, key=work.key, record_id=work.claim.id) if isinstance(work.claim, Claim) else message

    def _record_id(self, key: str) -> str:
        return record_id(self.settings.store, key)

    def _handle(self, message: Message) -> Handle | AsyncHandle:
        return partial(_run_async if self.binding.asynchronous else _run, self.binding, message)

    def _send_dead_letter(self, place: int, failure: Failure) -> bool:
        """Send a dead letter; whether SQS has confirmed it."""
        settings, message = self.settings, self._keyed(place)
        assert settings.sqs is not None, "checked at set-up"
        assert settings.dead_letter_queue is not None, "checked by the caller"
        try:
            dead_letter.send(settings.sqs, settings.dead_letter_queue, message, failure, self.function)
        except Exception as error:  # noqa: BLE001  # not confirmed, whatever the reason: the message comes again
            told = f"not sent to the dead-letter queue {settings.dead_letter_queue}"
            settings.telemetry.warn(
                f"{told}: see that it exists, and to the permission sqs:SendMessage", message, error
            )
            return False
        return True

    def _send_back(self, failed: Sequence[tuple[Message, Outcome]], executor: Executor) -> None:
        """Let failed messages come again when it is worth it; without a client, when the queue says."""
        settings = self.settings
        if settings.sqs is None or not failed:
            return
        now_ms, clock, left_to_sqs = self.deadline.now_ms, settings.clock, settings.dead_letter_queue is None
        seconds = {
            message.id: visibility.visibility_seconds(
                message, outcome, settings.backoff, now_ms, clock, left_to_sqs=left_to_sqs
            )
            for message, outcome in failed
        }
        messages = [message for message, _ in failed]
        seconds = visibility.in_groups(messages, seconds)
        visibility.change(settings.sqs, messages, seconds, executor, self.deadline)


def _threads(binding: Binding) -> Callable[[], Executor]:
    """What makes a consumer's executors; its threads, and the loops of a coroutine function, are kept between them."""
    pool, loops = ThreadPool(), None
    if binding.asynchronous:
        # Imported where it is used: most consumers start without asyncio.
        from idempotent_receiver.batch.event_loop import Loops  # noqa: PLC0415

        loops = Loops()
    return lambda: ThreadExecutor(pool, loops)


def _run(binding: Binding, message: Message, attempt: Attempt) -> object:
    return binding.function(*_arguments(binding, message, attempt))


async def _run_async(binding: Binding, message: Message, attempt: Attempt) -> object:
    return await binding.function(*_arguments(binding, message, attempt))


def _arguments(binding: Binding, message: Message, attempt: Attempt) -> list[Any]:
    return binding.arguments(_lent(message, attempt) if binding.wants_message else message, attempt)


def _lent(message: Message, attempt: Attempt) -> Message:
    """The message for a handler to keep and to change: ours is still needed for its backoff or its dead letter."""
    return replace(
        message,
        attributes=dict(message.attributes),
        message_attributes=deepcopy(message.message_attributes),
        key=attempt.key,
        record_id=attempt.id,
        attempt=attempt.attempt,
        remaining_time_ms=attempt.remaining_time_ms,
    )


def _failures(messages: Sequence[Message]) -> Response:
    """The answer that asks for these messages again, each once: SQS takes an unknown id for a failed batch."""
    return {"batchItemFailures": [{"itemIdentifier": id} for id in dict.fromkeys(one.id for one in messages)]}


def _never(attempt: Attempt) -> object:
    raise AssertionError("a message without a key is never run")
