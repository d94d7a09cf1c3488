"""The test harness: AWS on this machine, the template deployed to it, and single invocations of its function."""
