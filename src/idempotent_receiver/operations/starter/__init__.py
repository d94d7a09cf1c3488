"""A project of one's own: the files of a tested, deployable consumer, and the template of what watches it."""
