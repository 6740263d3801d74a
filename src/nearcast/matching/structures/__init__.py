"""The structures that find the clauses of a message, and what they are made of."""
