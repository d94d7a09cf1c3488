"""What could not keep the promise is refused at set-up, with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Connection, Engine, MetaData, NullPool, QueuePool, StaticPool, create_engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from idempotent_receiver import MemoryStore, body_field, http_endpoint, idempotent, payload_key, sqs_consumer
from idempotent_receiver.protocol.record import MOST_KEY_BYTES, Record
from idempotent_receiver.protocol.store import NotApplied
from idempotent_receiver.sql import SQLStore, records_table
from idempotent_receiver.workflow import Workflow

if TYPE_CHECKING:
    from pathlib import Path


def handle(body: dict[str, Any], session: Session) -> None: ...


def connected(body: dict[str, Any], at: Connection) -> None: ...


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return create_engine(f"sqlite:///{tmp_path / 'bank'}")


def postgresql(**options: Any) -> Engine:
    """An engine that never connects."""
    return create_engine("postgresql+psycopg://nobody@127.0.0.1:1/none", **options)


@pytest.mark.parametrize("kind", [AsyncSession, AsyncConnection])
def test_an_asynchronous_session_is_refused(engine: Engine, kind: type) -> None:
    def handle(body: dict[str, Any], session: kind) -> None: ...  # type: ignore[valid-type]

    handle.__annotations__["session"] = kind
    with pytest.raises(TypeError, match=r"lends no Async\w+: request a sqlalchemy.orm.Session"):
        sqs_consumer(SQLStore(engine))(handle)


def test_a_coroutine_function_is_refused(engine: Engine) -> None:
    """Whatever it requests: a session would block the event loop."""

    async def handle(body: dict[str, Any]) -> None: ...

    with pytest.raises(TypeError, match="lends a session that blocks: make it a plain function"):
        sqs_consumer(SQLStore(engine))(handle)


def test_effects_of_dynamodbs_transactions_are_refused(engine: Engine) -> None:
    with pytest.raises(TypeError, match="SQLStore claims no key anyway"):
        sqs_consumer(SQLStore(engine), effects="transaction")(handle)


@pytest.mark.parametrize("hint", [Session | None, list[Session], scoped_session])
def test_an_annotation_that_would_get_no_session_is_refused(engine: Engine, hint: Any) -> None:
    def handle(body: dict[str, Any], session: Any) -> None: ...

    handle.__annotations__["session"] = hint
    with pytest.raises(TypeError, match="session"):
        sqs_consumer(SQLStore(engine))(handle)


@pytest.mark.parametrize("function", [handle, connected])
def test_another_store_lends_no_session(function: Any) -> None:
    with pytest.raises(TypeError, match="only an SQLStore lends"):
        sqs_consumer(MemoryStore())(function)


@pytest.mark.parametrize("way", ["option", "execution option"])
def test_an_engine_that_commits_each_statement_is_refused(way: str) -> None:
    engine = postgresql(isolation_level="AUTOCOMMIT") if way == "option" else postgresql()
    if way == "execution option":
        engine = engine.execution_options(isolation_level="AUTOCOMMIT")
    with pytest.raises(ValueError, match="AUTOCOMMIT"):
        SQLStore(engine)


def test_sqlite_runs_one_message_at_a_time(engine: Engine) -> None:
    with pytest.raises(ValueError, match="SQLite has one writer at a time, so concurrency must be 1; it is 2"):
        sqs_consumer(SQLStore(engine), concurrency=2)(handle)


@pytest.mark.parametrize("options", [{}, {"poolclass": StaticPool, "connect_args": {"check_same_thread": False}}])
def test_a_database_in_memory_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"the engine's \w+Pool gives all threads one connection.*use a file"):
        SQLStore(create_engine("sqlite://", **options))


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({"pool_size": 2, "max_overflow": 1}, 3),
        ({"pool_size": 5}, None),
        ({"pool_size": 0}, None),
        ({"pool_size": 1, "max_overflow": -1}, None),
        ({"poolclass": NullPool}, None),
        ({"poolclass": QueuePool, "pool_size": 1, "max_overflow": 0}, 1),
    ],
    ids=str,
)
def test_a_pool_known_to_be_smaller_than_the_concurrency_is_refused(options: dict[str, Any], most: int | None) -> None:
    store = SQLStore(postgresql(**options))
    if most is None:
        sqs_consumer(store, concurrency=4)(handle)
    else:
        sqs_consumer(store, concurrency=most)(handle)
        with pytest.raises(ValueError, match=f"pool has at most {most}: use create_engine"):
            sqs_consumer(store, concurrency=most + 1)(handle)


def test_a_pool_that_does_not_tell_its_size_may_be_large_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = postgresql(pool_size=1)
    monkeypatch.delattr(engine.pool, "_max_overflow")
    sqs_consumer(SQLStore(engine), concurrency=100)(handle)


def test_http_functions_and_workflows_refuse_the_store(engine: Engine) -> None:
    """A placeholder must never be an answer."""
    store, key = SQLStore(engine, "orders"), payload_key("id")
    for wrap in (
        lambda: http_endpoint(store)(lambda event, context: None),
        lambda: idempotent(store, key=key)(lambda order: None),
        lambda: Workflow(store, client=None, state_machine_arn="", timeout_seconds=1),
    ):
        with pytest.raises(TypeError, match="SQLStore works with sqs_consumer alone"):
            wrap()


@pytest.mark.parametrize("engine", ["sqlite://", object(), None])
def test_what_is_no_engine_is_refused(engine: Any) -> None:
    with pytest.raises(TypeError, match=r"engine must be a sqlalchemy.Engine"):
        SQLStore(engine)


@pytest.mark.parametrize("name", ["binds", "twophase"])
def test_sessions_on_other_connections_are_refused(engine: Engine, name: str) -> None:
    sessions = sessionmaker(engine, **{name: {object: engine} if name == "binds" else True})
    with pytest.raises(ValueError, match=name):
        SQLStore(engine, sessions=sessions)


@pytest.mark.parametrize("sessions", [Session(), sessionmaker(class_=AsyncSession)], ids=["one", "asynchronous"])
def test_what_makes_no_sessions_is_refused(engine: Engine, sessions: Any) -> None:
    with pytest.raises(TypeError, match=r"sessions must be a sqlalchemy.orm.sessionmaker of a Session"):
        SQLStore(engine, sessions=sessions)


def test_an_asynchronous_driver_is_refused() -> None:
    """Psycopg is both, so its name does not tell."""
    engine = create_async_engine("postgresql+psycopg://nobody@127.0.0.1:1/none").sync_engine
    with pytest.raises(ValueError, match=r"the engine's driver, psycopg\w*, is asynchronous"):
        SQLStore(engine)


def test_a_key_of_the_body_needs_a_namespace_of_this_store(engine: Engine) -> None:
    with pytest.raises(ValueError, match=r"SQLStore\(..., namespace=\"payments\"\)"):
        sqs_consumer(SQLStore(engine), key=body_field("id"))(handle)


def test_two_functions_share_no_namespace(engine: Engine) -> None:
    """Two stores on one table are one place."""

    def other(body: dict[str, Any], session: Session) -> None: ...

    sqs_consumer(SQLStore(engine, "orders"))(handle)
    with pytest.raises(ValueError, match="one namespace, one function"):
        sqs_consumer(SQLStore(engine, "orders"))(other)
    sqs_consumer(SQLStore(engine, "orders").named("other"))(other)


def test_another_database_is_refused_by_its_name(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.dialect, "name", "mssql")
    with pytest.raises(ValueError, match="PostgreSQL, MySQL, MariaDB and SQLite; the engine is for mssql"):
        SQLStore(engine)


def test_a_key_that_postgresql_cannot_store_is_refused_for_good() -> None:
    record = Record("a\0b", "COMPLETED", version="v")
    refused = NotApplied("the key has a NUL character, which PostgreSQL cannot store", retry=False, own=True)
    assert SQLStore(postgresql()).insert([record]) == [refused]


@pytest.mark.parametrize("kind", [Session, sessionmaker().class_, Connection])
def test_sessions_and_connections_are_lent_and_no_class_of_connections_of_the_users_own(
    engine: Engine, kind: type
) -> None:
    class Own(Connection): ...

    assert SQLStore(engine).lends(kind)
    assert not SQLStore(engine).lends(Own)
    assert not SQLStore(engine).lends(dict)


def test_a_named_store_is_the_same_table_under_a_namespace_of_its_own(engine: Engine) -> None:
    orders = SQLStore(engine, "orders")
    charge = orders.named("charge")
    assert (charge.namespace, orders.namespace) == ("orders.charge", "orders")
    assert (charge.table, charge.engine) == (orders.table, orders.engine)


def test_a_key_of_any_allowed_length_fits_in_the_table() -> None:
    id = records_table(MetaData()).c.id
    assert id.type.length == MOST_KEY_BYTES  # type: ignore[attr-defined]
    assert id.type.collation == "C"  # type: ignore[attr-defined]
