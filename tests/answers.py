"""How tests ask an index: what it found for each message, and that it found nothing twice."""


def answers(index, batch, **options):
    """Return the set of subscription rows that each message of a batch matches."""
    found = index.match(batch, **options)
    rows = [set(group.tolist()) for group in found]
    assert sum(map(len, rows)) == len(found.rows), "a subscription was found twice"
    return rows
