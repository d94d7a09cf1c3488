"""Clients of AWS: the account in the environment, and a client of the API that signs its requests."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.request import getproxies

import boto3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.httpsession import URLLib3Session

from harness.cloud import ACCOUNT, REGION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.cloud import Cloud
    from idempotent_receiver.local.deployment import Stack

TIMEOUT_SECONDS = 30
REMEDY = "Set AWS_DEFAULT_REGION, and AWS_PROFILE or other credentials."
"""The remedy if AWS cannot be reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The response to a request. Header names are in lower case; the body of a failure is text."""

    status: int
    headers: Mapping[str, str]
    body: Any

    @property
    def replayed(self) -> bool:
        return self.headers.get("idempotency-replayed") == "true"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """A client with AWS credentials, at the API's address."""

    url: str
    credentials: Credentials
    region: str

    def post(self, transfer: Mapping[str, Any], key: str) -> Answer:
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        return self._ask("POST", "transfers", headers, json.dumps(transfer).encode())

    def get(self, transfer_id: str) -> Answer:
        return self._ask("GET", f"transfers/{transfer_id}", {}, None)

    def _ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        request = AWSRequest(method, f"{self.url}/{path}", headers=headers, data=body)
        SigV4Auth(self.credentials, "execute-api", self.region).add_auth(request)
        # A proxy in the environment must not be used for loopback.
        proxies = {} if self.url.startswith("http:") else getproxies()
        response = URLLib3Session(proxies=proxies, timeout=TIMEOUT_SECONDS).send(request.prepare())
        return Answer(
            status=response.status_code,
            headers={name.lower(): value for name, value in response.headers.items()},
            body=json.loads(response.content) if response.status_code < 400 else response.text,
        )


class Account:
    """The AWS account in the caller's environment."""

    @functools.cache  # noqa: B019  # a program has one account
    def client(self, service: Any) -> Any:
        # A function may take its full fifteen minutes to answer.
        patient = Config(read_timeout=910, retries={"mode": "standard", "total_max_attempts": 5})
        return boto3.client(service, config=patient)

    def caller(self, stack: Stack) -> Caller | None:
        """A caller with these credentials at the stack's API, if it has one."""
        session, url = boto3.Session(), api_url(stack, self.client("lambda").meta.endpoint_url)
        credentials = session.get_credentials()
        if url is None or credentials is None:
            return None
        return Caller(url=url, credentials=credentials, region=session.region_name)


def at_local_cloud(cloud: Cloud, stack: Stack) -> Caller | None:
    """The client of a stack's API on a local cloud, if the stack has one."""
    url, credentials = api_url(stack, cloud.endpoint_url), Credentials(ACCOUNT, "test")
    return None if url is None else Caller(url=url, credentials=credentials, region=REGION)


def api_url(stack: Stack, endpoint_url: str) -> str | None:
    """The address of a stack's API, if it has one: a local cloud's differs from AWS's."""
    if "RestApi" not in stack.resources:
        return None
    if ".amazonaws.com" in endpoint_url:
        return stack.outputs["ApiUrl"]
    return f"{endpoint_url}/_aws/execute-api/{stack.resources['RestApi']}/v1"
