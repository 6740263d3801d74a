"""Subscriptions, messages and matches as columns: structures of arrays that kernels read.

A :class:`SubscriptionTable` has *clause rows* (one conjunction with one box each) and *subscription rows*;
``owners`` maps the first to the second. A :class:`MessageBatch` has *probe rows* (one message with one box each)
and *message rows*. With plain boxes and conjunctions the two are the same. :class:`Matches` has only subscription
rows and message rows.
"""

from nearcast.columns.clauses import distinct_conjunctions, take_clauses
from nearcast.columns.ids import id_array
from nearcast.columns.matches import Matches
from nearcast.columns.messages import NEVER, NOT_GIVEN, MessageBatch
from nearcast.columns.subscriptions import SubscriptionTable
from nearcast.columns.vocabulary import Vocabulary

__all__ = [
    "NEVER",
    "NOT_GIVEN",
    "Matches",
    "MessageBatch",
    "SubscriptionTable",
    "Vocabulary",
    "distinct_conjunctions",
    "id_array",
    "take_clauses",
]
