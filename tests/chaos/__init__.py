"""Chaos with real processes: the shipped consumer, killed, frozen, and behind a connection that lies; then the books.

`make chaos` sends messages through a real queue to worker processes, does to them and to their requests what an awful
day would, and closes the books from a log, the table and the queues. Nothing here believes a worker's answer.
"""
