"""The deployed application: the composition root, and the business code that a user replaces."""
