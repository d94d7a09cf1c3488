"""Dead letters: read them as the consumer would, decide what may be done with each, and redrive them."""
