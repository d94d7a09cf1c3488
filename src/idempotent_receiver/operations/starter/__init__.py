"""New projects: the files of a tested, deployable consumer, and the template of its alarms."""
