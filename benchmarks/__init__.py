"""The papers' experiments, beside the package: ``python -m benchmarks`` from a checkout; and floors for all."""
