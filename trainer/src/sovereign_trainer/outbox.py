"""Events on their way to the server. They wait while it is away, in bounded memory."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from .client import Lease
from .errors import Refused, TrainerError

MOST = 20_000
"""Events that wait. The oldest ones are dropped beyond that."""

BATCH = 200
LONGEST_MESSAGE = 4000
MOST_FIGURES = 100


class Outbox:
    """Sends events in their order, from a thread of its own. Each has a number, so that one sent twice is kept once."""

    def __init__(self, lease: Lease, lost: Callable[[TrainerError], None], most: int = MOST) -> None:
        self._lease, self._lost = lease, lost
        self._waiting: deque[dict[str, Any]] = deque(maxlen=most)
        self._number = 0
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._send, name="events", daemon=True)
        self._thread.start()

    def message(self, text: str, level: str = "info", step: int = 0) -> None:
        """Tell a sentence."""
        self._add({"level": level, "type": "message", "step": step, "message": text[:LONGEST_MESSAGE]})

    def metrics(self, step: int, data: dict[str, float]) -> None:
        """Tell figures."""
        if data:
            kept = dict(list(data.items())[:MOST_FIGURES])
            self._add({"level": "info", "type": "metrics", "step": step, "data": kept})

    def close(self) -> None:
        """Wait until everything was sent. The lease's cancel ends the waiting."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _add(self, event: dict[str, Any]) -> None:
        with self._changed:
            self._number += 1
            self._waiting.append({"number": self._number, **event})
            self._changed.notify()

    def _take(self) -> list[dict[str, Any]]:
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            return [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]

    def _send(self) -> None:
        while batch := self._take():
            try:
                self._lease.events(batch)
            except Refused:
                continue  # the server takes the other events
            except TrainerError as error:
                self._lost(error)
                return
