"""``TopK``: for each subscription, the k best messages of a sliding window, kept up to date.

The framework (section 4, Figure 3) of Wang, Zhang, Zhang, Lin and Huang, "Top-k Spatial-keyword Publish/Subscribe Over
Sliding Window" (2017). Beyond the paper, a message can replace another one under the same id.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast import config
from nearcast.clock import checked_clock, microseconds
from nearcast.columns import MessageBatch
from nearcast.columns.coding import Coding
from nearcast.columns.deliveries import Deliveries
from nearcast.columns.ids import Ids, id_array, id_kind
from nearcast.columns.parts import nested, part_of
from nearcast.columns.ragged import matrix
from nearcast.errors import InputError, UnknownError, shown, whole_number
from nearcast.geometry import WGS84
from nearcast.geometry.spaces import checked_space
from nearcast.kernels.threads import side_by_side
from nearcast.ranking.arrivals import Arrivals, check_batch
from nearcast.ranking.choices import POLICIES, check_named, finder_of, policy_of
from nearcast.ranking.finder import Hits, joined
from nearcast.ranking.message_ids import MessageIds
from nearcast.ranking.message_index import MessageIndex
from nearcast.ranking.requests import Requests
from nearcast.ranking.results import Results
from nearcast.ranking.scoring import Metric, lengths, metric_of
from nearcast.ranking.subscribers import Subscribers
from nearcast.ranking.weights import Weights
from nearcast.ranking.windows import CountWindow, Messages, TimeWindow
from nearcast.storage.directory import read, restoring, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime
    from pathlib import Path

    from numpy.typing import NDArray

    from nearcast.clock import Clock
    from nearcast.columns.ids import IdColumn
    from nearcast.columns.parts import Arrays
    from nearcast.columns.vocabulary import Vocabulary
    from nearcast.geometry import Space
    from nearcast.ranking.finder import Finder
    from nearcast.ranking.frequencies import DocumentFrequencies
    from nearcast.ranking.policies import Policy
    from nearcast.ranking.windows import Window

__all__ = ["TopK"]

_KIND = "top-k"  # the kind of a saved directory
#: What finders count: blocks or leaves, those not skipped, postings in these, and subscriptions verified.
_COUNTERS = ("leaves", "leaves_visited", "postings_visited", "candidates")
_COUNTED = ("messages", "expired", "replaced", *_COUNTERS, "entered", "re_evaluations", "initialised")


class TopK:
    """The k best messages of a window for each of many subscriptions.

    The score of a message for a subscription is ``α · (1 - distance / max_distance) + (1 - α) · cosine``, where the
    cosine is that of their words, weighted by rarity. A message must have at least one of the subscription's words. Of
    equal scores, the newer message ranks higher.

    >>> from nearcast import Planar
    >>> top = TopK(CountWindow(1000), space=Planar(0, 0, 10, 10))
    >>> top.subscribe([[1, 1]], [0, 2], [7, 8], alpha=0.5, k=2, ids=["anna"])
    <Deliveries: 0>
    >>> batch = MessageBatch.from_arrays([[1, 1], [9, 9]], [0, 1, 2], [7, 8], space=top.space)
    >>> [(change.subscription_id, change.change, change.message_id, change.rank) for change in top.publish(batch)]
    [('anna', '+', 0, 1), ('anna', '+', 1, 2)]
    >>> messages, scores = top.results("anna")
    >>> messages.tolist(), scores.round(2).tolist()
    ([0, 1], [0.85, 0.45])

    Parameters
    ----------
    window
        Which messages count: :class:`CountWindow` or :class:`TimeWindow`.
    space
        WGS84, or a plane.
    max_distance
        The distance at which nearness becomes 0, in the unit of the space; by default its largest distance.
    document_frequency
        How rare words are; without it, all words weigh the same.
    clock
        Gives the time of messages without a published_at; needed for a :class:`TimeWindow` if there are any. With a
        clock, messages from the future are refused, and expired ones reach nobody.
    subscription_ids, message_ids
        The type of ids, ``str`` or ``int``. Unless given, the first ids decide; later ones must be of the same type.
    threads
        How many threads share the work of a call.
    index, buffer
        How subscriptions are found and how much their buffers hold, for measurements; the results are the same. Names
        of :mod:`~nearcast.ranking.choices`, or a callable that makes a finder, and a policy.
    """

    def __init__(
        self,
        window: Window,
        *,
        space: Space = WGS84,
        max_distance: float | None = None,
        document_frequency: DocumentFrequencies | None = None,
        clock: Clock | None = None,
        subscription_ids: type[str] | type[int] | None = None,
        message_ids: type[str] | type[int] | None = None,
        threads: int = 1,
        index: str | Callable[[Metric], Finder] = "blocks",
        buffer: str | Policy = "cost-based",
    ) -> None:
        if not isinstance(window, CountWindow | TimeWindow):
            raise InputError(f"window must be a CountWindow or a TimeWindow, not {shown(window)}")
        self.window, self.space = window, checked_space(space)
        self._run_by(clock, threads)
        self._metric = metric_of(self.space, max_distance)
        #: The coding of words, for ``MessageBatch.from_arrow(table, like=top, learn=True)``.
        self.coding = Coding.new(self.space)
        self._weights = Weights(self.coding, document_frequency)
        self._subscribers = Subscribers()
        self._ids = Ids("subscription", id_kind(subscription_ids, "subscription_ids"))
        self._taken = 0  # how many subscriptions ever came
        self._messages = Messages()
        self._message_ids = MessageIds(id_kind(message_ids, "message_ids"))
        self._finder = finder_of(index, self._metric)
        self._results = Results(policy_of(buffer))
        self._message_index = MessageIndex(self._metric, self.space)
        self._chunk = 1  # how many messages arrive before old ones leave
        self._counted = dict.fromkeys(_COUNTED, 0)
        self._seconds = dict.fromkeys(("arrivals", "expiries", "initialisations"), 0.0)

    def __len__(self) -> int:
        """Return the number of subscriptions."""
        return len(self._subscribers)

    def __repr__(self) -> str:
        subscriptions, messages = len(self), len(self._messages)
        return (
            f"<TopK of {subscriptions:,} subscription{'s' * (subscriptions != 1)} "
            f"over {messages:,} message{'s' * (messages != 1)}>"
        )

    @property
    def vocabulary(self) -> Vocabulary:
        """The words that have codes."""
        return self.coding.words()[0]

    @property
    def _idf(self) -> NDArray[np.float64]:
        return self._weights.idf

    # --- Subscriptions ---------------------------------------------------------------------------------------------

    def subscribe(
        self,
        points: Any,
        keyword_offsets: Any = None,
        keywords: Any = None,
        *,
        words: Sequence[Iterable[str]] | None = None,
        alpha: Any,
        k: Any,
        ids: Any = None,
    ) -> Deliveries:
        """Add subscriptions; return their results in the window, all ``+``, best first.

        Parameters
        ----------
        points
            float64[n, 2]: x, y (longitude, latitude).
        keyword_offsets, keywords
            int64[n + 1] and int32: the codes of the words, at least one for each subscription.
        words
            The words themselves instead, a list for each subscription.
        alpha
            How much nearness counts against words, from 0 to 1: one number, or one for each subscription.
        k
            How many results, from 1: one number, or one for each subscription.
        ids
            Strings or integers that are not in use. Subscriptions without ids are numbered from 0, in the order in
            which they came.
        """
        if words is not None:
            if keywords is not None or keyword_offsets is not None:
                raise InputError("give either keyword codes or words, not both")
            keyword_offsets, keywords = self._weights.coded(words, len(matrix(points, "points", 2)))
        subscriptions = Requests.of(points, keyword_offsets, keywords, alpha, k, self.space)
        count = len(subscriptions.points)
        names = id_array(np.arange(self._taken, self._taken + count) if ids is None else ids, count, "ids")
        self._ids.check_new(names)
        self._weights.learn(subscriptions.words)
        rows = self._subscribers.add(subscriptions, self.space, self._idf)
        self._ids.put(names, rows)
        self._taken += count
        self._results.open(rows, subscriptions.sizes)
        started = time.perf_counter()
        self._evaluate(rows, logged=False)
        self._finder.add(self._subscribers.table, rows, self._idf)
        self._counted["initialised"] += len(rows)
        self._seconds["initialisations"] += time.perf_counter() - started
        return self._results_of(rows, "+", "subscribe")

    def unsubscribe(self, ids: Any) -> Deliveries:
        """Remove one or several subscriptions by id; return the results they had, all ``-``."""
        gone = np.unique(self._ids.rows(ids))
        had = self._results_of(gone, "-", "unsubscribe")
        self._finder.drop(self._subscribers.table, gone.astype(np.int32), self._idf)
        self._results.close(gone)
        self._subscribers.drop(gone)
        self._ids.drop(gone)
        return had

    def results(self, id: Any) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Return the results of a subscription: the ids of messages, best first, and their scores."""
        row = self._ids.row(id)
        if row < 0:
            raise UnknownError(f"there is no subscription {shown(id)}")
        numbers, scores = self._results.of(row, int(self._subscribers.table.sizes[row]))
        kind: Any = np.int64 if self._message_ids.are_integers else object
        return np.array(self._named(numbers).to_pylist(), kind), scores

    def thresholds(self, ids: Any) -> NDArray[np.float64]:
        """Return θ of each subscription: a message that scores less now changes nothing; -inf while all do."""
        return self._subscribers.table.thresholds[self._ids.rows(ids)]

    # --- Messages --------------------------------------------------------------------------------------------------

    def publish(self, batch: MessageBatch) -> Deliveries:
        """Add messages to the window, let old ones leave it, and return the changes in the results.

        A message with the id of another one in the window replaces it, or changes nothing if place, words and
        published_at are the same. A message without an id is always new.

        If there is a clock, a message whose published_at lies ahead of it is an error: a window ends at its newest
        message, so one from the future would push out all the others. One whose expires_at has come reaches nobody,
        and only ends what was published under its id. How long the others count is for the window alone to say.

        To get the new results of a subscription, remove the messages marked ``-`` from its earlier ones and add those
        marked ``+``. ``rank`` counts from 1: the new rank for ``+``, the earlier one for ``-``. The reason is
        ``publish`` for a new message and for those that it displaces, ``expire`` for a message that has left the window
        and for an older one that moves up, and ``replace`` for a message that was replaced and for an older one that
        moves up because of that.
        """
        check_batch(batch, self.coding)
        self._begin()
        arrived = self._messages.end
        now = None if self._clock is None else self._clock.now()
        new = Arrivals.of(batch, self.window, now, self._messages, self._message_ids)
        self._weights.learn(new.words)
        if new.codes is not None:
            new, replaced = self._message_ids.arriving(new, self._messages, self.window)
            if len(replaced):
                self._withdraw(replaced)
        long = np.empty(len(new))
        lengths(new.offsets, new.words, self._idf, long)
        begin = 0
        while begin < len(new):
            part = slice(begin, min(len(new), begin + self._chunk))
            started = time.perf_counter()
            self._messages.append(new, long, part)
            self._arrive(part.stop - part.start)
            self._seconds["arrivals"] += time.perf_counter() - started
            self._leave(self._first())
            begin = part.stop
        return self._changes(arrived)

    def expire(self, now: int | np.integer[Any] | datetime | str | None = None) -> Deliveries:
        """Let messages that are too old at *now*, by default the clock's time, leave a :class:`TimeWindow`."""
        at: int | None = None
        if now is not None:
            at = microseconds(int(now) if isinstance(now, np.integer) else now, "now")
        elif self._clock is not None:
            at = self._clock.now()
        elif isinstance(self.window, TimeWindow):
            raise InputError("a TimeWindow must know what time it is; call expire(now), or give TopK a clock")
        self._begin()
        if at is not None and isinstance(self.window, TimeWindow):
            self._leave(self._messages.before(at - self.window.microseconds + 1))
        return self._changes(self._messages.end)

    def _first(self) -> int:
        """Return the number of the oldest message that stays in the window after an arrival."""
        if isinstance(self.window, CountWindow):
            return self._messages.last(self.window.size)
        return max(
            self._messages.first,
            self._messages.before(self._messages.newest - self.window.microseconds + 1),
        )

    def _arrive(self, count: int) -> None:
        """Put the newest *count* messages into the buffers of the subscriptions that they affect (Algorithm 1)."""
        messages, subscriptions = self._messages, self._subscribers.table
        self._finder.tune(messages.lengths, self._idf)
        begin, end = messages.end - count, messages.end
        pieces = [(at, min(end, at + config.RANKING_PIECE)) for at in range(begin, end, config.RANKING_PIECE)]

        def search(piece: tuple[int, int]) -> list[Hits]:
            at, stop = piece
            parts = []
            while at < stop:
                parts.append(
                    self._finder.find(
                        subscriptions, messages.table, at, stop, self._idf, config.RANKING_PAIRS
                    )
                )
                at += len(parts[-1].offsets) - 1
            return parts

        def follow() -> list[Hits]:
            self._message_index.follow(messages)
            return []

        jobs: list[Callable[[], list[Hits]]] = [follow, *(partial(search, piece) for piece in pieces)]
        threads = self.threads if len(pieces) > 1 else 1
        found = joined([one for hits in side_by_side(lambda job: job(), jobs, threads) for one in hits])
        entered, changed = self._results.arrive(subscriptions, found, begin)
        if len(changed):
            self._finder.update(subscriptions, changed, self._idf, self.threads)
        self._counted["entered"] += entered
        for name, counted in zip(_COUNTERS, found.counters.tolist()):
            self._counted[name] += counted
        self._counted["messages"] += count
        # While buffers fill up, a message affects everybody. Small chunks are better then, since θ rises between them.
        self._chunk = min(
            config.RANKING_CHUNK, max(1, config.RANKING_PAIRS * count // max(1, len(found.rows)))
        )

    def _leave(self, number: int) -> None:
        """Let the messages before *number* leave; re-evaluate subscriptions with too few results (Algorithm 2)."""
        started = time.perf_counter()
        messages = self._messages
        if number > messages.first:
            needy = self._results.expire(number)
            self._counted["expired"] += messages.leave(number)
            self._re_evaluate(needy)
        self._seconds["expiries"] += time.perf_counter() - started

    def _withdraw(self, numbers: NDArray[np.int64]) -> None:
        """Withdraw messages that are replaced; re-evaluate the subscriptions that had them among their results."""
        started = time.perf_counter()
        subscriptions = self._subscribers.table
        # The buffers that hold a message are among those that it would enter.
        found = joined(
            [
                self._finder.find(subscriptions, self._messages.table, at, at + 1, self._idf, 1)
                for at in numbers.tolist()
            ]
        )
        needy, raised = self._results.withdraw(subscriptions, found, numbers)
        self._messages.withdraw(numbers)
        if len(raised):
            self._finder.update(subscriptions, raised, self._idf, self.threads)
        self._re_evaluate(needy)
        self._counted["replaced"] += len(numbers)
        self._seconds["arrivals"] += time.perf_counter() - started

    def _re_evaluate(self, rows: NDArray[np.int32]) -> None:
        """Find new results for rows that have too few."""
        if len(rows):
            self._evaluate(rows, logged=True)
            self._finder.update(self._subscribers.table, rows, self._idf, self.threads)
            self._counted["re_evaluations"] += len(rows)

    def _evaluate(self, rows: NDArray[np.int32], *, logged: bool) -> None:
        """Fill the buffers of rows from the window; with *logged*, new results are changes of the current call."""
        subscriptions = self._subscribers.table
        for begin in range(0, len(rows), config.RANKING_EVALUATED):
            part = rows[begin : begin + config.RANKING_EVALUATED]
            wanted = self._results.buffers.table.wanted[part]
            best = self._message_index.best(
                subscriptions, part, wanted, self._messages, self._idf, self.threads
            )
            self._results.fill(subscriptions, part, wanted, best, logged=logged)

    # --- At rest ---------------------------------------------------------------------------------------------------

    def save(self, directory: str | Path) -> Path | str:
        """Write everything to a new directory, which appears whole or not at all; return its path or URI.

        Subscriptions, messages, results and indexes are saved; the clock, the threads and the figures are not.
        """
        document, arrays = self._at_rest()
        return write(directory, _KIND, arrays, document)

    @classmethod
    def open(
        cls, directory: str | Path, *, clock: Clock | None = None, threads: int = 1, verify: bool = False
    ) -> TopK:
        """Open a saved directory, and continue where it was saved. Arrays are mapped; nothing is evaluated.

        *clock* and *threads* are as in the constructor, *verify* is as in :func:`~nearcast.open_index`.
        """
        document, arrays = read(directory, _KIND, verify=verify)
        with restoring(directory):
            top = cls._restored(document, arrays)
        top._run_by(clock, threads)
        return top

    def _at_rest(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the plain values and the arrays that :meth:`_restored` takes."""
        policy = self._results.policy
        check_named(self._finder, policy)
        document = {
            "window": asdict(self.window),
            "max_distance": self._metric.max_distance,
            "index": self._finder.name,
            "buffer": [policy.name, asdict(policy)],
            "weights": self._weights.document(),
            "chunk": self._chunk,
            "ids": [self._ids.kind_name, self._message_ids.kind_name],
            "taken": self._taken,
        }
        arrays = nested(
            weights=self._weights.at_rest(),
            subscribers=self._subscribers.at_rest(),
            ids=self._ids.arrays(),
            messages=self._messages.at_rest(),
            message_ids=self._message_ids.at_rest(),
            results=self._results.at_rest(),
            message_index=self._message_index.at_rest(),
            finder=self._finder.at_rest(),
        )
        return document, arrays

    @classmethod
    def _restored(cls, document: dict[str, Any], arrays: Arrays) -> TopK:
        weights = Weights.restored(document["weights"], part_of(arrays, "weights"))
        window, (buffer, parameters) = document["window"], document["buffer"]
        top = cls(
            CountWindow(**window) if "size" in window else TimeWindow(**window),
            space=weights.coding.space,
            max_distance=document["max_distance"],
            index=document["index"],
            buffer=POLICIES[buffer](**parameters),
        )
        top.coding, top._weights, top._chunk = weights.coding, weights, document["chunk"]
        kinds, top._taken = document["ids"], document["taken"]
        top._subscribers.restore(part_of(arrays, "subscribers"))
        top._ids = Ids.restored("subscription", kinds[0], part_of(arrays, "ids"))
        top._messages.restore(part_of(arrays, "messages"))
        top._message_ids.restore(kinds[1], part_of(arrays, "message_ids"))
        top._results.restore(part_of(arrays, "results"))
        top._message_index.restore(part_of(arrays, "message_index"))
        subscriptions, rows = top._subscribers.table, top._subscribers.all()
        top._finder.restore(part_of(arrays, "finder"), subscriptions, rows, top._idf)
        return top

    # --- Indexes, figures, changes -----------------------------------------------------------------------------------

    def use_index(self, index: str | Callable[[Metric], Finder]) -> None:
        """Find subscriptions by another index from now on, as in the constructor; figures start again from 0."""
        self._finder = finder_of(index, self._metric)
        self._finder.add(self._subscribers.table, self._subscribers.all(), self._idf)
        self._finder.tune(self._messages.lengths, self._idf)
        self._counted = dict.fromkeys(self._counted, 0)
        self._seconds = dict.fromkeys(self._seconds, 0.0)

    def stats(self) -> dict[str, Any]:
        """Return figures since the beginning, or since a saved directory was opened.

        Counts, the average times of an arriving message, of an expired message (AMP and EMP in the paper) and of a new
        subscription, the average size of buffers, and memory in bytes.
        """
        results, rows = self._results, len(self)
        return {
            "subscriptions": rows,
            "window": len(self._messages),
            **self._counted,
            "amp_microseconds": _each(self._seconds["arrivals"], self._counted["messages"]),
            "emp_microseconds": _each(self._seconds["expiries"], self._counted["expired"]),
            "initialisation_microseconds": _each(
                self._seconds["initialisations"], self._counted["initialised"]
            ),
            "average_buffer": results.buffers.entries / max(1, rows),
            "memory": {
                "subscriptions": self._subscribers.nbytes,
                "index": self._finder.nbytes,
                "buffers": results.buffers.nbytes,
                "watches": results.watches.nbytes,
                "messages": self._messages.nbytes,
                "ids": self._ids.nbytes + self._message_ids.nbytes,
                "message_index": self._message_index.nbytes,
            },
            **self._finder.stats(),
            **self._message_index.stats(),
        }

    def _run_by(self, clock: Clock | None, threads: int) -> None:
        """Check and set the clock and the number of threads."""
        self._clock = None if clock is None else checked_clock(clock)
        self.threads = whole_number("threads", threads, 1)

    def _begin(self) -> None:
        """Begin a call that changes results; from here on, message numbers stay the same until the next call."""
        messages, first = self._messages, self._messages.first
        if messages.gaps > len(messages) + config.RANKING_GAPS:
            numbers = messages.close_gaps()
            self._results.renumber(first, numbers)
            self._message_ids.renumber(first, numbers)
            self._message_index.restart(messages)
        messages.tidy()
        self._message_ids.tidy(messages)
        self._results.begin(self.threads)

    def _named(self, numbers: NDArray[np.int64]) -> IdColumn:
        return self._message_ids.column(numbers, self._messages.ids(numbers))

    def _changes(self, arrived: int) -> Deliveries:
        """Return what the call changed; the messages from number *arrived* on came in it."""
        made = self._results.changes()
        reasons = made.reasons(self._messages, arrived)
        rows, messages = self._ids.column(made.rows), self._named(made.messages)
        return Deliveries(rows, messages, made.changes, reasons, made.scores, made.ranks)

    def _results_of(self, rows: NDArray[Any], change: str, reason: str) -> Deliveries:
        """Return all current results of rows as deliveries."""
        positions, messages, scores, ranks = self._results.all_of(rows)
        column = self._ids.column(rows[positions])
        return Deliveries(column, self._named(messages), change, reason, scores, ranks)


def _each(seconds: float, count: int) -> float:
    return seconds / max(1, count) * 1e6
