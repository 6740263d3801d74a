"""The figures of each paper as experiments, and what shows them."""
