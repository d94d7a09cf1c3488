"""What a run lays over the shipped code folder: the shipped handlers, wrapped with faults. Runs in the functions."""
