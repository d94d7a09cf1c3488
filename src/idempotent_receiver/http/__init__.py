"""The HTTP entry point: a request with an `Idempotency-Key` and all its retries get the same response."""

from idempotent_receiver.errors import MissingKey
from idempotent_receiver.http.request import InvalidRequest, Request, request_of

__all__ = ["InvalidRequest", "MissingKey", "Request", "request_of"]
