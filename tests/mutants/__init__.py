"""Bugs that are planted one at a time into a copy of the code, to see that an assertion of a test fails.

A bug is a text in the library that becomes another; `catalogue` has them all. `python -m tests.mutants` plants
them all; with words, those whose names contain one of the words.
"""
