"""A local cloud, and trials of a project's consumer on it. Requires the `[local]` extra; never deployed."""
