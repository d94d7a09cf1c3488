"""The subjects of the benchmark. Each module has a `build`, which returns a Lambda handler for given settings.

All handlers read a message's body and return a small result. All report a batch in one log line and one set of metrics,
with the same Logger and Metrics. Each subject is built as its own documentation recommends.
"""
