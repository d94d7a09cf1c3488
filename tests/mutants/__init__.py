"""Bugs that are planted one at a time into a copy of the code, to see that an assertion of a test fails.

A bug is an address in the library and a change of the syntax tree there; `catalogue` has them all, `change` the ways to
change a tree. `python -m tests.mutants` plants them all; with words, those whose names contain one of the words.
"""
