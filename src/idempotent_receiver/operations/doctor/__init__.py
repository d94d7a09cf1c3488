"""Compares a deployed consumer with what the guarantees need: facts from AWS, and checks of them."""
