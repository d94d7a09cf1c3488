"""A client of the API: it signs its requests, as API Gateway asks of everybody, and sends them again with one key."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from local.cloud import ACCOUNT, REGION

if TYPE_CHECKING:
    from collections.abc import Mapping
    from email.message import Message

    from local.cloud import Cloud
    from local.deploy import Stack

TIMEOUT_SECONDS = 30.0

# A proxy that the environment names must not be asked for what is on loopback.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a request was answered with. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: Any

    @property
    def replayed(self) -> bool:
        """Whether it had been given before."""
        return self.headers.get("idempotency-replayed") == "true"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Somebody with an identity, at the API's address."""

    url: str
    credentials: Credentials
    region: str

    def post(self, transfer: Mapping[str, Any], key: str) -> Answer:
        """Ask for a transfer."""
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        return self._ask("POST", "transfers", headers, json.dumps(transfer).encode())

    def get(self, transfer_id: str) -> Answer:
        """Ask how far it is."""
        return self._ask("GET", f"transfers/{transfer_id}", {}, None)

    def _ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        url = f"{self.url}/{path}"
        asked = AWSRequest(method, url, headers=headers, data=body)
        SigV4Auth(self.credentials, "execute-api", self.region).add_auth(asked)
        request = urllib.request.Request(url, body, dict(asked.headers.items()), method=method)
        opener = _direct if self.url.startswith("http:") else urllib.request.build_opener()
        try:
            with opener.open(request, timeout=TIMEOUT_SECONDS) as response:
                return Answer(status=response.status, headers=_lower(response.headers), body=json.load(response))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(
                    status=error.code, headers=dict(error.headers), body=error.read().decode(errors="replace")
                )


def _lower(headers: Message) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def at_local_cloud(cloud: Cloud, stack: Stack) -> Caller | None:
    """Its one caller at a stack's API, if the stack has one."""
    url, credentials = api_url(stack, cloud.endpoint_url), Credentials(ACCOUNT, "test")
    return None if url is None else Caller(url=url, credentials=credentials, region=REGION)


def api_url(stack: Stack, endpoint_url: str) -> str | None:
    """Where a stack's API is, if it has one: on a local cloud, not where AWS would have it."""
    if "RestApi" not in stack.resources:
        return None
    if ".amazonaws.com" in endpoint_url:
        return stack.outputs["ApiUrl"]
    return f"{endpoint_url}/_aws/execute-api/{stack.resources['RestApi']}/v1"
