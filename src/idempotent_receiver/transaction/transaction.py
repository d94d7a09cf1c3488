"""A handler's reads, and the writes that it wants committed together with its completion. Collected here; sent by a
store.

Values are plain Python and are copied, so later changes to the caller's objects have no effect.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from idempotent_receiver.errors import misuse
from idempotent_receiver.transaction.action import Action, ActionKind, check_of, require_few_operators, source_of
from idempotent_receiver.transaction.outbox import NOBODY_REDELIVERS, Outbox, OutboxCall, OutboxEntry, outgoing
from idempotent_receiver.transaction.reads import (
    PlainItem,
    Read,
    names_of,
    require_expressible,
    with_condition,
    with_ints,
)
from idempotent_receiver.transaction.values import checked_arguments, named_type

MOST_ACTIONS = 99
"""DynamoDB allows 100 actions in a transaction; one is the record's own."""

_OPTIONAL = frozenset(
    {
        "ConditionExpression",
        "ExpressionAttributeNames",
        "ExpressionAttributeValues",
        "ReturnValuesOnConditionCheckFailure",
    }
)


_ENDED = (
    "the handler has already returned or raised, so this cannot be committed; wait for threads and tasks before "
    "returning, and do not reuse a transaction for another message"
)

NO_ACTIONS = "the store's transaction is one of a relational database: write through the session that it lends"
"""The reason why a transaction has no reads and writes of DynamoDB's."""

Fetch = Callable[[str, PlainItem], PlainItem | None]
"""Reads an item by table and key, with a consistent read. Raises an exception if it cannot."""


ToCall = Callable[[object, Mapping[str, Any]], OutboxCall]
"""Makes a call of a function and its arguments. Raises an exception if it cannot."""


def _nowhere(table: str, key: PlainItem) -> PlainItem | None:
    raise misuse(TypeError("Transaction.get: this transaction has no store to read from"))


class Transaction:
    """Reads that are still current at the commit, and writes that take effect once: with the completion, or not at all.

    Each method takes the arguments that DynamoDB's TransactWriteItems takes for that action (`TableName`, `Key` or
    `Item`, `ConditionExpression`, `UpdateExpression`, `ExpressionAttributeNames`, `ExpressionAttributeValues`) with
    plain Python values: str, int, Decimal, bytes, bool, None, list, dict, set. Each call checks and copies them: an
    invalid argument raises TypeError or ValueError at once, and later changes to your dicts have no effect. Values as
    boto3's client types them (`{"S": "x"}`) are invalid.

    Nothing is written before the handler has returned. Conditions are evaluated then, so `otherwise` is the error to
    raise for a failed condition. A `PermanentError` sends the message to the dead-letter queue; after any other error,
    or by default, the message is retried.
    After the handler has returned, each method raises RuntimeError: an action that a thread or task adds later could
    not be committed.

    At most 99 actions, on distinct items, none on the message's own record. An item that is only read counts, too.
    Source: https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html
    """

    def __init__(
        self,
        fetch: Fetch = _nowhere,
        *,
        asynchronous: bool = False,
        no_sends: str | None = None,
        to_call: ToCall | None = None,
        no_actions: str | None = None,
    ) -> None:
        self._fetch = fetch
        self._asynchronous = asynchronous
        self._no_sends = no_sends
        self._to_call = to_call
        self._outbox = Outbox()
        self._no_actions = no_actions
        self._actions: list[Action] = []
        self._reads: list[Read] = []
        self._sealed: str | None = None
        self._adding = threading.Lock()
        self._waiting = 0
        """The number of reads still awaiting an answer."""
        self.unread: BaseException | None = None
        """The first error from a `get`, if any. Then nothing may commit: the handler may rely on the missing item."""

    @property
    def actions(self) -> tuple[Action, ...]:
        """The actions requested so far, in order."""
        return tuple(self._actions)

    @property
    def outbox(self) -> tuple[OutboxEntry, ...]:
        """What to send and to call once the outcome is recorded, in order."""
        return tuple(self._outbox.entries)

    def pass_on(self, attributes: Mapping[str, str], system_attributes: Mapping[str, str]) -> None:
        """Add these text attributes to each message, if they fit. The message's own attributes take precedence."""
        with self._adding:
            self._outbox.pass_on(attributes, system_attributes)

    def seal(self, why: str = _ENDED) -> tuple[Action, ...]:
        """Accept no more actions, and return those requested and the condition checks for the reads. Called when the
        handler has returned or raised.

        `why` is the text of the RuntimeError that later calls raise.
        """
        with self._adding:
            self._sealed = why
            if self._waiting:
                self._lacks("had no answer when the handler ended: wait for its thread or task")
            if not self._reads:
                return tuple(self._actions)
            for read in self._reads:
                read.ended = True
            return (*map(self._guarded, self._actions), *map(check_of, self._unwritten()))

    def checks(self) -> tuple[Action, ...]:
        """The checks of all reads, without any write."""
        return tuple(check_of(read) for read in self._reads if read.checked)

    def get(self, *, attributes: Any = None, check: bool = True, **arguments: Any) -> Any:
        """Read `attributes` of the item with this `Key` in this `TableName`, consistently: a dict of plain values, or
        None.

        The data read is still current when the outcome commits (the writes, a return without writes, or a
        PermanentError). Otherwise nothing commits, and the handler runs again at once on the current items.

        `attributes` is required: the names to read and check, present or absent, or a pydantic model, in which case
        this returns an instance of it. They name whole attributes, not paths. Looking up any other name in the dict
        raises LookupError. With `check=False` the item may change meanwhile.

        Write the item with `update`. A `put` of it is refused, unless a checked read found no item; a `delete` also
        removes what you did not name.

        Reading an item again returns another copy, without a request. Raises ValueError for an item already written in
        this transaction, or for more names than a condition can check, and StoreUnavailable if the store did not
        answer. After any of these errors nothing commits, even if you catch it. The same applies to a read that was
        cancelled, or has no answer when the handler ends. In an `async def` handler, use `await tx.aget(...)`: there
        `get` raises RuntimeError.
        """
        if self._asynchronous and _in_event_loop():
            raise self._lacks("would block the event loop: in an `async def` handler, `await tx.aget(...)`")
        return self._get(attributes, check, arguments)

    async def aget(self, *, attributes: Any = None, check: bool = True, **arguments: Any) -> Any:
        """The same as `get`, for an `async def` handler."""
        # Imported here because most handlers do not need it.
        from asyncio import CancelledError, to_thread  # noqa: PLC0415

        try:
            return await to_thread(self._get, attributes, check, arguments)
        except CancelledError:
            self._lacks("was cancelled before its answer, by a timeout or by the handler")
            raise

    def put(self, *, otherwise: BaseException | None = None, **arguments: Any) -> None:
        """Put an item: `TableName`, `Item`, and optionally a `ConditionExpression` with its names and values."""
        self._add("Put", ("TableName", "Item"), arguments, otherwise)

    def update(self, *, otherwise: BaseException | None = None, **arguments: Any) -> None:
        """Update an item: `TableName`, `Key`, `UpdateExpression`, and optionally a `ConditionExpression`."""
        self._add("Update", ("TableName", "Key", "UpdateExpression"), arguments, otherwise)

    def delete(self, *, otherwise: BaseException | None = None, **arguments: Any) -> None:
        """Delete an item: `TableName`, `Key`, and optionally a `ConditionExpression`."""
        self._add("Delete", ("TableName", "Key"), arguments, otherwise)

    def check(self, *, otherwise: BaseException | None = None, **arguments: Any) -> None:
        """Check a condition on an item without writing it: `TableName`, `Key`, `ConditionExpression`."""
        self._add("ConditionCheck", ("TableName", "Key", "ConditionExpression"), arguments, otherwise)

    def send(self, *, QueueUrl: str, MessageBody: Any, **arguments: Any) -> None:  # noqa: N803  # SendMessage's names
        """Send a message if and only if this transaction commits. `MessageBody` is text, or a value that pydantic
        serialises to JSON; `MessageAttributes`, `MessageGroupId`, `DelaySeconds` and `MessageSystemAttributes` are as
        in SendMessage.

        The message stays in the record until SQS has confirmed it. It is sent at least once, each time with the same
        key, so consumers that use this library recognise a repeated send as a duplicate. On a FIFO queue the key is
        also the deduplication id. At most 64 KB per transaction; each KB costs two write units.

        Raises TypeError or ValueError for anything that SQS would reject, and RuntimeError if calls are not redelivered
        or the consumer has no SQS client.
        """
        if self._no_sends is not None:
            raise misuse(RuntimeError(f"Transaction.send: {self._no_sends}"))
        message = outgoing(QueueUrl, MessageBody, arguments)
        with self._adding:
            self._require_open("send")
            self._outbox.add(message, "send")

    def call(self, function: Callable[..., Any], /, **arguments: Any) -> None:
        """Call a function that the consumer declares in `calls=`, if and only if this transaction commits. Its result
        is dropped.

        The call stays in the record until the function has returned. It is made at least once, each time under the
        same key, which goes to the function's parameter `idempotency_key`, if it has one. Arguments are what pydantic
        serialises to JSON and reads back equal, within the 64 KB of `send`.

        Raises TypeError or ValueError for anything else, and RuntimeError if calls are not redelivered.
        """
        if self._to_call is None:
            raise misuse(RuntimeError(f"Transaction.call: {NOBODY_REDELIVERS}"))
        call = self._to_call(function, arguments)
        with self._adding:
            self._require_open("call")
            self._outbox.add(call, "call")

    def _get(self, attributes: Any, check: bool, arguments: dict[str, Any]) -> Any:
        with self._adding:
            self._waiting += 1
        try:
            found = self._read(attributes, check, arguments)
        except BaseException as error:
            self.unread = self.unread or error
            raise
        finally:
            with self._adding:
                self._waiting -= 1
        if found is None or not hasattr(attributes, "model_validate"):
            return found
        # Outside the `try`: validation errors depend on the data read, and may be final.
        return attributes.model_validate(found)

    def _read(self, attributes: Any, check: bool, arguments: dict[str, Any]) -> PlainItem | None:
        given, names = checked_arguments("get", ("TableName", "Key"), frozenset(), arguments), names_of(attributes)
        table, key = given["TableName"], given["Key"]
        with self._adding:
            known = self._known(table, key)
        if known is None:
            item = self._fetch(table, key)
            known = Read(table, key, None if item is None else with_ints(dict(item)))
        with self._adding:
            # Another thread may have read or written the item meanwhile.
            read = self._known(table, key) or known
            self._require_room(check and not read.checked)
            if read not in self._reads:
                self._reads.append(read)
            return read.taken(names, check=check)

    def _lacks(self, why: str) -> BaseException:
        """The error for a read without an answer, after which nothing may commit."""
        error = misuse(RuntimeError(f"Transaction.get {why}"))
        self.unread = self.unread or error
        return error

    def _known(self, table: str, key: PlainItem) -> Read | None:
        """The earlier read of the item, if any. Raises an error if the item can no longer be read."""
        self._require_open("get")
        for number, action in enumerate(self._actions, 1):
            if Read(table, key, None).covers(action.arguments["TableName"], source_of(action)):
                text = f"{action.named(number)} writes this item: read it before writing, and keep what you wrote"
                raise misuse(ValueError(f"Transaction.get: {text}"))
        return next((read for read in self._reads if read.covers(table, key)), None)

    def _add(
        self, kind: ActionKind, required: tuple[str, ...], arguments: dict[str, Any], otherwise: BaseException | None
    ) -> None:
        given = checked_arguments(kind, required, _OPTIONAL, arguments)
        if otherwise is not None and not isinstance(otherwise, BaseException):
            raise misuse(
                TypeError(
                    f"`otherwise` must be an error, like PermanentError('overdrawn'); it is {named_type(otherwise)}"
                )
            )
        action = Action(kind, given, otherwise)
        # Under the same lock as `seal`, so that every action is either committed or refused.
        with self._adding:
            self._require_open(kind)
            require_few_operators(action, len(self._actions) + 1)
            if kind == "Put":
                self._require_replaceable(action)
            read = self._read_by(action)
            if read is not None:
                require_expressible(with_condition(given, read), read.table)
            self._require_room(read is None)
            self._actions.append(action)

    def _require_open(self, what: str) -> None:
        if self._no_actions is not None and what not in ("send", "call"):
            raise misuse(RuntimeError(f"a transaction's {what}: {self._no_actions}"))
        if self._sealed is not None:
            raise misuse(RuntimeError(f"a transaction's {what}: {self._sealed}"))

    def _require_room(self, more: bool) -> None:
        if len(self._actions) + len(self._unwritten()) + more > MOST_ACTIONS:
            text = f"a transaction takes at most {MOST_ACTIONS} actions besides the message's own record"
            raise misuse(ValueError(text))

    def _require_replaceable(self, action: Action) -> None:
        """Raise ValueError for a put that could remove what others have added to an item since it was read."""
        read = self._read_of(action)
        if read is not None and not (read.checked and read.item is None):
            text = "was read, and a put would remove what others have added to it: use update, or delete"
            raise misuse(ValueError(f"a transaction's Put on {read.table}: the item {text}"))

    def _read_of(self, action: Action) -> Read | None:
        """The read of the item that an action writes or checks."""
        table, source = action.arguments["TableName"], source_of(action)
        return next((read for read in self._reads if read.covers(table, source)), None)

    def _read_by(self, action: Action) -> Read | None:
        """The same, if it is checked."""
        read = self._read_of(action)
        return read if read is not None and read.checked else None

    def _unwritten(self) -> list[Read]:
        """The reads that need a separate check because no action covers them."""
        if not self._reads:
            return []
        written = [self._read_by(action) for action in self._actions]
        return [read for read in self._reads if read.checked and read not in written]

    def _guarded(self, action: Action) -> Action:
        """The action, with a condition that fails if the data read from its item has changed."""
        if (read := self._read_by(action)) is None:
            return action
        arguments, own = with_condition(action.arguments, read), "ConditionExpression" in action.arguments
        return replace(action, arguments=arguments, read=read, conditional=own)


def _in_event_loop() -> bool:
    """Whether this thread runs an event loop."""
    # Imported here because most handlers do not need it.
    from asyncio import get_running_loop  # noqa: PLC0415

    try:
        get_running_loop()
    except RuntimeError:
        return False
    return True
