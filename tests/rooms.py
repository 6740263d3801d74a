"""What tests ask of a pool whose lists get rooms and give them back."""

from nearcast.kernels.slabs import FREE


def free_slots(slabs, links):
    """Return how many slots of a pool are in free rooms, chain by chain; a slot that is met twice is an error."""
    met = set()
    for k, first in enumerate(slabs[FREE:].tolist()):
        while first >= 0:
            slots = range(first, first + (1 << k))
            assert met.isdisjoint(slots)
            met.update(slots)
            first = int(links[first])
    return len(met)
