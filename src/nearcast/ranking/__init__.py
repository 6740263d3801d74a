"""Top-k over a sliding window: for each subscription, the k best messages right now.

The algorithms are those of Wang, Zhang, Zhang, Lin and Huang, "Top-k Spatial-keyword Publish/Subscribe Over Sliding
Window" (2017). The modules name its sections, equations and theorems by number:

=================================================  ====================================================================
score function (section 3, Equation 1)             :mod:`~nearcast.ranking.scoring`
message dissemination (section 5, Algorithm 1)     :mod:`~nearcast.ranking.igpt`, as in the paper;
                                                   :mod:`~nearcast.ranking.blocks`, laid out differently and faster
result buffer, k-skyband (section 6.1, Theorem 5)  :mod:`~nearcast.ranking.buffers`, :mod:`~nearcast.ranking.upkeep`
cost-based k-skyband (section 6.2)                 :mod:`~nearcast.ranking.policies`
top-k re-evaluation (Algorithm 2)                  :mod:`~nearcast.ranking.upkeep`
message index (section 4)                          :mod:`~nearcast.ranking.message_index`
count-based and time-based windows (section 6.3)   :mod:`~nearcast.ranking.windows`
competitors (section 8)                            :mod:`~nearcast.ranking.rivals`
=================================================  ====================================================================

The distributions of section 7.3 are in :mod:`nearcast.sharding.ranked`; nothing runs on several machines yet.
"""

from nearcast.ranking.frequencies import DocumentFrequencies
from nearcast.ranking.topk import TopK
from nearcast.ranking.windows import CountWindow, TimeWindow

__all__ = ["CountWindow", "DocumentFrequencies", "TimeWindow", "TopK"]
