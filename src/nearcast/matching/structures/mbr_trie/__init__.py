"""MBRTrie: section 3 of Yu, Li and Feng, "A Cost-based Method for Location-Aware Publish/Subscribe Services" (2015).

The modules: ``trie`` (the arrays), ``search`` (Algorithm 1), ``merge`` (newcomers), ``index`` (the structure).
"""

from nearcast.matching.structures.mbr_trie.index import MBRTrie

__all__ = ["MBRTrie"]
