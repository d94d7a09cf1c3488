"""The benchmark: our consumer, its alternatives, and the limit that none of them can pass."""
