"""The engines that keep records."""
