"""The test harness: AWS on this machine, the template deployed onto it, and single invocations of its function."""
