"""The benchmark: our consumer, its alternatives, and the limit for all of them."""
