"""The AP+-Tree: one tree for subscriptions that move and for the messages that are valid.

This is section 4 of Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently Support Location-Aware Publish/Subscribe"
(2015). The modules:

- ``pair``: messages and subscriptions come, go and move (Algorithm 5);
- ``tree``: the AP-Tree whose clauses move, with lists of messages (section 4.2.2);
- ``messages``: the lists, m-lists in the paper (section 4.2.4);
- ``frontier``: how far a message goes down when its copies are limited;
- ``moving``: what changes when clauses move (Algorithms 6 and 7);
- ``audit``: whether the lists have all messages.

The cost of movement (section 4.3.1) is in :mod:`~nearcast.matching.structures.ap_tree.motion`. Departures from the
paper, with a million subscriptions and as many messages (times of the runs in which they were decided):

- *A store beside the tree.* A message is only in the leaves that it visited when it came. The paper does not say how a
  later subscription finds it in a cell that was empty, or under a word that nobody had. Here a list knows since when it
  is complete, and where it is too young, the store of all messages answers. That is one question in twenty, so the
  store is one that is cheap to change (``cell-lists``). Of the 4.2 µs of a message, 2.6 are matching, 0.6 attaching it
  to five leaves, 0.5 its rows and its place in the store, and 0.3 the removal of one that expires; with packed messages
  beside the tree, inserting and removing took 2.3 µs instead of 0.6.
- *Nothing is handed down.* When a node is rebuilt, its lists begin again. Where 200,000 subscriptions walk a fifth of
  their width with each move, one question in twelve goes to the store, because of that or of leaves that are new. The
  store answers in 5.4 µs, the tree in 5.0, so there is nothing to gain from sending the messages down again.
- *No list of leaves for each subscription* (nodelist in Algorithm 6). Finding the ways takes 1 µs of the 8 µs of a
  move, and the lists would have to follow all splits and reconstructions.
- *Case 1 is rare*: a clause has at most four postings on average, so hardly any cell lies inside a region.
"""

from nearcast.matching.moving.ap_plus_tree.pair import APPlusTree

__all__ = ["APPlusTree"]
