"""`make aws`, where there is no account: its parts on the local cloud, by which it also rehearses."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from harness.aws import places
from harness.aws.steps import Results
from harness.cloud import ROOT
from harness.removal import left_of

if TYPE_CHECKING:
    from tests.e2e.deployed import Aws


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
    command = [sys.executable, "-m", "harness.aws"]
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
