"""The HTTP entry point: a request with an `Idempotency-Key` gets one response, the same for every retry."""

from idempotent_receiver.http.request import InvalidRequest, MissingKey, Request, request_of

__all__ = ["InvalidRequest", "MissingKey", "Request", "request_of"]
