"""The way in for HTTP: a request with an `Idempotency-Key`, its response, and the same response for every retry."""

from idempotent_receiver.http.request import InvalidRequest, MissingKey, Request, request_of

__all__ = ["InvalidRequest", "MissingKey", "Request", "request_of"]
