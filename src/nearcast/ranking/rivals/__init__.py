"""The competitors that the paper measures against, with the same interface and tests, for benchmarks."""
