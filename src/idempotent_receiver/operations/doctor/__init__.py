"""A deployed consumer compared with what the promises need: the facts from AWS, and the checks of them."""
