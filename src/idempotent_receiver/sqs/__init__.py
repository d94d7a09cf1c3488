"""The SQS entry point: an event's messages in, the failed ones out."""
