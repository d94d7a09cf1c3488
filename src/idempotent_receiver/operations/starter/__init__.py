"""A project of one's own: the files of a tested, deployable consumer, and the component that its template uses."""
