"""The operator's side, off the data path and not deployed: looking at records, moving dead letters, checking stacks."""
