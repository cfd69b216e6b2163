"""What an engine asks of the server: rewards, and tools. An engine has no token, so that its supervisor asks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from . import client
from .client import Lease
from .errors import Refused, Stopped, TrainerError

MOST_ITEMS = 512
"""The server scores this many items in one call."""

OVER = ("anchor_held", "session_overbudget", "session_not_active")
"""These refusals say that there are no rewards now: the run saves a checkpoint and stops."""


class Relay:
    """Asks for an engine, each question in a thread of its own, for as long as the server is away.

    `beat` sends a heartbeat: the server says by its answer whether the run pauses or ends without rewards.
    """

    def __init__(
        self, lease: Lease, answer: Callable[[dict[str, Any]], None], beat: Callable[[], None],
        broken: Callable[[TrainerError], None],
    ) -> None:  # fmt: skip
        self._lease, self._answer, self._beat, self._broken = lease, answer, beat, broken

    def ask(self, kind: str, what: dict[str, Any]) -> None:
        """Ask, and answer the engine when the server has answered."""
        threading.Thread(target=self._ask, args=(kind, what), daemon=True, name=kind).start()

    def _ask(self, kind: str, what: dict[str, Any]) -> None:
        number = what.pop("id")
        try:
            self._answer({"id": number, **self._found(kind, what)})
        except Stopped:
            pass  # the attempt ends
        except TrainerError as error:
            self._broken(error)

    def _found(self, kind: str, what: dict[str, Any]) -> dict[str, Any]:
        try:
            if kind == "tool":
                return {"result": self._lease.tool(what.pop("tool"), what)}
            return self._score(what["step"], what["items"])
        except Refused as refused:
            if refused.code in OVER:
                self._beat()
                return {"halt": refused.message}
            return {"error": {"code": f"{kind}_refused", "message": str(refused)}}

    def _score(self, step: str, items: list[dict[str, Any]]) -> dict[str, Any]:
        """The rewards of items. What the judges are still at is asked for again."""
        rewards: list[float | None] = []
        for first in range(0, len(items), MOST_ITEMS):
            part, tries = items[first : first + MOST_ITEMS], 0
            while True:
                found = self._lease.score({"step": step, "items": part})
                if found["held"] or found["status"] != "ACTIVE":
                    self._beat()
                    return {"halt": f"the reward session is {'held' if found['held'] else found['status']}"}
                if not any("pending" in data["flags"] for data in found["data"]):
                    break
                if self._lease.cancel.wait(client.delay(tries, 0.0)):
                    raise Stopped("score")
                tries += 1
            rewards += found["rewards"]
        return {"result": {"rewards": rewards}}
