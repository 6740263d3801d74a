"""The indexes that the papers compare theirs with, as well built as ours: exact, compiled, changeable.

==============  =====================================================================================
``iq-tree``     a quadtree, with ranked-key lists in its cells: space first
``rq-tree``     ranked-key lists, with a quadtree inside each long one: words first
``ss-lists``    a grid file, with ranked-key lists in its cells: the SS-Index
``kk-lists``    ranked-key lists, with a grid file inside each: the KK-Index
``rt-tree``     the R^t++-Tree: an R-tree whose nodes carry filters of representative tokens
``tama``        counts predicates over cells of several levels for each attribute
``op-index``    counts predicates in sorted lists, by pivot attribute, then attribute and operator
``r-star-tree`` boxes over place and attributes, in the R*-Tree of libspatialindex
==============  =====================================================================================

There are also stores of messages. Four of them belong to the rivals for subscriptions that move (:mod:`.moving`), from
section 5.2.1 of Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently Support Location-Aware Publish/Subscribe"
(2015). Two are from the experiments of Dian, Qian, Cao, Xue, Zhu, Yu and Li, "MO-Tree: An Efficient Forwarding Engine
for Spatiotemporal-aware Pub/Sub Systems" (2021):

==============  =====================================================================================
``ss-lists``    a grid file, with inverted lists in its cells
``kk-lists``    inverted lists, with a grid file inside each
``iq-tree``     a quadtree, with inverted lists in its cells
``rq-tree``     inverted lists, with a quadtree inside each long one
``beq-tree``    a quadtree, with sorted lists of values in its cells, and counting
``r-star-tree`` boxes over place and attributes, in the R*-Tree of libspatialindex
==============  =====================================================================================
"""
