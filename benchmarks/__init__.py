"""The experiments of the papers, outside the package: run ``python -m benchmarks`` in a checkout."""
