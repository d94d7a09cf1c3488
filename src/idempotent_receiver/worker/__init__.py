"""The worker outside Lambda: a supervisor, its processes, and renewed leases. Never in Lambda's artifact."""
