"""What nobody would send on purpose, sent to the shipped consumer: hypothesis chooses, an oracle judges the answer."""
