"""Small worlds of subscriptions and messages, and their deliveries without Spark."""

import os
import time
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import shapely

from nearcast import Deliveries, MessageBatch, SubscriptionTable, build_index

WORDS = ["coffee", "tea", "sale", "flood", "concert", "bike", "café", "日本"]


def subscription_table(n=300, seed=1):
    """Return subscriptions to circles, boxes, polygons or everywhere; with words, alternatives, negations, values."""
    rng = np.random.default_rng(seed)
    x, y, size = rng.uniform(-10, 10, n), rng.uniform(-10, 10, n), rng.uniform(0.2, 4, n)
    kind = np.arange(n) % 4
    box, circle, polygon = kind == 0, kind == 1, kind == 2
    forms = [
        "{0}",
        "{0} AND {1}",
        "{0} OR {1}",
        "{0} NOT {1}",
        "price < 50",
        '{0} AND brand = "acme"',
        "{0} price >= 30",
    ]
    written = [forms[i % 7].format(*rng.choice(WORDS, 2, replace=False)) for i in range(n)]
    geometry = [
        shapely.to_wkb(shapely.Point(*p[:2]).buffer(p[2], quad_segs=2)) if is_polygon else None
        for *p, is_polygon in zip(x, y, size, polygon)
    ]
    return pa.table(
        {
            "id": [f"s{i}" for i in range(n)],
            "expression": written,
            "geometry": pa.array(geometry, pa.binary()),
            "lon": pa.array(x, mask=~circle),
            "lat": pa.array(y, mask=~circle),
            "radius_m": pa.array(size * 111_000, mask=~circle),
            "xmin": pa.array(x, mask=~box),
            "ymin": pa.array(y, mask=~box),
            "xmax": pa.array(x + size, mask=~box),
            "ymax": pa.array(y + size, mask=~box),
        }
    )


def message_table(m=1200, seed=2):
    """Return messages at points, with words, two attributes that some lack, and a column that nobody asks for."""
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "id": pa.array(np.arange(m) + 10_000_000_000),
            "lon": rng.uniform(-11, 11, m),
            "lat": rng.uniform(-11, 11, m),
            "keywords": [rng.choice(WORDS, k).tolist() for k in rng.integers(0, 4, m)],
            "price": pa.array(rng.uniform(0, 100, m), mask=rng.random(m) < 0.3),
            "brand": [[None, "acme", "other"][i % 3] for i in range(m)],
            "unasked": ["x" * 50] * m,
        }
    )


def pairs(deliveries):
    """Return deliveries, from a DataFrame or an Arrow table, as a multiset."""
    table = deliveries if isinstance(deliveries, pa.Table) else deliveries.toArrow()
    return Counter(zip(table["message_id"].to_pylist(), table["subscription_id"].to_pylist()))


def in_process(messages, subscriptions):
    """Return the deliveries without Spark, by the scan."""
    subs = SubscriptionTable.from_arrow(subscriptions)
    batch = MessageBatch.from_arrow(messages, like=subs)
    found = build_index("scan", subs).match(batch)
    return pairs(Deliveries.of(found, batch.ids, subs.ids).to_arrow())


def write_files(table, directory, count, start=0):
    """Write *table* as *count* Parquet files; each appears whole, in one step, and is younger than the one before."""
    directory.mkdir(parents=True, exist_ok=True)
    now = time.time_ns()
    for i, rows in enumerate(np.array_split(np.arange(len(table)), count), start):
        draft = directory / f".{i:03}.parquet"
        pq.write_table(table.take(rows), draft)
        os.utime(draft, ns=(now + i * 1_000_000,) * 2)  # Spark reads files in the order of their times
        draft.rename(directory / f"{i:03}.parquet")
    return directory
