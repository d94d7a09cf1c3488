"""`make aws`, where there is no account: its parts on the local cloud, by which it also rehearses."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from local.aws import places
from local.aws.disturbances import DENIED, DISTURBANCES, disturbing
from local.aws.steps import Results
from local.cloud import ROOT
from local.removal import left_of
from local.workload.driver import until
from local.workload.stack_client import StackClient

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.e2e.deployed import Aws, Deployed


def denials(client: StackClient) -> object:
    iam, role = client.clients.client("iam"), client.stack.resources["ConsumerRole"]
    return DENIED in iam.list_role_policies(RoleName=role)["PolicyNames"]


def writes(client: StackClient) -> object:
    described = client.dynamodb.describe_table(TableName=client.stack.resources["Records"])["Table"]
    return described.get("OnDemandThroughput", {}).get("MaxWriteRequestUnits", -1)


def resources(client: StackClient) -> object:
    return client.configuration()["Timeout"], client.configuration()["MemorySize"]


def variables(client: StackClient) -> object:
    return client.configuration()["Environment"]["Variables"].get("SOAKED")


def concurrency(client: StackClient) -> object:
    function = client.stack.resources["Consumer"]
    return client.functions.get_function_concurrency(FunctionName=function).get("ReservedConcurrentExecutions")


def polling(client: StackClient) -> object:
    mapping = client.stack.resources["ConsumerMessages"]
    return client.functions.get_event_source_mapping(UUID=mapping)["State"] in ("Enabled", "Enabling")


SEEN: Mapping[str, tuple[Callable[[StackClient], object], object, object]] = {
    "permissions taken away": (denials, False, True),
    "2 s and 128 MB": (resources, (10, 512), (2, 128)),
    "writes throttled": (writes, -1, 1),
    "environments replaced": (variables, None, "yes"),
    "no concurrency left": (concurrency, None, 0),
    "mapping disabled": (polling, True, False),
}
"""By disturbance: what to look at, what is there without it, and with it."""


@pytest.mark.parametrize("name", DISTURBANCES)
def test_a_disturbance_is_undone_however_its_round_ends(bank: Deployed, name: str) -> None:
    look, without, with_it = SEEN[name]
    client = StackClient(stack=bank.stack, clients=bank.aws)  # type: ignore[arg-type]  # it has the clients

    def disturbed() -> bool:
        return look(client) == with_it

    assert look(client) == without
    with pytest.raises(KeyboardInterrupt), disturbing(DISTURBANCES[name], client, 60):  # noqa: PT012  # it is interrupted
        assert until(disturbed, 10)
        raise KeyboardInterrupt
    assert until(lambda: look(client) == without, 10)


@pytest.fixture
def account(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> Aws:
    """The local cloud in place of an account, for whoever asks as if it were AWS."""
    for name, value in {
        "AWS_ENDPOINT_URL": aws.endpoint_url,
        "AWS_ACCESS_KEY_ID": "000000000000",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    return aws


@pytest.mark.parametrize("given", [None, "", "123456789012"])
def test_without_the_accounts_own_number_nothing_is_made(
    account: Aws, given: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ACCOUNT", raising=False)
    if given is not None:
        monkeypatch.setenv("ACCOUNT", given)
    command = [sys.executable, "-m", "local.aws"]
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    said = " ".join(done.stdout.split())
    assert done.returncode == 2
    assert "it costs at most about $" in said
    assert "ACCOUNT=000000000000 agrees to use it" in said
    assert not list(left_of(account, "receiver-proof-"))


def test_it_is_deployed_by_sam_and_removed_and_what_is_left_is_named(
    account: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, results = "receiver-proof-left", Results()
    monkeypatch.setattr(places, "LISTED_SECONDS", 1.0)
    # The local cloud refuses metric math.
    monkeypatch.setattr(places, "PARAMETERS", {**places.PARAMETERS, "DeadLetterArrivals": "false"})
    with pytest.raises(KeyboardInterrupt), places.on_aws(name, "us-east-1", results):  # noqa: PT012  # likewise
        kinds = {each.partition(":")[0] for each in left_of(account, name)}
        key: Any = {"KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}], "BillingMode": "PAY_PER_REQUEST"}
        types = [{"AttributeName": "id", "AttributeType": "S"}]
        account.client("dynamodb").create_table(TableName=f"{name}-more", AttributeDefinitions=types, **key)
        raise KeyboardInterrupt
    assert len(kinds) == 9, f"the list of what may be left knows kinds that a stack has: {kinds}"
    assert results.checks == {"removal": f"failed: left dynamodb tables: {name}-more"}
    account.client("dynamodb").delete_table(TableName=f"{name}-more")
