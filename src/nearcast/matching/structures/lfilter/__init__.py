"""LFILTER: section 5 of Yu, Li and Feng, "A Cost-based Method for Location-Aware Publish/Subscribe Services" (2015).

The modules: ``cost`` (the cost model), ``hybrid`` (HYBRIDPRUNE), ``index`` (the structure, Algorithm 3).
"""

from nearcast.matching.structures.lfilter.index import LFilter

__all__ = ["LFilter"]
