"""Workloads and measurements: what ``nearcast bench`` runs.

``workloads`` makes seeded subscriptions and messages, ``matching`` and ``vocabulary`` measure, ``report`` and
``pictures`` show, ``floors`` compares a run with the least that it must reach. The numbers are ratios within one
run: the naive scan, the rivals and the floor (touching the answers and nothing else) stand in the same table.
"""
