"""Chaos with real processes: the shipped consumer, killed and frozen, behind an unreliable network; and reconciliation.

`make chaos` sends messages through a real queue to worker processes, exposes them and their requests to every fault,
and reconciles a log, the tables and the queues. Nothing here trusts a worker's answer.
"""
