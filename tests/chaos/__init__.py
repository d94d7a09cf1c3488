"""Chaos with real processes: the shipped consumer, killed and frozen, behind an unreliable network; and reconciliation.

`make chaos` sends messages through a real queue to worker processes, does to them and to their requests what an awful
day would, and reconciles by a log, the tables and the queues. Nothing here believes a worker's answer.
"""
