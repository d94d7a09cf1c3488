"""The steps of a transfer: one file for each state of `transfer.asl.json` that is a function, by the state's name.

Each is given the transfer and takes effect once, under the transfer's id in its own namespace. What it raises says how
the machine goes on: after a PermanentError it does not try again, after what the definition's Retry names it does.
"""
