"""What `make run` lays over the shipped code folder: the shipped handler, wrapped with faults. Runs in the function."""
