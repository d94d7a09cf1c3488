"""A model of DynamoDB without a network, for the benchmark's endpoint, the simulation and the tests."""
