"""The transfer workflow: what starts it, what sweeps up after starters that died, and what reconciles dead machines.

A template of its own deploys it (workflow.yaml), beside the consumer's. The machine is `transfer.asl.json`, its steps
are in `app.steps`.
"""
