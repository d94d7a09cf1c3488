"""What a handler gets: a session or connection in its message's transaction, whose end is not the handler's to decide.

Helpers that commit, close or begin go on working: none of these has an effect, except that a session flushes. A
rollback, or a COMMIT as text, is remembered: the run then fails.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Connection, Engine, RootTransaction, event
from sqlalchemy.orm import Session, sessionmaker

from idempotent_receiver.errors import misuse
from idempotent_receiver.handler.attempt import Attempt, Handle

ROLLED_BACK = "the handler rolled its transaction back, so nothing of it may stand: raise an error, or use begin_nested"
RETURNED = "the handler has already returned or raised, so this could not commit with its record: do it before"
TEXTUAL = "the handler ends or begins its transaction as text: the consumer does, when the handler has returned"

_CONTROL = re.compile(
    r"(?:\s|--[^\n]*\n|/\*.*?\*/)*"
    r"(?:BEGIN|START\s+TRANSACTION|COMMIT|END|ABORT|PREPARE\s+TRANSACTION|ROLLBACK(?!\s+(?:WORK\s+|TRANSACTION\s+)?TO)"
    r"|SET\s+(?:SESSION\s+|@@(?:SESSION\.)?)?AUTOCOMMIT)\b",
    re.IGNORECASE | re.DOTALL,
)


class LentConnection(Connection):
    """A connection whose transaction only the library ends."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.outer: RootTransaction = super().begin()
        self.over = False
        self.why_failed: str | None = None
        """Why the run fails whatever the handler returns; None if it need not."""
        event.listen(self, "before_cursor_execute", _refuse_control)

    def begin(self) -> Any:
        """Begin nothing: the transaction has begun, and its end is not the handler's."""
        if self.over:
            raise misuse(RuntimeError(RETURNED))
        if not self.outer.is_active:
            raise misuse(RuntimeError(ROLLED_BACK))
        return _Begun(self)

    def commit(self) -> None:
        """Commit nothing: the return of the handler does."""

    def rollback(self) -> None:
        """Roll back at once: the run fails."""
        if self.outer.is_active:
            self.outer.rollback()

    def close(self) -> None:
        """Close nothing: the connection is closed when the run has ended."""

    @contextmanager
    def ending(self) -> Iterator[None]:
        """In the end, roll back what is not committed, and return the connection to its pool."""
        try:
            yield
        finally:
            self.over = True
            with suppress(Exception):  # a broken connection has nothing to roll back
                if not self.outer.is_active and self.get_transaction() is self.outer:
                    # Its COMMIT failed. SQLAlchemy counts it as ended, but on SQLite it is still open, and the pool
                    # would lend it again: with this, the pool rolls it back.
                    self.outer.rollback()
                super().close()


class _Begun:
    """What `begin` returns: a transaction that commits nothing."""

    def __init__(self, at: LentConnection) -> None:
        self._at = at

    @property
    def is_active(self) -> bool:
        return self._at.outer.is_active

    def commit(self) -> None: ...

    def close(self) -> None: ...

    def rollback(self) -> None:
        self._at.rollback()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            self.rollback()


def _refuse_control(at: LentConnection, cursor: object, statement: str, *rest: object) -> None:
    if _CONTROL.match(statement) is not None:
        at.why_failed = at.why_failed or TEXTUAL
        raise misuse(RuntimeError(TEXTUAL))


class Lent:
    """What one run may use. A session is made when it is first asked for."""

    def __init__(self, at: LentConnection, sessions: "sessionmaker[Any] | None") -> None:
        self._at = at
        self._sessions = sessions
        self._session: Session | None = None

    def of(self, kind: type) -> object:
        """The connection, or the session, which is of this class."""
        if issubclass(kind, Connection):
            return self._at
        if self._session is None:
            made: Callable[..., Any] = self._sessions or kind
            self._session = made(bind=self._at, join_transaction_mode="rollback_only")
        if not isinstance(self._session, kind):
            text = f"the run's session is a {type(self._session).__name__}, no {kind.__name__}: pass `sessions=`"
            raise misuse(TypeError(text))
        return self._session

    def flush(self) -> None:
        """Send what the session holds back, and end its savepoints. Raises what the database or a listener raises, and
        for a lost cause.
        """
        if self._session is not None:
            self._session.flush()
            while (nested := self._session.get_nested_transaction()) is not None:
                nested.commit()  # the session's end would roll it back
        if self._at.why_failed is None and not self._at.outer.is_active:
            self._at.why_failed = ROLLED_BACK
        if self._at.why_failed is not None:
            raise misuse(RuntimeError(self._at.why_failed))

    def end(self) -> None:
        """Close the session. Later use of it raises, because its connection is closed."""
        if self._session is not None:
            with suppress(Exception):  # a user's listener may raise; the connection is closed anyway
                self._session.close()


_current: ContextVar[Lent | None] = ContextVar("current_session", default=None)


def current_session() -> Session:
    """The session of the handler that runs in this context, for a helper deep in its code: the one that it would get by
    annotation. Raises LookupError outside a handler whose store is an `SQLStore`, and in its threads.
    """
    lent = _current.get()
    if lent is None:
        raise misuse(LookupError("current_session() works only inside a handler whose store is an SQLStore"))
    return lent.of(Session)  # type: ignore[return-value]  # of this class


def inside(lent: Lent, attempt: Attempt, handle: Handle) -> object:
    """Call the handler with what it is lent, and flush."""
    attempt.lend = lent.of
    with _lending(lent):
        result = handle(attempt)
    lent.flush()
    return result


@contextmanager
def _lending(lent: Lent) -> Iterator[None]:
    token = _current.set(lent)
    try:
        yield
    finally:
        _current.reset(token)


def is_lending() -> bool:
    """Whether a handler that was lent something runs in this context."""
    return _current.get() is not None
