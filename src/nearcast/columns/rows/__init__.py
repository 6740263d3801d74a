"""Rows that an index or a store owns: clause rows and probe rows that come and go."""
