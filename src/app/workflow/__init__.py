"""The transfer workflow: starting executions, recovering those whose starter died, reconciling those that failed.

It is deployed beside the consumer, by a template of its own (deploy/workflow.yaml). The state machine is
`transfer.asl.json`; its steps are in `app.steps`.
"""
