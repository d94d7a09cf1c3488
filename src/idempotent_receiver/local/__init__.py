"""A local cloud, and a trial of somebody's own consumer on it. Needs the extra `[local]`; none of it is deployed."""
