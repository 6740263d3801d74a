"""PT-Quadtree: section 4 of the LFILTER paper. Pivotal tokens, the arrays, the search, the index."""

from nearcast.matching.structures.pt_quadtree.index import PTQuadtree

__all__ = ["PTQuadtree"]
