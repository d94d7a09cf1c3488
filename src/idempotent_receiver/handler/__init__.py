"""One run of a handler: its arguments, its result, and the outcome of the message, request or call."""
