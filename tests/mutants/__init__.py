"""Bugs that are planted one at a time into a copy of the code, to see that a test turns red by what it asserts.

`python -m tests.mutants` plants them all; with words, those whose names hold one of them.
"""
