"""Operator tools, off the data path and never deployed: inspect records, redrive dead letters, check a stack."""
