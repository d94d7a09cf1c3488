"""A transfer's steps: one file for each state in `transfer.asl.json` that calls a function, named after the state.

A step receives the transfer and takes effect once. Its key is the transfer's id, in the step's own namespace. The state
machine retries the errors that the definition's Retry names, but never a PermanentError.
"""
