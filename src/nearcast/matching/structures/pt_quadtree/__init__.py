"""PT-Quadtree: a quadtree with pivotal tokens.

It is section 4 of Yu, Li and Feng, "A Cost-based Method for Location-Aware Publish/Subscribe Services" (2015).
The modules: ``pivots`` (pivotal tokens), ``quadtree`` (the arrays), ``search`` (Algorithm 2), ``fold`` (newcomers),
``index`` (the structure).
"""

from nearcast.matching.structures.pt_quadtree.index import PTQuadtree

__all__ = ["PTQuadtree"]
