"""What the paper measures against: same interface, same tests, for benchmarks."""
