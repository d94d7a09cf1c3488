"""Functions as they would be deployed, for measuring how they start; each has a `start` that makes its clients."""
