"""A local cloud, and trials of a project's consumer on it. Needs the extra `[local]`; never deployed."""
