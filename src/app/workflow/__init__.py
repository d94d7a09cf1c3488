"""The transfer workflow: starting executions, recovering those whose starter died, reconciling those that failed.

It is deployed next to the consumer, with its own template (deploy/workflow.yaml). The state machine is
`transfer.asl.json`; its steps are in `app.steps`.
"""
