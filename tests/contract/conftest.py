"""One suite, all indexes: a new index is tested by being listed in ``nearcast.matching.INDEXES``."""

import pytest

from nearcast.matching import INDEXES


@pytest.fixture(params=sorted(INDEXES))
def name(request):
    return request.param
