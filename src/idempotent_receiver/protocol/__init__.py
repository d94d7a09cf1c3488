"""What may happen to a key: the record, its transitions, the exchange with a store, and the seam that a store fills."""
