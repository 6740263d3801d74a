"""LFILTER: section 5 of the LFILTER paper. The cost model, the hybrid pruning, the index."""

from nearcast.matching.structures.lfilter.index import LFilter

__all__ = ["LFilter"]
