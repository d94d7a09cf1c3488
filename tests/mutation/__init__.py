"""Mutants that nobody chose: mutmut makes them, and the fast tests judge them. `tests/mutants` has the chosen ones.

A mutant is killed if a test fails. It is also killed if its tests do not end within 20 s and four times their usual
time, and then, alone, within twice that.
"""
