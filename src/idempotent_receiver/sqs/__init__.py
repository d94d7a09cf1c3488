"""The SQS entry point: takes an event's messages and returns the failed ones."""
