"""The operator's side, off the data path and never deployed: look at records, redrive dead letters, check a stack."""
