"""An engine and its model, whose subscriptions and messages have few contents."""

from nearcast import Message, Subscription
from stateful.contents import CONTENTS, contents
from stateful.engine_life import SECOND, EngineLife


class Crowd(EngineLife):
    """Draws what happens to an engine; ids of subscriptions and messages with fresh words are negative."""

    world = "globe"

    def __init__(self, rng):
        self.contents = contents(self.world)
        self.space = self.contents.space
        super().__init__()
        self.rng, self.serial = rng, 0
        self.said = {id(place): number for number, (_, place, _) in enumerate(self.contents.messages)}
        self.numbers = {}  # by identity: the number of an expression or a region
        for things in (self.contents.expressions, self.contents.regions):
            for number, thing in enumerate(things):
                self.numbers.setdefault(id(thing), number)
        self.wanted = {}  # by identity of an expression and of a region

    def several(self, values, most):
        """Pick *most* of them, or as many as there are."""
        values = list(values)
        count = min(len(values), most)
        return [values[at] for at in self.rng.choice(len(values), count, replace=False)]

    def wants(self, subscription, message):
        if subscription.id < 0:  # to fresh words
            return super().wants(subscription, message)
        asked = id(subscription.expression), id(subscription.region)
        if asked not in self.wanted:
            self.wanted[asked] = self.contents.wanted(*map(self.numbers.get, asked))
        return self.wanted[asked][-1 if message.id < 0 else self.said[id(message.place)]]

    def wishes(self, size):
        """Return so many pairs of an expression and a region."""
        numbers = self.rng.integers(CONTENTS, size=(size, 2)).tolist()
        return [(self.contents.expressions[i], self.contents.regions[j]) for i, j in numbers]

    def subscribe(self, size):
        new = []
        for wish in self.wishes(size):
            self.serial += 1
            new.append(Subscription(self.serial, *wish))
        self.subscribe_all(new)
        return size

    def unsubscribe(self, size):
        gone = self.several(self.subscribed, size)
        self.unsubscribe_all(gone)
        return len(gone)

    def wishes_for(self, size):
        """Return some subscribers, one of whom may come twice, and a wish for each."""
        keys = self.several([key for key in self.subscribed if key > 0], size)
        keys += keys[:1]
        return list(zip(keys, self.wishes(len(keys))))

    def move(self, size):
        wishes = self.wishes_for(size)
        self.move_all([(key, region) for key, (_, region) in wishes])
        return len(wishes)

    def update(self, size):
        wishes = self.wishes_for(size)
        self.update_all([Subscription(key, *wish) for key, wish in wishes])
        return len(wishes)

    def messages(self, size):
        now, new = self.clock.now(), []
        for _ in range(size):
            start = (None, None, None, now + 2 * SECOND)[self.rng.integers(4)]
            end = (None, now + SECOND, now + 3 * SECOND, now + 9 * SECOND)[self.rng.integers(4)]
            if start and end and end < start:
                end = start + SECOND
            content, key = self.contents.messages[self.rng.integers(CONTENTS)], int(self.rng.integers(80))
            new.append(Message(key, *content, published_at=start, expires_at=end))
        return new

    def chatter(self, size):
        """Publish messages with fresh words, and replace two subscriptions to earlier ones."""
        self.publish_fresh([-key for key in range(1, size + 1)], 2)
        self.unsubscribe_all([key for key in self.subscribed if key < 0])
        self.subscribe_to_fresh([-1, -2])
