"""The AP+-Tree: one tree for subscriptions that move and for the messages that are valid.

This is section 4 of Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently Support Location-Aware Publish/Subscribe"
(2015). The modules:

- ``pair``: messages and subscriptions come, go and move (Algorithm 5);
- ``tree``: the AP-Tree whose clauses move, with lists of messages (section 4.2.2);
- ``messages``: the lists, m-lists in the paper (section 4.2.4);
- ``frontier``: how far a message goes down when its copies are limited;
- ``moving``: what changes when clauses move (Algorithms 6 and 7);
- ``audit``: whether the lists have all messages.

The cost of movement (section 4.3.1) is in :mod:`~nearcast.matching.structures.ap_tree.motion`.
"""

from nearcast.matching.moving.ap_plus_tree.pair import APPlusTree

__all__ = ["APPlusTree"]
