"""Matching while subscriptions change: the query, the states that micro-batches see, and the stages of workers."""
