"""What are my best k right now? Top-k over a sliding window (Skype, seed 004).

:class:`TopK` holds subscriptions and a window of messages, and tells what changes in the results.
"""

from nearcast.ranking.frequencies import DocumentFrequencies
from nearcast.ranking.topk import TopK
from nearcast.ranking.windows import CountWindow, TimeWindow

__all__ = ["CountWindow", "DocumentFrequencies", "TimeWindow", "TopK"]
