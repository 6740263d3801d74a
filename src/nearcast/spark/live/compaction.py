"""Making new versions in the background: one at a time, and with pauses if it fails."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from nearcast import config
from nearcast.storage.places import Place

__all__ = ["Compaction"]

_FAILED = "compaction.json"  # there while it fails


class Compaction:
    """Runs the work of a compaction in a thread; after a failure, the next attempt has to wait, each time longer."""

    def __init__(self, home: Place) -> None:
        self._home = home
        self._thread: threading.Thread | None = None
        self._failures, self._not_before = 0, 0.0

    @property
    def running(self) -> bool:
        """Whether a version is being made."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, work: Callable[[], None]) -> bool:
        """Start the work, unless it is running, or has failed a short time ago; return whether it was started."""
        if self.running or time.monotonic() < self._not_before:
            return False
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()
        return True

    def join(self) -> None:
        """Wait until the work is done."""
        if self._thread is not None:
            self._thread.join()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self._failures += 1
            first, most = config.LIVE_BACKOFF_SECONDS
            pause = min(first * 2 ** (self._failures - 1), most)
            self._not_before = time.monotonic() + pause
            logging.getLogger(__name__).warning(
                "no new version could be made in %s: attempt %d failed, the next one is in %.0f s or later",
                self._home,
                self._failures,
                pause,
                exc_info=True,
            )
            told = {"failures": self._failures, "error": f"{type(error).__name__}: {error}"}
            self._home.write(_FAILED, json.dumps(told).encode())
        else:
            if self._failures:
                self._home.remove([_FAILED])
            self._failures, self._not_before = 0, 0.0

    def failed(self) -> dict[str, Any]:
        """Return how many attempts have failed since the last success, and the last error; from any process."""
        try:
            told: dict[str, Any] = json.loads(self._home.read(_FAILED))
        except FileNotFoundError:
            return {"failures": 0, "error": None}
        return told
