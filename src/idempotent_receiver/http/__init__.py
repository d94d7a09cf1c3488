"""The way in for HTTP: a request with an `Idempotency-Key`, its response, and the same response for every retry."""
