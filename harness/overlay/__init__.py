"""Files that a run lays over the shipped code folder: the shipped handlers, wrapped with faults. They run in the
functions.
"""
