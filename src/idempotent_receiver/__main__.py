"""`python -m idempotent_receiver`: the operator's command line."""

from idempotent_receiver.operations.cli.receiver import main

main()
