"""The transfer workflow: starts executions, recovers those whose starter died, and reconciles those that failed.

It is deployed next to the consumer, with its own template (deploy/workflow.yaml). The state machine is
`transfer.asl.json`; its steps are in `app.steps`.
"""
