"""Functions as they would be deployed, to measure their cold starts. Each has a `start`, which creates its clients."""
