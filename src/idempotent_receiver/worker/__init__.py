"""The worker outside Lambda: a supervisor, its processes, and leases that are renewed. Never in Lambda's artifact."""
