"""The steps of a transfer: one file for each state of `transfer.asl.json` that calls a function, named after the state.

A step receives the transfer and takes effect once. Its key is the transfer's id, in a namespace for each step. The
state machine retries the errors that the definition's Retry names, and never a PermanentError.
"""
