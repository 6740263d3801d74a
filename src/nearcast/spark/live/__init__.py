"""Matching while subscriptions change: the verbs, the states that micro-batches see, and what workers run."""
