"""The benchmark: our consumer, what people would take instead, and the limit that none of them can pass."""
