"""The workload of `make run`, of its workflow and of chaos: what is sent, what goes wrong, and what must be true after.

It is written once. Each run adds how it sends, which faults it injects, and what else its evidence shows.
"""
