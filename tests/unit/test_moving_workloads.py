"""Workloads of moving subscriptions: vehicles stay on roads, keep to the limits, and repeat with the seed."""

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nearcast import config
from nearcast.errors import InputError, UnknownError
from nearcast.workloads import roads
from nearcast.workloads.moving import make_moving
from nearcast.workloads.taxis import taxis
from nearcast.workloads.trips import Trips

FASTEST = max(config.MOVING_VEHICLE_SPEEDS)


@pytest.fixture(scope="module")
def small():
    return roads.invented(12, seed=1)


# --- Roads ------------------------------------------------------------------------------------------------------------


def test_an_invented_network(small):
    assert len(small.nodes) == 144
    assert small.lengths.size == 2 * 12 * 11
    assert ((small.nodes > 0) & (small.nodes < 1)).all()
    shares = np.bincount(small.classes, minlength=3) / small.classes.size
    assert shares.all()  # each class is there
    assert np.array_equal(small.nodes, roads.invented(12, seed=1).nodes)
    assert not np.array_equal(small.nodes, roads.invented(12, seed=2).nodes)
    for node in (0, 77):  # the arcs of a node begin there
        own = slice(small.arcs.first[node], small.arcs.first[node + 1])
        assert set(small.arcs.start[own].tolist()) == {node}


def test_paths_are_the_shortest(small):
    count = len(small.nodes)
    distances = np.full((count, count), np.inf)
    np.fill_diagonal(distances, 0.0)
    distances[small.arcs.start, small.arcs.end] = small.lengths[small.arcs.road]
    for middle in range(count):  # Floyd and Warshall
        np.minimum(distances, distances[:, [middle]] + distances[middle], out=distances)
    targets = np.array([0, 50, 143])
    for tree, target in zip(small.trees(targets, small.lengths), targets):
        assert tree[target] == -1
        for node in range(count):
            way, at = 0.0, node
            while at != target:
                assert small.arcs.start[tree[at]] == at
                way += small.lengths[small.arcs.road[tree[at]]]
                at = small.arcs.end[tree[at]]
            assert way == pytest.approx(distances[node, target])


def test_roads_that_are_not_connected():
    nodes = np.array([[0.0, 0.0], [0.1, 0.0], [0.5, 0.5], [0.6, 0.5]])
    with pytest.raises(InputError, match="not connected"):
        roads.network("two", nodes, np.array([[0, 1], [2, 3]]))
    with pytest.raises(InputError, match="at least 2"):
        roads.invented(1)
    with pytest.raises(UnknownError, match="town, county, oldenburg, san-joaquin"):
        roads.road_map("moon")
    with pytest.raises(InputError, match="--data DIR"):
        roads.road_map("oldenburg")


# --- Trips ------------------------------------------------------------------------------------------------------------


def off_road(network, points):
    """Return the distance of each point from the nearest road."""
    begin, end = network.nodes[network.arcs.start], network.nodes[network.arcs.end]
    along = end - begin
    share = ((points[:, None] - begin) * along).sum(axis=2) / (along**2).sum(axis=1)
    nearest = begin + np.clip(share, 0, 1)[..., None] * along
    return np.linalg.norm(points[:, None] - nearest, axis=2).min(axis=1)


@pytest.mark.parametrize("speed", [0.5, 1.0, 4.0])
def test_vehicles_stay_on_roads_and_keep_to_their_speed(small, speed):
    trips = Trips(small, 300, seed=3, speed=speed)
    everyone = np.arange(300)
    before, way = trips.points, np.zeros(300)
    assert off_road(small, before).max() < 1e-12
    for _ in range(30):
        after = trips.move(everyone)
        assert off_road(small, after).max() < 1e-12
        length = np.linalg.norm(after - before, axis=1)
        assert (length <= trips.vehicles.top_speed + 1e-12).all()
        way, before = way + length, after
    assert set(trips.vehicles.top_speed) == {top * speed for top in config.MOVING_VEHICLE_SPEEDS}
    # The slowest are always at their limit; the shortcut from one place to the next is a little shorter than the road.
    slowest = trips.vehicles.top_speed == min(trips.vehicles.top_speed)
    assert (way[slowest] > 30 * 0.6 * min(trips.vehicles.top_speed)).all()
    # The fastest are slowed down by side roads.
    fastest = trips.vehicles.top_speed == max(trips.vehicles.top_speed)
    assert way[fastest].mean() < 30 * 0.7 * max(trips.vehicles.top_speed)


def test_vehicles_arrive_and_leave_again(small):
    trips = Trips(small, 50, seed=3)
    first = trips.vehicles.destination.copy()
    for _ in range(300):
        trips.move(np.arange(50))
    assert (trips.vehicles.destination != first).mean() > 0.5


def test_others_wait(small):
    trips = Trips(small, 100, seed=4)
    before = trips.points
    moved = np.array([3, 70, 5])
    after = trips.move(moved)
    now = trips.points
    assert np.array_equal(now[moved], after)
    assert (now[moved] != before[moved]).any(axis=1).all()
    others = np.setdiff1d(np.arange(100), moved)
    assert np.array_equal(now[others], before[others])
    assert np.array_equal(trips.again().points, before)


# --- Workloads --------------------------------------------------------------------------------------------------------


def tiny(**changes):
    return make_moving(**{"subscriptions": 400, "valid": 300, "seed": 5} | changes)


def arrays(step):
    probes = step.messages.probes
    return step.rows, step.boxes, probes.boxes, probes.keywords, step.messages.expires_at


def test_the_same_seed_gives_the_same_steps():
    one, other = tiny(), tiny()
    for a, b in itertools.zip_longest(one.steps(5), other.steps(5)):
        assert a.now == b.now
        assert all(np.array_equal(x, y) for x, y in zip(arrays(a), arrays(b), strict=True))
    again = list(one.steps(5))  # a workload can be replayed
    assert all(np.array_equal(x, y) for x, y in zip(arrays(a), arrays(again[-1]), strict=True))
    strange = list(tiny(seed=6).steps(5))[-1]
    assert not np.array_equal(strange.boxes, again[-1].boxes)
    assert not np.array_equal(strange.messages.expires_at, again[-1].messages.expires_at)


def test_steps():
    made = tiny(mobility=0.2, area=0.01)
    centres = made.movement.points
    boxes = made.subscriptions.clauses.boxes
    assert np.allclose((boxes[:, :2] + boxes[:, 2:]) / 2, centres)
    for number, step in enumerate(made.steps(8), 1):
        assert step.now == number * 30_000_000
        assert len(set(step.rows.tolist())) == len(step.rows) == 80
        assert len(step.messages) == 30
        assert (step.messages.published_at == step.now).all()
        assert (step.messages.expires_at > step.now).all()
        assert np.allclose(step.boxes[:, 2:] - step.boxes[:, :2], 0.1)  # 1 % of the unit square
        moved = (step.boxes[:, :2] + step.boxes[:, 2:]) / 2
        assert np.linalg.norm(moved - centres[step.rows], axis=1).max() <= FASTEST + 1e-12
        centres[step.rows] = moved


def test_about_as_many_messages_stay_valid():
    made = tiny(subscriptions=1, valid=5000)
    lives = [made.messages.expires_at]
    for step in made.steps(25):
        lives.append(step.messages.expires_at)
        valid = (np.concatenate(lives) > step.now).sum()
        assert 4500 < valid < 5600
    assert np.mean(made.messages.expires_at) == pytest.approx(300e6, rel=0.05)  # ten steps


def test_messages_do_not_depend_on_the_subscriptions():
    one, other = tiny(), tiny(subscriptions=50, speed=3.0)
    assert np.array_equal(one.messages.probes.keywords, other.messages.probes.keywords)
    a, b = next(one.steps(1)), next(other.steps(1))
    assert np.array_equal(a.messages.expires_at, b.messages.expires_at)


def test_speed_is_a_factor():
    way = {}
    for speed in (1.0, 2.0):
        made = tiny(speed=speed, mobility=1.0)
        step = next(made.steps(1))
        moved = (step.boxes[:, :2] + step.boxes[:, 2:]) / 2
        way[speed] = np.linalg.norm(moved - made.movement.points[step.rows], axis=1).mean()
    assert 1.7 < way[2.0] / way[1.0] < 2.1
    assert made.facts["speed"] == 2.0
    assert made.facts["vehicle_speeds"] == list(config.MOVING_VEHICLE_SPEEDS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"subscriptions": 0}, "at least 1"),
        ({"valid": 0}, "at least 1"),
        ({"mobility": 0.0}, "mobility is a share"),
        ({"area": 2.0}, "area is a share"),
        ({"speed": 0.0}, "above 0"),
        ({"messages": "moon"}, "there are tweets-like, gn-like, tweets, places"),
        ({"roads": "moon"}, "town, county, oldenburg, san-joaquin, taxis"),
        ({"roads": "taxis"}, "--data DIR"),
        ({"messages": "tweets"}, "--data DIR"),
    ],
)
def test_what_cannot_be_made(changes, message):
    with pytest.raises((InputError, UnknownError), match=message):
        tiny(**changes)


# --- Real data --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A directory with a small map, a few texts, and traces of two cabs, one of which jumps."""
    folder = tmp_path_factory.mktemp("data")
    corners = [(100.0, 0.0), (0.0, 0.0), (0.0, 50.0), (100.0, 50.0)]
    nodes = {"network": ["oldenburg"] * 4 + ["other"], "node_id": [2, 5, 7, 9, 2]}
    xy = {"x": [x for x, _ in corners] + [0.0], "y": [y for _, y in corners] + [0.0]}
    pq.write_table(pa.table({**nodes, **xy}), folder / "road_nodes.parquet")
    edges = {"network": ["oldenburg"] * 4, "from_node": [2, 5, 7, 9], "to_node": [5, 7, 9, 2]}
    pq.write_table(pa.table(edges), folder / "road_edges.parquet")
    rng = np.random.default_rng(0)
    places = {"lon": rng.uniform(-120, -70, 60), "lat": rng.uniform(25, 49, 60)}
    texts = [f"word{i % 7} and more{i}" for i in range(60)]
    pq.write_table(pa.table({**places, "text": texts}), folder / "messages_tweets.parquet")
    times = np.arange(0, 6000, 60)
    rows = [(0, t, -122.4 + 0.0001 * i, 37.7) for i, t in enumerate(times)]
    rows += [(1, t, -122.4, 37.7 if i != 50 else 37.9) for i, t in enumerate(times)]
    columns = dict(zip(("object_id", "ts", "lon", "lat"), zip(*rows)))
    pq.write_table(pa.table(columns), folder / "traces.parquet")
    return folder


def test_a_real_map(data):
    found = roads.road_map("oldenburg", 0, data)
    # Scaled to the unit square without changing proportions; node numbers may have gaps.
    assert found.nodes.tolist() == [[1.0, 0.0], [0.0, 0.0], [0.0, 0.5], [1.0, 0.5]]
    assert sorted(found.lengths.tolist()) == [0.5, 0.5, 1.0, 1.0]


def test_real_messages_on_real_roads(data):
    made = make_moving("tweets", "oldenburg", subscriptions=80, valid=100, data=data)
    assert made.name == "tweets-oldenburg"
    assert made.facts["rows"] == 60
    step = next(made.steps(1))
    assert ((step.messages.probes.boxes >= 0) & (step.messages.probes.boxes <= 1)).all()
    assert off_road(made.movement.roads, (step.boxes[:, :2] + step.boxes[:, 2:]) / 2).max() < 1e-12
    # Messages and the texts that lend words to subscriptions are different rows: "more7" is in one half only.
    asked = set(made.subscriptions.clauses.keywords.tolist())
    sent = set(made.messages.probes.keywords.tolist())
    assert len(asked & sent) <= 8  # "and" and word0 to word6


def test_taxis(data):
    made = taxis(data, subscribers=30, seed=1)
    assert len(made.points) == 30
    assert np.array_equal(made.points, taxis(data, subscribers=30, seed=1).points)
    assert not np.array_equal(made.points, taxis(data, subscribers=30, seed=2).points)
    assert made.steps >= 49
    farthest = config.TAXI_MAX_KMH / 3.6 * 60 / made.metres
    before, moved = made.points, 0.0
    for _ in range(made.steps):
        after = made.move(np.arange(30))
        way = np.linalg.norm(after - before, axis=1).max()
        assert way <= farthest + 1e-12
        before, moved = after, max(moved, way)
    assert moved == pytest.approx(farthest)  # somebody follows the cab that jumped
    with pytest.raises(InputError, match="end after"):
        made.move(np.arange(30))


def test_taxis_carry_subscriptions(data):
    made = make_moving("tweets-like", "taxis", subscriptions=20, valid=10, mobility=1.0, data=data)
    assert [step.now for step in made.steps(2)] == [60_000_000, 120_000_000]
