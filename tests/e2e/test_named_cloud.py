"""A cloud that LOCALSTACK_HOST names is used instead of one of our own, and left as it was found."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from harness.cloud import embedded_cloud, running_cloud
from harness.deploy import deploy
from idempotent_receiver.local.server import ServerError, free_port
from tests.e2e.making import run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.cloud import Cloud

WITHOUT_OUR_OWN = """
import sys
from pathlib import Path
import harness.cloud
harness.cloud.MINISTACK = Path("/nonexistent")
from harness.program import run_to_its_end
from harness.run import perform
sys.exit(run_to_its_end(perform))
"""
"""A program of ours on a machine on which no cloud of our own can be started."""


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    """Somebody else's cloud, with a stack on it that is not ours to touch."""
    with embedded_cloud() as cloud:
        deploy(cloud, name="payments")
        yield cloud


@pytest.fixture
def before(cloud: Cloud) -> dict[str, Any]:
    """What was on it before the test."""
    return found_on(cloud)


def found_on(cloud: Cloud) -> dict[str, Any]:
    stacks = cloud.client("cloudformation").list_stacks()["StackSummaries"]
    return {
        "stacks": [each["StackName"] for each in stacks if each["StackStatus"] != "DELETE_COMPLETE"],
        "tables": cloud.client("dynamodb").list_tables()["TableNames"],
        "queues": sorted(cloud.client("sqs").list_queues().get("QueueUrls", [])),
        "buckets": [each["Name"] for each in cloud.client("s3").list_buckets()["Buckets"]],
        "functions": sorted(each["FunctionName"] for each in cloud.client("lambda").list_functions()["Functions"]),
    }


def naming(cloud: Cloud, **more: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in ("AWS_ENDPOINT_URL", "PORT")}
    return {**inherited, "LOCALSTACK_HOST": cloud.endpoint_url.removeprefix("http://"), **more}


def test_the_run_is_played_there_and_its_stack_is_gone_afterwards(cloud: Cloud, before: dict[str, Any]) -> None:
    done = run(sys.executable, "-c", WITHOUT_OUR_OWN, env=naming(cloud, N="20"))
    books = json.loads(done.stdout.splitlines()[-1])
    assert books["completed"] == books["expected_completed"] > 0
    assert books["taken_over"] > 0, "workers were killed there as well"
    assert f"{cloud.endpoint_url}, LOCALSTACK_HOST names it" in done.stdout
    assert re.search(rf"stack receiver-\d+ is deleted from {cloud.endpoint_url}", done.stderr)
    assert cloud.alive
    assert found_on(cloud) == before


def test_a_stack_that_was_there_before_is_refused_and_stays(
    cloud: Cloud, before: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSTACK_HOST", naming(cloud)["LOCALSTACK_HOST"])
    with pytest.raises(ClientError, match="payments"), running_cloud() as named:
        deploy(named, name="payments")
    assert found_on(cloud) == before


class Stranger(BaseHTTPRequestHandler):
    """Some web server."""

    def do_POST(self) -> None:
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    "given", ["127.0.0.1:{closed}", "127.0.0.1:{stranger}", "http://localhost:4566", "localhost:x"]
)
def test_a_cloud_that_does_not_answer_is_named(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with HTTPServer(("127.0.0.1", 0), Stranger) as stranger:
        threading.Thread(target=stranger.serve_forever, daemon=True).start()
        monkeypatch.setenv("LOCALSTACK_HOST", given.format(closed=free_port(), stranger=stranger.server_port))
        try:
            with pytest.raises(ServerError, match="LOCALSTACK_HOST"), running_cloud():
                pytest.fail("nothing is there")
        finally:
            stranger.shutdown()
