"""The AWS account in which a deployed stack is, as the caller's environment names it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config

from local.caller import Caller, api_url

if TYPE_CHECKING:
    from local.deploy import Stack


REMEDY = "Set AWS_DEFAULT_REGION, and AWS_PROFILE or other credentials."
"""What to do where AWS cannot be asked."""


class Account:
    """The AWS account that the caller's environment names."""

    def client(self, service: Any) -> Any:
        # A function may take its fifteen minutes to answer.
        patient = Config(read_timeout=910, retries={"mode": "standard", "total_max_attempts": 5})
        return boto3.client(service, config=patient)

    def caller(self, stack: Stack) -> Caller | None:
        """Whoever this is, at the stack's API, if it has one."""
        session, url = boto3.Session(), api_url(stack, self.client("lambda").meta.endpoint_url)
        credentials = session.get_credentials()
        if url is None or credentials is None:
            return None
        return Caller(url=url, credentials=credentials, region=session.region_name)
