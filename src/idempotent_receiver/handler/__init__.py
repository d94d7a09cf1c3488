"""One run of a handler: what it asks for, what came of it, and how the message, request or call ended."""
