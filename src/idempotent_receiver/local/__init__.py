"""A local cloud, and trials of a project's consumer on it. Requires the extra `[local]`; never deployed."""
