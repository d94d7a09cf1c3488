"""The worker outside Lambda: a supervisor, its processes, and lease renewal. Not part of the Lambda artifact."""
