"""One run of a handler for one claimed key: what the run can use, and its result."""

import inspect
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import NamedTuple, cast

from idempotent_receiver.clock import Deadline
from idempotent_receiver.errors import Failure, StoreUnavailable, failure_of, misuse
from idempotent_receiver.protocol.record import idempotency_key
from idempotent_receiver.protocol.store import RecordStore, TransactionalStore, Unknown
from idempotent_receiver.protocol.transitions import Basis
from idempotent_receiver.transaction import outbox
from idempotent_receiver.transaction.action import Action
from idempotent_receiver.transaction.reads import PlainItem
from idempotent_receiver.transaction.transaction import ToCall, Transaction

MOST_RUNS = 8
"""How many times a handler may run in one attempt because data that it had read changed before it could commit."""


@dataclass(slots=True, eq=False)
class Attempt:
    """One run of the handler within an attempt for a key. `attempt` counts from 1; a claim whose handler never started
    does not count. `owner` is the invocation that makes the attempt.
    """

    id: str
    key: str
    attempt: int
    deadline: Deadline
    owner: str = "unknown"
    store: RecordStore | None = None
    """The store from which its transaction reads."""
    no_sends: str | None = outbox.NOBODY_REDELIVERS
    """Why its transaction cannot send messages; None if it can."""
    to_call: ToCall | None = None
    """What makes a call for its transaction; None if nobody redelivers what it calls."""
    reads: list[float] = field(default_factory=list)
    """The duration of each read in its transaction, in seconds."""
    no_actions: str | None = None
    """Why its transaction has no reads and writes; None if it has."""
    lend: Callable[[type], object] | None = None
    """Lends what the handler requests by annotation, such as a database session."""
    call: "OwnCall | None" = field(default=None, init=False)
    """What runs in place of the handler: a call in its record's outbox."""
    asynchronous: bool = field(default=False, init=False)
    parsing: bool = field(default=False, init=False)
    """Whether its input is being parsed. An error is then not the handler's, which has not started."""
    _transaction: Transaction | None = field(default=None, init=False)
    _ended: bool = field(default=False, init=False)

    @property
    def transaction(self) -> Transaction:
        """The handler's reads, and its writes to commit together with the completion. Created on first use, because few
        handlers need one.
        """
        if self._transaction is None:
            self._transaction = Transaction(
                self._fetch,
                asynchronous=self.asynchronous,
                no_sends=self.no_sends,
                to_call=self.to_call,
                no_actions=self.no_actions,
            )
            if self._ended:
                self._transaction.seal()
        return self._transaction

    def seal(self) -> tuple[Action, ...]:
        """Accept no more writes, and return the requested ones. Called when the handler has returned or raised."""
        self._ended = True
        return () if self._transaction is None else self._transaction.seal()

    def checks(self) -> tuple[Action, ...]:
        """The checks of the data read, because a permanent failure may depend on it."""
        return () if self._transaction is None else self._transaction.checks()

    def pass_on(self, attributes: Mapping[str, str], system_attributes: Mapping[str, str]) -> None:
        """Add these text attributes to each message sent so far, if they fit. A message's own attributes win."""
        if self._transaction is not None:
            self._transaction.pass_on(attributes, system_attributes)

    def outbox(self) -> str | None:
        """What to send and to call once the outcome is recorded, as stored in a record; None if there is nothing."""
        entries = () if self._transaction is None else self._transaction.outbox
        return outbox.to_text(entries) if entries else None

    @property
    def unread(self) -> BaseException | None:
        """The error of a failed read, if any. Nothing may commit after one."""
        return None if self._transaction is None else self._transaction.unread

    def _fetch(self, table: str, key: PlainItem) -> PlainItem | None:
        began_seconds = self.deadline.elapsed_seconds
        found = cast(TransactionalStore, self.store).get(table, key)  # checked at set-up
        self.reads.append(self.deadline.elapsed_seconds - began_seconds)
        if isinstance(found, Unknown):
            raise misuse(StoreUnavailable(self.key, f"Transaction.get: {found.why}", ran=True))
        return found

    @property
    def idempotency_key(self) -> str:
        """A key to pass downstream: the same on every attempt."""
        return idempotency_key(self.id)

    def remaining_time_ms(self) -> int:
        """Milliseconds until the invocation's deadline."""
        return max(0, int(self.deadline.left_seconds * 1000))


class OwnCall(NamedTuple):
    """A call in a record's outbox: its function's name, and what makes it."""

    name: str
    make: Callable[[], object]


MARKER = "idempotent-receiver"

current_attempt: ContextVar[Attempt | None] = ContextVar("current_claim", default=None)
"""The attempt running in this context, if any."""


def current_claim() -> Attempt:
    """The attempt running in this context: `key`, `attempt`, `idempotency_key`, `remaining_time_ms()`.

    Raises LookupError outside a wrapped function, and for an HTTP request that runs without a claim.
    """
    attempt = current_attempt.get()
    if attempt is None:
        text = (
            "current_claim() works only inside a wrapped handler that runs under a key; a GET or an "
            "HTTP request without a key has no claim"
        )
        raise misuse(LookupError(text))
    return attempt


@dataclass(frozen=True, slots=True)
class Returned:
    """The handler returned: its result as JSON text (None: no result), the writes to commit, the result itself, and
    the messages to send, as stored in a record.
    """

    data: str | None
    actions: tuple[Action, ...]
    result: object = None
    outbox: str | None = None


@dataclass(frozen=True, slots=True)
class Raised:
    """The handler raised, or could not start. `actions` are the checks of the data that it had read. `unread` says that
    a read failed, so the failure is not final.
    """

    failure: Failure
    error: BaseException
    actions: tuple[Action, ...] = ()
    unread: bool = False


Handled = Returned | Raised
Handle = Callable[[Attempt], object]
AsyncHandle = Callable[[Attempt], Awaitable[object]]


def run(handle: Handle, attempt: Attempt, *, with_text: bool = False) -> Handled:
    """Run a plain handler. Anything it raises, `BaseException` included, is a failure of this key only."""
    token = current_attempt.set(attempt)
    try:
        return _returned(handle(attempt), attempt)
    except BaseException as error:  # noqa: BLE001  # a handler's SystemExit must not abort other messages
        return _raised(error, attempt, with_text=with_text)
    finally:
        current_attempt.reset(token)


async def run_async(handle: AsyncHandle, attempt: Attempt, *, with_text: bool = False) -> Handled:
    """Run a coroutine function in its own task. Its cancellation at the deadline is an ordinary failure."""
    token = current_attempt.set(attempt)
    attempt.asynchronous = True
    try:
        return _returned(await handle(attempt), attempt)
    except BaseException as error:  # noqa: BLE001  # a handler's SystemExit must not abort other messages
        return _raised(error, attempt, with_text=with_text)
    finally:
        current_attempt.reset(token)


_PLAIN = (dict, list, str, int, type(None))
"""The most common result types, recognised without `inspect`, which is slow."""


def _returned(result: object, attempt: Attempt) -> Returned:
    if not isinstance(result, _PLAIN):
        _refuse_unrun(result)
    actions = attempt.seal()  # before any other user code runs, such as a result's serialisers
    if attempt.unread is not None:
        raise attempt.unread
    return Returned(None if result is None else serialised(result), actions, result, attempt.outbox())


def _raised(error: BaseException, attempt: Attempt, *, with_text: bool) -> Raised:
    attempt.seal()
    failure = failure_of(error, with_text=with_text)
    if attempt.parsing:
        failure = replace(failure, started=False, charged=False)
    if attempt.unread is None:
        return Raised(failure, error, attempt.checks())
    if failure.permanent:
        # The failed read may have caused the permanent failure.
        error, failure = attempt.unread, failure_of(attempt.unread, with_text=with_text)
    return Raised(replace(failure, charged=False), error, unread=True)


def _refuse_unrun(result: object) -> None:
    """Raise TypeError for a result whose body has not run: an unawaited coroutine, or a generator."""
    if not (inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result)):
        return
    for end in ("close", "cancel"):
        if hasattr(result, end):
            getattr(result, end)()
    kind = type(result).__name__
    text = f"the handler returned a {kind}, which never ran: await it in an `async def` handler"
    raise misuse(TypeError(text))


def dropped(why: str) -> str:
    """The marker for a result that could not be kept, although the effect took place."""
    return marker({"result": "dropped", "why": why})


def inline(run: Basis, data: str | None, largest_record_bytes: int) -> str | None:
    """The record's `data` for a result: the result itself, or if it is too large, a marker that it was dropped."""
    if data is None:
        return None
    size_bytes = run.record.size_bytes + len("data") + len(data.encode())
    if size_bytes <= largest_record_bytes:
        return data
    return dropped(f"too large: the record would have {size_bytes} bytes; the limit is {largest_record_bytes}")


def marker(content: dict[str, str]) -> str:
    """The text that a record stores in place of its result."""
    return json.dumps({MARKER: content})


def marked(data: str) -> dict[str, str] | None:
    """The content of a marker; None if the data is a result."""
    if not data.startswith(f'{{"{MARKER}": {{'):
        return None
    content = json.loads(data)[MARKER]
    return content if set(content) <= {"result", "why", "key", "bucket"} else None


def serialised(result: object) -> str | None:
    """The result as JSON text; None if the result is None; a marker if it cannot be serialised.

    Never raises an `Exception`: the effect took place, and an unserialisable result must not undo it.
    """
    if result is None:
        return None
    if isinstance(result, Iterator):
        # The caller would get an exhausted iterator.
        return dropped(f"a {type(result).__name__} can be read only once: return a list")
    # Imported here because a handler with plain bodies and no result does not need it.
    from pydantic_core import to_json  # noqa: PLC0415

    try:
        # By field name and without computed fields, because a model may be unable to read other names.
        text = to_json(result, by_alias=False, round_trip=True, inf_nan_mode="constants").decode()
        if "NaN" in text or "Infinity" in text:
            json.loads(text, parse_constant=_refuse)
    except Exception as error:  # noqa: BLE001  # a user's serialiser may raise anything, even RecursionError
        return dropped(f"not JSON: {type(error).__name__}")
    return text


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
