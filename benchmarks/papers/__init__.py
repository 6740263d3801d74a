"""The figures of each paper as experiments, and the commands and tables for them."""
