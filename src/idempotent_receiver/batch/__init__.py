"""Many at once, in time: a batch's items claimed, run and settled before the invocation's deadline."""
