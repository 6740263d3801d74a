"""The benchmarks of ``nearcast bench``, for judging a machine.

:mod:`nearcast.workloads` makes seeded subscriptions and messages; ``matching`` and others measure; ``report`` and
``pictures`` show the results; ``floors`` compares a run with the limits that it must keep. Compare numbers only within
one run: the naive scan, the rivals and the floor (touching the answers and nothing else) are in the same table.
"""
