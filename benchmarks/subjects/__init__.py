"""What is measured: each module has a `build`, which makes of settings what Lambda would call with an event.

All of them do the same for a message, read its body and return a small result, and tell the same of a batch: one log
line and one set of metrics, by the same Logger and Metrics. Each is built as its own documentation advises.
"""
