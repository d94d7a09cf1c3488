"""The engines, what each can do, and the fixtures for tests: `engine`, `shared_engine`, and `wired_engine`, which
is a server of its own; `limited_engine` refuses what AWS refuses.

`CONTRACT_ENDPOINT` names one more engine by its URL, such as https://dynamodb.eu-central-1.amazonaws.com. Credentials
and region are those that boto3 finds. Two tables with unique names are created there, and deleted.
"""

from __future__ import annotations

import os
import secrets
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from moto import mock_aws

from benchmarks.endpoint import running_endpoint
from harness.cloud import embedded_cloud
from harness.dynamodb.in_process import answered, client_of
from harness.dynamodb.tables import Tables
from tests.engines import databases, dynamodb_local
from tests.engines.engine import SQL, DynamoDB, Engine, Memory, Place, client, create, drop
from tests.engines.engine import named_client as client_of_named_endpoint
from tests.engines.processes import StoreProcesses, store_processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mypy_boto3_dynamodb import DynamoDBClient
    from sqlalchemy import Engine as SQLEngine

NAMED_ENDPOINT = os.environ.get("CONTRACT_ENDPOINT")
JARS = Path(__file__).resolve().parents[2] / ".tools" / "dynamodb-local"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an engine can do beyond conditional writes of one record at a time, from one thread."""

    threads: bool = True
    """Whether its conditions hold against several threads at once."""

    wire: bool = True
    """Whether it is a server, for other processes to find and for answers to get lost on the way."""

    limits: bool = True
    """Whether it refuses what AWS refuses."""

    items: bool = True
    """Whether a record is an item, which may have any other attributes and types, and takes part in transactions."""


ENGINES = {
    "memory": Capabilities(wire=False),
    # It runs in this process without a lock; the store sends it one request at a time, so a race would prove nothing.
    "moto": Capabilities(threads=False, wire=False, limits=False),
    "ministack": Capabilities(),
    # The model of `harness/dynamodb`, in this process, and as the benchmark's endpoint. What the simulation finds and
    # the benchmark measures means something only if it keeps DynamoDB's promises.
    "model": Capabilities(threads=False, wire=False),
    "loopback": Capabilities(),
    "dynamodb_local": Capabilities(),
    **dict.fromkeys(("sqlite", "postgresql", "mariadb"), Capabilities(wire=False, limits=False, items=False)),
} | ({} if NAMED_ENDPOINT is None else {"named": Capabilities()})


def on_each(able: Callable[[Capabilities], bool], what: str) -> Any:
    """A fixture: every engine that can do this, with empty tables."""

    @pytest.fixture(params=[name for name, can in ENGINES.items() if able(can)])
    def brought_up(request: pytest.FixtureRequest) -> Engine:
        if request.param == "memory":
            return Memory()
        if not ENGINES[request.param].items:
            return SQL(request.getfixturevalue(f"{request.param}_database"))
        place = request.getfixturevalue("named_place") if request.param == "named" else None
        return DynamoDB(request.getfixturevalue(f"{request.param}_client"), place)

    brought_up.__doc__ = what
    return brought_up


engine = item_engine = on_each(lambda can: can.items, "Every engine whose records are items.")
any_engine = on_each(lambda can: True, "Every engine.")
shared_engine = on_each(lambda can: can.threads and can.items, "Every engine that several workers can use together.")
any_shared_engine = on_each(lambda can: can.threads, "Every engine that several workers can use together.")
wired_engine = on_each(lambda can: can.wire, "Every engine that is a server.")
limited_engine = on_each(lambda can: can.limits, "Every engine that refuses what AWS refuses.")


@pytest.fixture(scope="session")
def processes() -> Iterator[StoreProcesses]:
    """Workers that are processes."""
    with store_processes() as started:
        yield started


@pytest.fixture
def moto_client() -> Iterator[DynamoDBClient]:
    with mock_aws(), closing(client()) as connected:
        yield connected


@pytest.fixture(scope="session")
def ministack_client() -> Iterator[DynamoDBClient]:
    with embedded_cloud() as cloud, closing(client(cloud.endpoint_url)) as connected:
        yield connected


@pytest.fixture(scope="session")
def model_client() -> DynamoDBClient:
    return client_of(partial(answered, Tables()))


@pytest.fixture(scope="session")
def loopback_client() -> Iterator[DynamoDBClient]:
    with running_endpoint() as endpoint, closing(client(endpoint.url)) as connected:
        yield connected


@pytest.fixture(scope="session")
def dynamodb_local_client() -> Iterator[DynamoDBClient]:
    if (why := dynamodb_local.why_unavailable(JARS)) is not None:
        pytest.skip(why)
    try:
        jars = dynamodb_local.jars(JARS)
    except dynamodb_local.DynamoDBLocalError as error:
        pytest.skip(f"DynamoDB Local: {error}")
    with dynamodb_local.start(jars) as url, closing(client(url)) as connected:
        yield connected


@pytest.fixture
def sqlite_database(tmp_path: Path) -> Iterator[SQLEngine]:
    yield from databases.connected(f"sqlite:///{tmp_path / 'records'}")


@pytest.fixture(scope="session")
def postgresql_database() -> Iterator[SQLEngine]:
    yield from databases.server(databases.postgresql)


@pytest.fixture(scope="session")
def mariadb_database() -> Iterator[SQLEngine]:
    yield from databases.server(databases.mariadb)


@pytest.fixture(scope="session")
def named_client() -> Iterator[DynamoDBClient]:
    assert NAMED_ENDPOINT is not None
    with closing(client_of_named_endpoint(NAMED_ENDPOINT)) as connected:
        yield connected


@pytest.fixture(scope="session")
def named_place(named_client: DynamoDBClient) -> Iterator[Place]:
    prefix = f"idempotent-receiver-contract-{secrets.token_hex(6)}"
    place = Place(NAMED_ENDPOINT, f"{prefix}.records", f"{prefix}.accounts", named=True)
    try:
        yield create(named_client, place)
    finally:
        drop(named_client, place)
