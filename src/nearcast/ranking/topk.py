"""Top-k over a sliding window: for each subscription the k most relevant messages, always right."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from nearcast import config
from nearcast.columns import MessageBatch
from nearcast.columns.coding import Coding
from nearcast.columns.ragged import code_sets, integers, matrix, offsets_of
from nearcast.errors import ColumnError, InputError, UnknownError, shown
from nearcast.geometry import WGS84
from nearcast.geometry.spaces import checked_space
from nearcast.kernels.threads import side_by_side
from nearcast.ranking.finder import Finder, Found, joined
from nearcast.ranking.frequencies import DocumentFrequencies
from nearcast.ranking.policies import Policy
from nearcast.ranking.recall import Recall
from nearcast.ranking.results import Results
from nearcast.ranking.scoring import Metric, lengths, metric_of, places_of
from nearcast.ranking.subscribers import Subscribers
from nearcast.ranking.windows import CountWindow, Messages, TimeWindow, in_order
from nearcast.registry import Registry
from nearcast.text import tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from nearcast.clock import Clock
    from nearcast.columns.vocabulary import Vocabulary
    from nearcast.geometry import Space
    from nearcast.ranking.updates import Changes
    from nearcast.ranking.windows import Window

__all__ = ["FINDERS", "POLICIES", "TopK"]

_Made = TypeVar("_Made")

FINDERS: Registry[type[Finder]] = Registry(
    {
        "blocks": "nearcast.ranking.blocks:Blocks",
        "igpt": "nearcast.ranking.igpt:IGPT",
        "ciq": "nearcast.ranking.rivals.ciq:CIQ",
        "scan": "nearcast.ranking.finder:Scan",
    }
)
POLICIES: Registry[type[Policy]] = Registry(
    {
        "cost-based": "nearcast.ranking.policies:CostBased",
        "kmax": "nearcast.ranking.rivals.policies:KMax",
        "skyband": "nearcast.ranking.rivals.policies:Skyband",
    }
)


# What finders count: blocks or leaves, those not skipped, postings in these, and subscriptions that were verified.
_COUNTERS = ("leaves", "leaves_visited", "postings_visited", "candidates")
_COUNTED = ("messages", "expired", *_COUNTERS, "entered", "re_evaluations", "initialised")


class TopK:
    """The k best messages of a window for each of many subscriptions.

    A message is scored for a subscription by ``α · (1 - distance / max_distance) + (1 - α) · cosine``, the cosine of
    their words weighted by rarity; it must have at least one of the subscription's words. Of equal scores the newer
    message is better.

    >>> from nearcast import Planar
    >>> top = TopK(CountWindow(1000), space=Planar(0, 0, 10, 10))
    >>> rows = top.subscribe([[1, 1]], [0, 2], [7, 8], alpha=0.5, k=2)
    >>> batch = MessageBatch.from_arrays([[1, 1], [9, 9]], [0, 1, 2], [7, 8], space=top.space)
    >>> top.publish(batch).to_pydict()["rank"]
    [1, 2]
    >>> messages, scores = top.results(rows[0])
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
    threads
        How many share the work of a call.
    index, buffer
        How subscriptions are found, and how much their buffers hold: names in ``FINDERS`` and ``POLICIES``, or what
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
        threads: int = 1,
        index: str | Callable[[Metric], Finder] = "blocks",
        buffer: str | Policy = "cost-based",
    ) -> None:
        if not isinstance(window, CountWindow | TimeWindow):
            raise InputError(f"window must be a CountWindow or a TimeWindow, not {shown(window)}")
        self.window, self.space = window, checked_space(space)
        self.threads = threads
        self._metric = metric_of(self.space, max_distance)
        self._frequencies = document_frequency
        self._clock = clock
        #: What batches of tables are made like: ``MessageBatch.from_arrow(table, like=top, learn=True)``.
        self.coding = Coding.new(self.space)
        if document_frequency is not None and document_frequency.words is not None:
            self.vocabulary.add(document_frequency.words)
        self._idf = np.empty(0)
        self._subscribers = Subscribers()
        self._messages = Messages()
        self._finder = _chosen(index, FINDERS, "index")(self._metric)
        self._results = Results(
            buffer if isinstance(buffer, Policy) else _chosen(buffer, POLICIES, "buffer")()
        )
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
        known = self.coding.vocabulary
        assert known is not None
        return known

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
    ) -> NDArray[np.int32]:
        """Take subscriptions and find their results in the window; return their rows.

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
        """
        xy = matrix(points, "points", 2)
        if words is not None:
            if keywords is not None:
                raise InputError("give either the codes of keywords or words, not both")
            keyword_offsets, keywords = self._coded(words)
        offsets, codes = code_sets(keyword_offsets, keywords, len(xy), "keyword")
        if len(xy) and (np.diff(offsets) == 0).any():
            row = int(np.flatnonzero(np.diff(offsets) == 0)[0])
            raise ColumnError(
                f"subscription {row} has no keywords; only messages with one of them are ranked"
            )
        alphas = _one_each(alpha, len(xy), np.float64, "alpha", 0.0, 1.0)
        sizes = _one_each(k, len(xy), np.int32, "k", 1, config.RANKING_MAX_K)
        if not np.isfinite(xy).all():
            raise ColumnError("points must be finite numbers")
        if len(xy):
            for x, y in (xy.min(axis=0).tolist(), xy.max(axis=0).tolist()):
                self.space.check(x, y)
        self._learn(codes)
        rows = self._subscribers.add(places_of(xy, self.space), alphas, sizes, offsets, codes, self._idf)
        self._results.open(rows, sizes)
        started = time.perf_counter()
        self._evaluate(rows, told=False)
        self._finder.add(self._subscribers.asked, rows, self._idf)
        self._counted["initialised"] += len(rows)
        self._seconds["initialisations"] += time.perf_counter() - started
        return rows

    def unsubscribe(self, rows: Any) -> None:
        """Forget subscriptions."""
        gone = np.unique(integers(rows, np.int64, "subscription rows"))
        unknown = gone[~self._subscribers.alive(gone)]
        if len(unknown):
            raise UnknownError(f"there is no subscription {unknown[0]}")
        self._finder.drop(self._subscribers.asked, gone.astype(np.int32), self._idf)
        self._results.buffers.close(gone)
        self._subscribers.drop(gone)

    def results(self, row: int) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Return the messages of a subscription, best first, and their scores."""
        if not self._subscribers.alive(np.array([row], np.int64))[0]:
            raise UnknownError(f"there is no subscription {row}")
        messages, scores = self._results.of(row, int(self._subscribers.asked.sizes[row]))
        return self._messages.named(messages), scores

    # --- Messages --------------------------------------------------------------------------------------------------

    def publish(self, batch: MessageBatch) -> pa.Table:
        """Take messages, let old ones leave the window, and return what changed.

        The table has ``subscription``, ``message``, ``change`` (1 or -1), ``score`` and ``rank`` (from 1, where it is
        now or where it was). Without what goes, and with what comes, the results before are those after.
        """
        self._check(batch)
        order = in_order(batch.published_at, batch.ids)
        if order is not None:
            batch = batch.take(order)
        times = batch.published_at
        if times is None:
            now = self._clock.now() if self._clock else 0
            times = np.full(len(batch), now, np.int64)
        places = places_of(batch.probes.boxes[:, :2], self.space)
        offsets, words = batch.probes.keyword_offsets, batch.probes.keywords
        self._learn(words)
        long = np.empty(len(batch))
        lengths(offsets, words, self._idf, long)
        ids = self._ids_of(batch)
        self._begin()
        begin = 0
        while begin < len(batch):
            part = slice(begin, min(len(batch), begin + self._chunk))
            started = time.perf_counter()
            self._messages.append(
                places[part],
                long[part],
                offsets[part.start : part.stop + 1],
                words,
                times[part],
                ids[part],
            )
            self._arrive(part.stop - part.start)
            self._recall.follow(self._messages)
            self._seconds["arrivals"] += time.perf_counter() - started
            self._leave(self._first())
            begin = part.stop
        return self._told()

    def expire(self, now: int | None = None) -> pa.Table:
        """Let the messages leave a window of time that are too old at *now* (microseconds; the clock's by default)."""
        self._begin()
        if isinstance(self.window, TimeWindow):
            if now is None:
                if self._clock is None:
                    raise InputError("say what time it is, expire(now), or give TopK a clock")
                now = self._clock.now()
            self._leave(self._messages.before(now - self.window.microseconds + 1))
        return self._told()

    def _first(self) -> int:
        """Return the oldest message that stays after an arrival."""
        if isinstance(self.window, CountWindow):
            return max(self._messages.first, self._messages.end - self.window.size)
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
        messages, asked = self._messages, self._subscribers.asked
        count = number - messages.first
        if count > 0:
            needy = self._results.drop(messages.first, number)
            messages.first = number
            if len(needy):
                self._evaluate(needy, told=True)
                self._finder.changed(asked, needy, self._idf)
                self._counted["re_evaluations"] += len(needy)
            self._counted["expired"] += count
        self._seconds["expiries"] += time.perf_counter() - started

    def _evaluate(self, rows: NDArray[np.int32], *, told: bool) -> None:
        """Fill the buffers of rows from the window; *told*: in a call that returns what changes."""
        asked = self._subscribers.asked
        for begin in range(0, len(rows), config.RANKING_EVALUATED):
            part = rows[begin : begin + config.RANKING_EVALUATED]
            wanted = self._results.buffers.held.wanted[part]
            best = self._recall.best(asked, part, wanted, self._messages, self._idf, self.threads)
            self._results.fill(asked, part, wanted, best, told=told)

    # --- Names, weights, figures -----------------------------------------------------------------------------------

    def use_index(self, index: str | Callable[[Metric], Finder]) -> None:
        """Find subscriptions by another index from now on, as in the constructor; figures begin anew."""
        self._finder = _chosen(index, FINDERS, "index")(self._metric)
        self._finder.add(self._subscribers.asked, self._subscribers.all(), self._idf)
        self._finder.tune(self._messages.lengths, self._idf)
        self._counted = dict.fromkeys(self._counted, 0)
        self._seconds = dict.fromkeys(self._seconds, 0.0)

    def stats(self) -> dict[str, Any]:
        """Return figures since the beginning.

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
                "message_index": self._recall.nbytes,
            },
            **self._finder.stats(),
            **self._recall.stats(),
        }

    def _begin(self) -> None:
        """Begin a call that changes results."""
        self._messages.tidy()
        self._results.begin(self.threads)

    def _learn(self, words: NDArray[np.int32]) -> None:
        """Let every word have a weight."""
        size = int(words.max(initial=-1)) + 1
        if size > len(self._idf):
            size += size // 4
            self._idf = np.ones(size) if self._frequencies is None else self._frequencies.idf(size)

    def _coded(self, words: Sequence[Iterable[str]]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return rows of words as codes: those that the text of a message would give."""
        rows = [sorted({token for word in row for token in tokens(word)}) for row in words]
        return offsets_of(np.array([len(row) for row in rows], np.int64)), self.vocabulary.add(
            [word for row in rows for word in row]
        )

    def _check(self, batch: MessageBatch) -> None:
        if not isinstance(batch, MessageBatch):
            raise InputError(f"publish takes a MessageBatch, not {shown(batch)}")
        if batch.space != self.space:
            raise ColumnError(f"the messages are in {batch.space!r}, the subscriptions in {self.space!r}")
        if batch.vocabulary is not None and not batch.coding.fits(self.coding):
            raise ColumnError(
                "the words of the messages are coded otherwise; make the batch with like=top, learn=True"
            )
        boxes = batch.probes.boxes
        if len(boxes) != len(batch) or not np.array_equal(boxes[:, :2], boxes[:, 2:]):
            raise ColumnError("a message that is ranked is at a point; an area has no distance")

    def _ids_of(self, batch: MessageBatch) -> NDArray[Any]:
        """Return the ids of a batch; without any, messages are numbered in the order of their arrival."""
        if batch.ids is None:
            return np.arange(self._messages.end, self._messages.end + len(batch))
        ids = batch.ids.to_numpy(zero_copy_only=False)
        kind: Any = np.int64 if ids.dtype.kind in "iu" else object
        named: NDArray[Any] = ids.astype(kind)
        return named

    def _told(self) -> pa.Table:
        def told(made: Changes) -> pa.RecordBatch:
            return pa.RecordBatch.from_pydict(
                {
                    "subscription": pa.array(made.rows),
                    "message": pa.array(self._messages.named(made.messages), self._messages.kind),
                    "change": pa.array(made.changes),
                    "score": pa.array(made.scores),
                    "rank": pa.array(made.ranks),
                }
            )

        return pa.Table.from_batches(self._results.changes(told))


def _each(seconds: float, count: int) -> float:
    return seconds / max(1, count) * 1e6


def _chosen(value: Any, known: Mapping[str, Callable[..., _Made]], what: str) -> Callable[..., _Made]:
    """Return what makes a finder or a policy: itself, or by its name."""
    if callable(value):
        made: Callable[..., _Made] = value
        return made
    if value not in known:
        raise UnknownError(f"no {what} {shown(value)}; there are {', '.join(known)}")
    return known[value]


def _one_each(value: Any, count: int, kind: Any, name: str, low: float, high: float) -> NDArray[Any]:
    """Return one number for each of *count* rows, checked."""
    try:
        array = np.broadcast_to(np.asarray(value), (count,))
    except ValueError:
        raise ColumnError(f"{name} must be one number or {count:,}, not {shown(value)}") from None
    if array.dtype.kind not in ("iu" if kind is np.int32 else "iuf"):
        raise ColumnError(f"{name} must be numbers, not {shown(value)}")
    wrong = ~((array >= low) & (array <= high))
    if wrong.any():
        raise ColumnError(f"{name} must be from {low} to {high}, not {array[wrong][0]}")
    return np.ascontiguousarray(array, kind)
