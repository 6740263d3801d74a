"""What ``nearcast bench`` runs, for who judges a machine.

:mod:`nearcast.workloads` makes seeded subscriptions and messages, ``matching`` and others measure, ``report`` and
``pictures`` show, ``floors`` compares a run with the least that it must reach. The numbers are ratios within one
run: the naive scan, the rivals and the floor (touching the answers and nothing else) stand in the same table.
"""
