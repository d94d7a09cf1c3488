"""What a handler asks for: writes, checks and reads of items, and messages to send. Pure; `protocol` commits them."""
