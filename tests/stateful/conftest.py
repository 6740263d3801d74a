"""What the machines have in common."""

import pytest

from nearcast import config


@pytest.fixture(autouse=True, scope="module")
def few():
    """Let ``auto`` leave the scan early, so that short lives see what comes after it, and the change."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config, "AUTO_SCAN", 3)
        patch.setattr(config, "STORE_SCAN", 3)
        yield
