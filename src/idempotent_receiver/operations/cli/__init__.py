"""The command `receiver`: its options and its output. Only this package knows about options, terminals and tables."""
