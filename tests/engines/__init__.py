"""The engines that the store contract is held against, and how each is brought up."""
