"""The specification of top-k over a window, slow and obvious: all messages, all scores, sorted."""

import math

from nearcast import config


class NaiveTopK:
    """Messages and subscriptions as plain values; the results are computed whenever somebody asks."""

    def __init__(self, *, count=None, seconds=None, idf, sphere=False, max_distance):
        self.count, self.microseconds = count, None if seconds is None else round(seconds * 1e6)
        self.idf, self.sphere, self.max_distance = idf, sphere, max_distance
        self.messages = []  # (number, id, point, words, time, said), oldest first
        self.arrived = 0
        self.newest = -(2**63)
        self.subscriptions = {}  # row: (point, words, alpha, k)

    def publish(self, messages):
        """Take messages one by one: (id, point, words, time, the time that it says, whether it has expired)."""
        for name, point, words, time, said, expired in messages:
            if expired:
                self.messages = [known for known in self.messages if known[1] != name]
                continue
            content = (point, sorted(set(words)), said)
            if any((known[2], known[3], known[5]) == content for known in self.messages if known[1] == name):
                continue
            self.newest = max(time, self.newest)
            self.messages = [known for known in self.messages if known[1] != name]
            self.messages.append((self.arrived, name, *content[:2], self.newest, said))
            self.arrived += 1
            if self.count is not None:
                self.messages = self.messages[-self.count :]
            else:
                self.expire(self.newest)

    def expire(self, now):
        if self.microseconds is not None:
            self.messages = [message for message in self.messages if message[4] + self.microseconds > now]

    def distance(self, one, other):
        if not self.sphere:
            return math.sqrt((one[0] - other[0]) ** 2 + (one[1] - other[1]) ** 2)
        lon1, lat1, lon2, lat2 = (math.radians(value) for value in (*one, *other))
        half = math.sin((lat2 - lat1) / 2) ** 2
        half += math.cos(lat1) * math.cos(lat2) * math.sin((lon2 - lon1) / 2) ** 2
        return 2 * config.EARTH_RADIUS_M * math.asin(min(1.0, math.sqrt(half)))

    def length(self, words):
        return math.sqrt(sum(self.idf[word] ** 2 for word in words))

    def score(self, subscription, message):
        """Equation 1; None without a common word."""
        point, words, alpha, _ = subscription
        _, _, place, given, _, _ = message
        common = sorted(set(words) & set(given))
        if not common:
            return None
        near = max(0.0, 1 - self.distance(point, place) / self.max_distance)
        total = sum(self.idf[word] ** 2 for word in common)
        return alpha * near + (1 - alpha) * (total / (self.length(sorted(set(words))) * self.length(given)))

    def results(self, row):
        """The best k of the window: (id, score), the newer first of equal ones."""
        subscription = self.subscriptions[row]
        scored = [(self.score(subscription, message), message[0], message[1]) for message in self.messages]
        scored = [entry for entry in scored if entry[0] is not None]
        scored.sort(key=lambda entry: (-entry[0], -entry[1]))
        return [(name, score) for score, _, name in scored[: subscription[3]]]
