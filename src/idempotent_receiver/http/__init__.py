"""The way in for HTTP: a request with an `Idempotency-Key`, its answer, and the answer again."""
