"""Concurrent, deadline-bound processing: claims, runs and settles a batch's items before the invocation's deadline."""
