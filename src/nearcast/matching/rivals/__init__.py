"""The indexes that the papers compare theirs with, as well built as ours: exact, compiled, changeable.

==============  =====================================================================================
``iq-tree``     a quadtree, with ranked-key lists in its cells: space first
``rq-tree``     ranked-key lists, with a quadtree inside each long one: words first
``rt-tree``     the R^t++-Tree: an R-tree whose nodes carry filters of representative tokens
``tama``        counts predicates over cells of several levels for each attribute
``op-index``    counts predicates in sorted lists, by pivot attribute, then attribute and operator
``r-star-tree`` boxes over place and attributes, in the R*-Tree of libspatialindex
==============  =====================================================================================

There are also two stores of messages, from the experiments of Dian, Qian, Cao, Xue, Zhu, Yu and Li, "MO-Tree: An
Efficient Forwarding Engine for Spatiotemporal-aware Pub/Sub Systems" (2021):

==============  =====================================================================================
``beq-tree``    a quadtree, with sorted lists of values in its cells, and counting
``r-star-tree`` boxes over place and attributes, in the R*-Tree of libspatialindex
==============  =====================================================================================
"""
