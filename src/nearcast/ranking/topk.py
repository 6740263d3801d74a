"""Top-k over a sliding window: for each subscription the k most relevant messages, always right."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from nearcast import config
from nearcast.clock import microseconds
from nearcast.columns import MessageBatch
from nearcast.columns.coding import Coding
from nearcast.columns.deliveries import Deliveries
from nearcast.columns.ids import Ids, id_array, id_kind
from nearcast.columns.parts import nested, part_of
from nearcast.errors import InputError, UnknownError, shown
from nearcast.geometry import WGS84
from nearcast.geometry.spaces import checked_space
from nearcast.kernels.threads import side_by_side
from nearcast.ranking.arrivals import Arrivals, check_batch
from nearcast.ranking.choices import POLICIES, check_named, finder_of, policy_of
from nearcast.ranking.finder import Found, joined
from nearcast.ranking.recall import Recall
from nearcast.ranking.replacing import Bearers
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

_KIND = "top-k"  # of directory
# What finders count: blocks or leaves, those not skipped, postings in these, and subscriptions that were verified.
_COUNTERS = ("leaves", "leaves_visited", "postings_visited", "candidates")
_COUNTED = ("messages", "expired", "replaced", *_COUNTERS, "entered", "re_evaluations", "initialised")


class TopK:
    """The k best messages of a window for each of many subscriptions.

    A message is scored for a subscription by ``α · (1 - distance / max_distance) + (1 - α) · cosine``, the cosine of
    their words weighted by rarity; it must have at least one of the subscription's words. Of equal scores the newer
    message is better.

    >>> from nearcast import Planar
    >>> top = TopK(CountWindow(1000), space=Planar(0, 0, 10, 10))
    >>> top.subscribe([[1, 1]], [0, 2], [7, 8], alpha=0.5, k=2, ids=["anna"])
    <Deliveries: 0>
    >>> batch = MessageBatch.from_arrays([[1, 1], [9, 9]], [0, 1, 2], [7, 8], space=top.space)
    >>> [(told.subscription_id, told.change, told.message_id, told.rank) for told in top.publish(batch)]
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
        Where nearness ends, in the unit of the space; its largest distance by default.
    document_frequency
        How rare words are; without it all weigh the same.
    clock
        Tells the time of messages that do not say when they were published, for a window of time.
    subscription_ids, message_ids
        ``str`` or ``int``: what ids are. Unless given, the first ids decide, and later ones must be of their type.
    threads
        How many share the work of a call.
    index, buffer
        How subscriptions are found, and how much their buffers hold: names in :mod:`~nearcast.ranking.choices`, or what
        makes a finder, and a policy. For measurements; the results are the same.
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
        #: What batches of tables are made like: ``MessageBatch.from_arrow(table, like=top, learn=True)``.
        self.coding = Coding.new(self.space)
        self._weights = Weights(self.coding, document_frequency)
        self._subscribers = Subscribers()
        self._ids = Ids("subscription", id_kind(subscription_ids, "subscription_ids"))
        self._taken = 0  # subscriptions that ever came
        self._messages = Messages()
        self._bearers = Bearers(id_kind(message_ids, "message_ids"))
        self._finder = finder_of(index, self._metric)
        self._results = Results(policy_of(buffer))
        self._recall = Recall(self._metric)
        self._chunk = 1  # messages that arrive before the old ones leave
        self._counted = dict.fromkeys(_COUNTED, 0)
        self._seconds = dict.fromkeys(("arrivals", "expiries", "initialisations"), 0.0)

    def __len__(self) -> int:
        """How many subscriptions there are."""
        return len(self._subscribers)

    def __repr__(self) -> str:
        return f"<TopK of {len(self):,} subscriptions over {len(self._messages):,} messages>"

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
        """Take subscriptions and find their results in the window, which are what is returned: all ``+``, best first.

        Parameters
        ----------
        points
            float64[n, 2]: x, y (longitude, latitude).
        keyword_offsets, keywords
            int64[n + 1] and int32: codes of the words; at least one each.
        words
            Or the words themselves: a list for each subscription.
        alpha
            How much nearness counts, against words: from 0 to 1, one number or one each.
        k
            How many results: from 1, one number or one each.
        ids
            What they are called by: strings or integers, none of them in use. Without ids they are numbered from 0,
            in the order in which they ever came.
        """
        if words is not None:
            if keywords is not None or keyword_offsets is not None:
                raise InputError("give either the codes of keywords or words, not both")
            keyword_offsets, keywords = self._weights.coded(words)
        asked = Requests.of(points, keyword_offsets, keywords, alpha, k, self.space)
        count = len(asked.points)
        names = id_array(np.arange(self._taken, self._taken + count) if ids is None else ids, count, "ids")
        self._ids.check_new(names)
        self._weights.learn(asked.words)
        rows = self._subscribers.add(asked, self.space, self._idf)
        self._ids.put(names, rows)
        self._taken += count
        self._results.open(rows, asked.sizes)
        started = time.perf_counter()
        self._evaluate(rows, told=False)
        self._finder.add(self._subscribers.asked, rows, self._idf)
        self._counted["initialised"] += len(rows)
        self._seconds["initialisations"] += time.perf_counter() - started
        return self._standing(rows, "+", "subscribe")

    def unsubscribe(self, ids: Any) -> Deliveries:
        """Forget subscriptions, one or several, by id; return what their results were, all ``-``."""
        gone = np.unique(self._ids.rows(ids))
        told = self._standing(gone, "-", "unsubscribe")
        self._finder.drop(self._subscribers.asked, gone.astype(np.int32), self._idf)
        self._results.buffers.close(gone)
        self._subscribers.drop(gone)
        self._ids.drop(gone)
        return told

    def results(self, id: Any) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Return the ids of a subscription's messages, best first, and their scores."""
        row = self._ids.row(id)
        if row < 0:
            raise UnknownError(f"there is no subscription {shown(id)}")
        numbers, scores = self._results.of(row, int(self._subscribers.asked.sizes[row]))
        kind: Any = np.int64 if self._bearers.words is None else object
        return np.array(self._named(numbers).to_pylist(), kind), scores

    # --- Messages --------------------------------------------------------------------------------------------------

    def publish(self, batch: MessageBatch) -> Deliveries:
        """Take messages, let old ones leave the window, and return what changed.

        A message whose id is that of a message in the window replaces it, or is no news where place, words and time of
        publication are the same; one without an id is new. ``rank`` is from 1: where a message is now, or where it was.
        Without what goes, and with what comes, the results before are those after. The reason is ``publish`` for a new
        message and for what it puts out; ``expire`` for a message that has left the window and for an older one that
        moves up, and ``replace`` where that is because of a message that was replaced.
        """
        check_batch(batch, self.coding)
        self._begin()
        arrived = self._messages.end
        new = Arrivals.of(batch, self.window, self._clock, self._messages, self._bearers)
        self._weights.learn(new.words)
        if new.codes is not None:
            new, replaced = self._bearers.arriving(new, self._messages, self.window)
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
            self._recall.follow(self._messages)
            self._seconds["arrivals"] += time.perf_counter() - started
            self._leave(self._first())
            begin = part.stop
        return self._told(arrived)

    def expire(self, now: int | np.integer[Any] | datetime | str | None = None) -> Deliveries:
        """Let the messages leave a window of time that are too old at *now* (the clock's time by default)."""
        at: int | None = None
        if now is not None:
            at = microseconds(int(now) if isinstance(now, np.integer) else now, "now")
        elif self._clock is not None:
            at = self._clock.now()
        elif isinstance(self.window, TimeWindow):
            raise InputError("say what time it is, expire(now), or give TopK a clock")
        self._begin()
        if at is not None and isinstance(self.window, TimeWindow):
            self._leave(self._messages.before(at - self.window.microseconds + 1))
        return self._told(self._messages.end)

    def _first(self) -> int:
        """Return the oldest message that stays after an arrival."""
        if isinstance(self.window, CountWindow):
            return self._messages.last(self.window.size)
        return max(
            self._messages.first,
            self._messages.before(self._messages.newest - self.window.microseconds + 1),
        )

    def _arrive(self, count: int) -> None:
        """Put the newest *count* messages into the buffers that they concern."""
        messages, asked = self._messages, self._subscribers.asked
        self._finder.tune(messages.lengths, self._idf)
        begin, end = messages.end - count, messages.end
        pieces = [(at, min(end, at + config.RANKING_PIECE)) for at in range(begin, end, config.RANKING_PIECE)]

        def search(piece: tuple[int, int]) -> list[Found]:
            at, stop = piece
            parts = []
            while at < stop:
                parts.append(
                    self._finder.find(asked, messages.stored, at, stop, self._idf, config.RANKING_PAIRS)
                )
                at += len(parts[-1].offsets) - 1
            return parts

        found = joined([one for piece in side_by_side(search, pieces, self.threads) for one in piece])
        entered, changed = self._results.take(asked, found, begin)
        if len(changed):
            self._finder.changed(asked, changed, self._idf)
        self._counted["entered"] += entered
        for name, counted in zip(_COUNTERS, found.counters.tolist()):
            self._counted[name] += counted
        self._counted["messages"] += count
        # While buffers fill, a message concerns everybody: then few at a time, since thresholds rise between chunks.
        self._chunk = min(
            config.RANKING_CHUNK, max(1, config.RANKING_PAIRS * count // max(1, len(found.rows)))
        )

    def _leave(self, number: int) -> None:
        """Let the messages before *number* leave the window, and re-evaluate who needs others (Algorithm 2)."""
        started = time.perf_counter()
        messages = self._messages
        if number > messages.first:
            needy = self._results.drop(messages.first, number)
            self._counted["expired"] += messages.leave(number)
            self._re_evaluate(needy)
        self._seconds["expiries"] += time.perf_counter() - started

    def _withdraw(self, numbers: NDArray[np.int64]) -> None:
        """Take messages that others replace out of the window, and re-evaluate who had them among the results."""
        started = time.perf_counter()
        asked = self._subscribers.asked
        needy, raised = self._results.withdraw(asked, numbers)
        self._messages.withdraw(numbers)
        if len(raised):
            self._finder.changed(asked, raised, self._idf)
        self._re_evaluate(needy)
        self._counted["replaced"] += len(numbers)
        self._seconds["arrivals"] += time.perf_counter() - started

    def _re_evaluate(self, rows: NDArray[np.int32]) -> None:
        """Find other results for rows that have too few."""
        if len(rows):
            self._evaluate(rows, told=True)
            self._finder.changed(self._subscribers.asked, rows, self._idf)
            self._counted["re_evaluations"] += len(rows)

    def _evaluate(self, rows: NDArray[np.int32], *, told: bool) -> None:
        """Fill the buffers of rows from the window; *told*: in a call that returns what changes."""
        asked = self._subscribers.asked
        for begin in range(0, len(rows), config.RANKING_EVALUATED):
            part = rows[begin : begin + config.RANKING_EVALUATED]
            wanted = self._results.buffers.held.wanted[part]
            best = self._recall.best(asked, part, wanted, self._messages, self._idf, self.threads)
            self._results.fill(asked, part, wanted, best, told=told)

    # --- At rest ---------------------------------------------------------------------------------------------------

    def save(self, directory: str | Path) -> Path:
        """Write everything to a new directory of flat arrays, which appears whole or not at all; return its path.

        That is: subscriptions, messages, results and what finds them; not the clock, the threads and the figures.
        """
        document, arrays = self._at_rest()
        return write(directory, _KIND, arrays, document)

    @classmethod
    def open(
        cls, directory: str | Path, *, clock: Clock | None = None, threads: int = 1, verify: bool = False
    ) -> TopK:
        """Open what was saved: it goes on where it was. The arrays are mapped, nothing is evaluated.

        *clock* and *threads* as in the constructor; *verify* as in :func:`~nearcast.open_index`.
        """
        document, arrays = read(directory, _KIND, verify=verify)
        with restoring(directory):
            top = cls._restored(document, arrays)
        top._run_by(clock, threads)
        return top

    def _at_rest(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return what :meth:`_restored` takes: plain values, and arrays."""
        policy = self._results.policy
        check_named(self._finder, policy)
        document = {
            "window": asdict(self.window),
            "max_distance": self._metric.max_distance,
            "index": self._finder.name,
            "buffer": [policy.name, asdict(policy)],
            "weights": self._weights.document(),
            "chunk": self._chunk,
            "ids": [self._ids.kind_name, self._bearers.kind_name],
            "taken": self._taken,
        }
        arrays = nested(
            weights=self._weights.at_rest(),
            subscribers=self._subscribers.at_rest(),
            ids=self._ids.arrays(),
            messages=self._messages.at_rest(),
            bearers=self._bearers.at_rest(),
            results=self._results.at_rest(),
            recall=self._recall.at_rest(),
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
        top._bearers.restore(kinds[1], part_of(arrays, "bearers"))
        top._results.restore(part_of(arrays, "results"))
        top._recall.restore(part_of(arrays, "recall"))
        asked, rows = top._subscribers.asked, top._subscribers.all()
        top._finder.restore(part_of(arrays, "finder"), asked, rows, top._idf)
        return top

    # --- Names, weights, figures -----------------------------------------------------------------------------------

    def use_index(self, index: str | Callable[[Metric], Finder]) -> None:
        """Find subscriptions by another index from now on, as in the constructor; figures begin anew."""
        self._finder = finder_of(index, self._metric)
        self._finder.add(self._subscribers.asked, self._subscribers.all(), self._idf)
        self._finder.tune(self._messages.lengths, self._idf)
        self._counted = dict.fromkeys(self._counted, 0)
        self._seconds = dict.fromkeys(self._seconds, 0.0)

    def stats(self) -> dict[str, Any]:
        """Return figures since the beginning, or since it was opened.

        Counts; the average time of an arriving and of an expired message (AMP and EMP in the paper), and of a new
        subscription; buffers; memory in bytes.
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
                "holders": results.holders.nbytes,
                "messages": self._messages.nbytes,
                "ids": self._ids.nbytes + self._bearers.nbytes,
                "message_index": self._recall.nbytes,
            },
            **self._finder.stats(),
            **self._recall.stats(),
        }

    def _run_by(self, clock: Clock | None, threads: int) -> None:
        """Take the clock and the threads to work with."""
        if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
            raise InputError(f"threads must be a whole number from 1, not {shown(threads)}")
        if clock is not None and not callable(getattr(clock, "now", None)):
            raise InputError(f"clock must tell the time by now(), as SystemClock() does; not {shown(clock)}")
        self.threads, self._clock = threads, clock

    def _begin(self) -> None:
        """Begin a call that changes results: from here on the numbers of messages stay."""
        messages, first = self._messages, self._messages.first
        if messages.gaps > len(messages) + config.RANKING_GAPS:
            numbers = messages.close_gaps()
            self._results.renumber(first, numbers)
            self._bearers.renumber(first, numbers)
            self._recall.restart(messages)
        messages.tidy()
        self._bearers.tidy(messages)
        self._results.begin(self.threads)

    def _named(self, numbers: NDArray[np.int64]) -> IdColumn:
        return self._messages.ids(numbers, self._bearers.words)

    def _told(self, arrived: int) -> Deliveries:
        """Return what the call has changed, in which messages from number *arrived* on came."""
        made = self._results.changes()
        reasons = made.reasons(self._messages, arrived)
        rows, messages = self._ids.column(made.rows), self._named(made.messages)
        return Deliveries(rows, messages, made.changes, reasons, made.scores, made.ranks)

    def _standing(self, rows: NDArray[Any], change: str, reason: str) -> Deliveries:
        """Return all results of rows as deliveries."""
        positions, messages, scores, ranks = self._results.all_of(rows)
        column = self._ids.column(rows[positions])
        return Deliveries(column, self._named(messages), change, reason, scores, ranks)


def _each(seconds: float, count: int) -> float:
    return seconds / max(1, count) * 1e6
