"""The cloud that the end-to-end tests run on, and template.yaml and the API's deployed onto it.

By default that is a local cloud, started here. Where `LOCALSTACK_HOST` or `AWS_ENDPOINT_URL` names another, the same
tests run there: on LocalStack, whose functions are containers, with the code as it is built for Lambda.
"""

from __future__ import annotations

import os
import platform
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, cast
from uuid import uuid4

import pytest

from harness.beside import deploy_beside, joined
from harness.cloud import ROOT, running_cloud
from harness.deploy import deploy
from tests.e2e.deployed import Aws, Deployed
from tests.e2e.making import run
from tests.e2e.recorder import Recorder, send_by

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from harness.cloud import Cloud
    from tests.e2e.recorder import Call

VALUES = {"Timeout": 10, "BatchSize": 10}
"""A lease lasts as long as the function's timeout and a little more, and so would a test that waits for one."""
AT_ONCE = "Dead letters at once"
FIFO = "FIFO"

STUBBORN = """
from app.shipped_ledger import *
from app.shipped_ledger import Ledger as Shipped
from idempotent_receiver import current_claim


class Ledger(Shipped):
    def post(self, transfer, tx):
        kind, _, failures = transfer.transfer_id.partition("-")[0].partition("fails")
        if current_claim().attempt <= int(failures or 0):
            raise ConnectionError("the dependency is away")
        super().post(transfer, tx)
"""
"""A ledger whose dependency is away at first: a transfer "fails2-..." is posted at its third attempt."""


class Deploy(Protocol):
    """Deploys template.yaml with edits of the documents, values and parameters; and the API beside it with its own
    parameters, unless they are None.

    `stubborn`: with a ledger that fails as a transfer's id says. `api_code`: with another composition root of the API,
    which finds the shipped one at `app.shipped_api`.
    """

    def __call__(
        self,
        name: str,
        *,
        edits: Sequence[str] = (),
        values: Mapping[str, object] | None = None,
        stubborn: bool = False,
        api: Mapping[str, str] | None = MappingProxyType({}),
        api_code: str | None = None,
        **parameters: str,
    ) -> Deployed: ...


@pytest.fixture(scope="session")
def aws() -> Iterator[Aws]:
    """The clients of all end-to-end tests, by localstack-client."""
    with ExitStack() as cleanup:
        elsewhere = "LOCALSTACK_HOST" in os.environ or "AWS_ENDPOINT_URL" in os.environ
        host = None if elsewhere else cleanup.enter_context(running_cloud()).endpoint_url.removeprefix("http://")
        clients = Aws(host)
        cleanup.callback(clients.close)
        yield clients


@pytest.fixture(scope="session")
def architecture() -> str:
    """What Lambda calls the architecture of this machine."""
    return "arm64" if platform.machine() in ("arm64", "aarch64") else "x86_64"


@pytest.fixture(scope="session")
def build(aws: Aws, architecture: str) -> Path:
    """The function, built for where it will run; make knows whether there is anything to do."""
    target = Path(".build", "host" if aws.functions_are_processes else f"python3.13-{architecture}")
    run("make", "--silent", f"{target}.complete")
    return ROOT / target


@pytest.fixture(scope="session")
def deployed(aws: Aws, build: Path, architecture: str) -> Iterator[Deploy]:
    """A way to deploy. The functions' requests to AWS are recorded, and in the end the policies must allow each of
    them, whatever the tests were about.
    """
    stacks: list[Deployed] = []
    with ExitStack() as cleanup:

        def deploy_one(
            name: str,
            *,
            edits: Sequence[str] = (),
            values: Mapping[str, object] | None = None,
            stubborn: bool = False,
            api: Mapping[str, str] | None = MappingProxyType({}),
            api_code: str | None = None,
            **parameters: str,
        ) -> Deployed:
            cloud = cast("Cloud", aws)  # it has the clients, and nothing more is asked of a cloud
            of_lambda = {"Architectures": f"[{architecture}]"}
            stack = deploy(
                cloud,
                name=f"{name}-{uuid4().hex[:8]}",
                code=build,
                overlay=_overlaid(build, "ledger", STUBBORN) if stubborn else {},
                edits=edits,
                values={**VALUES, **of_lambda, **(values or {})},
                parameters=parameters,
            )
            cleanup.callback(aws.client("cloudformation").delete_stack, StackName=stack.name)
            if api is not None:
                overlay = {} if api_code is None else _overlaid(build, "api", api_code)
                beside = deploy_beside(
                    cloud, stack, "api", code=build, overlay=overlay, values=of_lambda, parameters=api
                )
                cleanup.callback(aws.client("cloudformation").delete_stack, StackName=beside.name)
                stack = joined(stack, beside)
            calls: dict[str, list[Call]] = {"Consumer": [], "Api": []}
            if aws.functions_are_processes:
                for function in calls.keys() & stack.resources.keys():
                    recorder = cleanup.enter_context(Recorder(aws.endpoint_url, calls[function]))
                    send_by(recorder, aws, stack.resources[function])
            stacks.append(Deployed(aws, stack, calls["Consumer"], calls["Api"]))
            return stacks[-1]

        yield deploy_one
        denied = {bank.stack.name: bank.denied() for bank in stacks}
        assert not any(denied.values()), f"asked for, and allowed by no policy: {denied}"


@pytest.fixture(scope="session")
def bank(deployed: Deploy) -> Deployed:
    """The consumer of a standard queue, as it is shipped, and the accounts that events/ presupposes."""
    return deployed("bank")


@pytest.fixture(scope="session")
def at_once(deployed: Deploy) -> Deployed:
    """The same, which sends its dead letters itself, without the API."""
    return deployed("at-once", edits=[AT_ONCE], api=None)


def _overlaid(build: Path, module: str, source: str) -> Mapping[str, bytes]:
    shipped = (build / "app" / f"{module}.py").read_bytes()
    return {f"app/shipped_{module}.py": shipped, f"app/{module}.py": source.encode()}
