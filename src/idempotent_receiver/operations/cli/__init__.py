"""The command `receiver`: what is typed, and what is shown. Only this package knows options, terminals and tables."""
