"""Which engines there are, what each can do, and how a test gets one: `engine`, `batching_engine`, `shared_engine`."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from moto import mock_aws

from benchmarks.endpoint import running_endpoint
from local.cloud import running_cloud
from tests.engines import dynamodb_local
from tests.engines.engine import DynamoDB, Engine, Memory, client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_dynamodb import DynamoDBClient

JARS = Path(__file__).resolve().parents[2] / ".tools" / "dynamodb-local"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an engine can do beyond one record at a time, from one thread, with conditions that are met or not."""

    batches: bool = True
    """Whether it executes batches of PartiQL."""

    threads: bool = True
    """Whether its conditions hold against several threads at once."""


ENGINES = {
    "memory": Capabilities(),
    # Its PartiQL takes no parameters in an INSERT, and it runs in this process under no lock.
    "moto": Capabilities(batches=False, threads=False),
    "ministack": Capabilities(),
    # The benchmark's: what is measured against it is worth something only if it keeps DynamoDB's promises.
    "loopback": Capabilities(),
    "dynamodb_local": Capabilities(),
}


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    """Every engine."""
    return brought_up(request)


@pytest.fixture(params=[name for name, can in ENGINES.items() if can.batches])
def batching_engine(request: pytest.FixtureRequest) -> Engine:
    """Every engine that can do many records at once."""
    return brought_up(request)


@pytest.fixture(params=[name for name, can in ENGINES.items() if can.batches and can.threads])
def shared_engine(request: pytest.FixtureRequest) -> Engine:
    """Every engine that several workers can be at together."""
    return brought_up(request)


def brought_up(request: pytest.FixtureRequest) -> Engine:
    """The engine that the fixture's parameter names, with empty tables."""
    return Memory() if request.param == "memory" else DynamoDB(request.getfixturevalue(f"{request.param}_client"))


@pytest.fixture
def moto_client() -> Iterator[DynamoDBClient]:
    with mock_aws(), closing(client()) as connected:
        yield connected


@pytest.fixture(scope="session")
def ministack_client() -> Iterator[DynamoDBClient]:
    with running_cloud() as cloud, closing(client(cloud.endpoint_url)) as connected:
        yield connected


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
