"""Mutants that nobody chose: mutmut makes them, and the fast tests judge them. `tests/mutants` has the chosen ones.

A mutant is killed if a test fails. It is also killed if a test takes 10 s more than five times its usual time, and in a
second run, with nothing beside it, more than twice that.
"""
