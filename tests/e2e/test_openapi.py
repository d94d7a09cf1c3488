"""The API is as `src/app/openapi.yaml` describes it: hostile and honest requests made from it find no violation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from harness.caller import api_url
from harness.cloud import ACCOUNT, REGION, ROOT
from tests.e2e.making import run
from tests.template import load

if TYPE_CHECKING:
    from tests.e2e.conftest import Deploy

DESCRIPTION = ROOT / "src" / "app" / "openapi.yaml"
TOOLS = ROOT / ".tools" / "openapi" / "bin"
CONFIGURATION = Path(__file__).with_name("schemathesis.toml")
SIGNED = (
    f"Authorization: AWS4-HMAC-SHA256 Credential={ACCOUNT}/20260101/{REGION}/execute-api/aws4_request, "
    f"SignedHeaders=host, Signature={'0' * 64}"
)
"""As far as the local cloud looks."""


@pytest.fixture(scope="module")
def description() -> dict[str, Any]:
    return dict(yaml.safe_load(DESCRIPTION.read_text()))


def test_it_is_an_openapi_document() -> None:
    run(TOOLS / "openapi-spec-validator", DESCRIPTION)


def test_it_describes_the_operations_that_the_template_has(description: dict[str, Any]) -> None:
    api = load(ROOT / "deploy" / "api.yaml")["Resources"]["Api"]["Properties"]
    events = [each["Properties"] for each in api["Events"].values()]
    deployed = {(event["Path"], event["Method"]) for event in events}
    assert {(path, method) for path, item in description["paths"].items() for method in item} == deployed


def test_the_key_is_required(description: dict[str, Any]) -> None:
    (parameter,) = description["paths"]["/transfers"]["post"]["parameters"]
    assert (parameter["name"], parameter["in"], parameter["required"]) == ("Idempotency-Key", "header", True)


def test_schemathesis_finds_no_violation(deployed: Deploy) -> None:
    bank = deployed("openapi")
    url = api_url(bank.stack, bank.aws.endpoint_url)
    assert url is not None
    command = [TOOLS / "schemathesis", "--config-file", CONFIGURATION, "run", DESCRIPTION, "--url", url]
    options = ("--header", SIGNED, "--max-examples", "15", "--continue-on-failure", "--no-color")
    done = run(*command, *options, cwd=ROOT / ".build")
    assert re.search(r"Tested: 2", done.stdout)
    generated = re.search(r"(\d+) generated, (\d+) passed", done.stdout)
    assert generated is not None, done.stdout
    assert int(generated[2]) > 100
