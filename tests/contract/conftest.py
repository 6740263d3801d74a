"""One suite, all indexes: a new index is tested by being listed in ``nearcast.matching.INDEXES``.

Rivals take part in every run where hypothesis draws the cases; the fixture ``name`` has them with ``--long`` only.
"""

import pytest

from nearcast import config
from nearcast.matching import INDEXES
from profiles import without_rivals


@pytest.fixture(params=without_rivals(INDEXES))
def name(request):
    return request.param


@pytest.fixture(autouse=True, scope="module")
def few():
    """Let ``auto`` leave the scan early, so that small examples see what comes after it, and the change."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config, "AUTO_SCAN", 3)
        patch.setattr(config, "STORE_SCAN", 3)
        yield
