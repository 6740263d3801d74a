"""A network of routers without loops, in one process: subscriptions travel, messages come back along their path."""

from collections import deque

import numpy as np

from nearcast.covering import RelationGraph

LOCAL = -1


class Router:
    """Knows which subscriptions came from where, and for each neighbour what that neighbour must know."""

    def __init__(self, neighbours, made):
        self.known = {source: {} for source in (LOCAL, *neighbours)}  # source → {key: content}
        self.graphs = {one: made() for one in neighbours}
        self.rows = {one: {} for one in neighbours}  # neighbour → {key: row}
        self.keys = {one: {} for one in neighbours}  # and back


class Network:
    """Routers; *pool* is a table of contents, *matched* [messages, contents] who wants which message."""

    def __init__(self, links, pool, matched, covering=True, **options):
        self.pool, self.matched, self.covering = pool, matched, covering
        names = sorted({name for link in links for name in link})
        beside = {one: [b if a == one else a for a, b in links if one in (a, b)] for one in names}
        self.routers = {one: Router(beside[one], lambda: RelationGraph(**options)) for one in names}
        self.sent = 0  # subscriptions and unsubscriptions over links
        self.queue = deque()

    def subscribe(self, router, key, content):
        self._tell(router, LOCAL, key, content)
        self._settle()

    def unsubscribe(self, router, key):
        self._tell(router, LOCAL, key, None)
        self._settle()

    def move(self, router, key, new_key, content):
        """The new place is asked for before the old one is given up."""
        self._tell(router, LOCAL, new_key, content)
        self._tell(router, LOCAL, key, None)
        self._settle()

    def _settle(self):
        while self.queue:
            self._tell(*self.queue.popleft())

    def _send(self, here, there, key, content):
        self.sent += 1
        self.queue.append((there, here, key, content))

    def _tell(self, here, source, key, content):
        """A router learns of a subscription, or (content None) of its end."""
        router = self.routers[here]
        if content is None:
            del router.known[source][key]
        else:
            assert key not in router.known[source]
            router.known[source][key] = content
        for there in router.graphs:
            if there == source:
                continue
            if not self.covering:
                self._send(here, there, key, content)
            elif content is None:
                self._leave(here, router, there, key)
            else:
                self._come(here, router, there, key, content)

    def _come(self, here, router, there, key, content):
        made = router.graphs[there].subscribe(self.pool.take([content]))
        row = int(made.rows[0])
        router.rows[there][key], router.keys[there][row] = row, (key, content)
        if made.forward[0]:
            self._send(here, there, key, content)
        for other in made.withdrawn.tolist():
            self._send(here, there, router.keys[there][other][0], None)

    def _leave(self, here, router, there, key):
        row = router.rows[there].pop(key)
        exposed, travels = router.graphs[there].unsubscribe([row])
        for other in exposed.tolist():
            self._send(here, there, *router.keys[there][other])
        del router.keys[there][row]
        if len(travels):
            self._send(here, there, key, None)

    def publish(self, here, message):
        """Return the (router, key) that a message reaches."""
        reached, todo = set(), [(here, LOCAL)]
        while todo:
            at, source = todo.pop()
            for place, asked in self.routers[at].known.items():
                wanted = [key for key, content in asked.items() if self.matched[message, content]]
                if place == LOCAL:
                    reached.update((at, key) for key in wanted)
                elif wanted and place != source:
                    todo.append((place, at))
        return reached


def line(n):
    return [(i, i + 1) for i in range(n - 1)]


def tree(n):
    return [((i - 1) // 2, i) for i in range(1, n)]


def matrix(found, messages, contents):
    """Who wants which message, from the answer of an index."""
    matched = np.zeros((messages, contents), bool)
    matched[found.messages, found.rows] = True
    return matched
