"""MBRTrie: section 3 of the LFILTER paper. The arrays, the search, the index."""

from nearcast.matching.structures.mbr_trie.index import MBRTrie

__all__ = ["MBRTrie"]
