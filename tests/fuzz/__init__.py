"""Arbitrary input to the shipped consumer: hypothesis chooses it, and an oracle checks the answer."""
