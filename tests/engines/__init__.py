"""The engines on which the store contract is tested, and how each is started."""
