"""How items are scored, without I/O: which request is next, how long to wait, what the answers mean.

The blocking client and the asynchronous one both drive `scoring`, and so cannot differ.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from .errors import Refused, RewardHeld, ServerUnavailable, SessionEnded
from .item import Item

MOST_ITEMS = 512
"""The server takes this many items in one call."""

REQUEST_TIMEOUT = 130.0
"""The server answers within 110 s."""

AGAIN = frozenset({0, 200, 408, 425, 429, 502, 503, 504})
"""These are tried again: no answer, an answer that is not the server's, and those of a server that is busy or away."""


@dataclass
class Scores:
    """What a call answered, in the order of its items. A reward is None where no judge has given one; never 0."""

    rewards: list[float | None]
    data: list[dict[str, Any]] = field(repr=False)
    status: str = "ACTIVE"
    spent_usd: float = 0.0


@dataclass(frozen=True)
class Send:
    """Send this body to the session's score route, within so many seconds."""

    body: dict[str, Any]
    timeout: float


@dataclass(frozen=True)
class Wait:
    """Wait for so many seconds."""

    seconds: float


@dataclass(frozen=True)
class Answer:
    """What came back. Status 0: nothing did, and the error says why."""

    status: int
    body: dict[str, Any]
    retry_after: float | None = None

    @property
    def error(self) -> dict[str, Any]:
        """The error of the envelope."""
        found = self.body.get("error")
        return found if isinstance(found, dict) else {"message": str(found or self.body)}


Moves = Send | Wait


def scoring(
    items: Sequence[Item], step: str, total: float, clock: Callable[[], float]
) -> Generator[Moves, Answer | None, Scores]:
    """Score items within `total` seconds. What the server is still judging then is None."""
    deadline = clock() + total
    ids = [item.id for item in items]
    bodies = {item_id: item.body(item_id) for item_id, item in zip(ids, items, strict=True)}  # each content once
    found: dict[str, dict[str, Any]] = {}
    result = Scores([], [])
    unique = list(bodies)
    for first in range(0, len(unique), MOST_ITEMS):
        chunk = {item_id: bodies[item_id] for item_id in unique[first : first + MOST_ITEMS]}
        yield from _score(chunk, step, deadline, clock, found, result)
        if result.status != "ACTIVE" or clock() >= deadline:
            break  # the rest is not scored, and what is scored is answered
    result.data = [found.get(i, {"id": i, "reward": None, "flags": ["not_scored"]}) for i in ids]
    result.rewards = [data["reward"] for data in result.data]
    return result


def _score(
    chunk: dict[str, dict[str, Any]],
    step: str,
    deadline: float,
    clock: Callable[[], float],
    found: dict[str, dict[str, Any]],
    result: Scores,
) -> Generator[Moves, Answer | None, None]:
    """Score a chunk. It is sent again while the server is busy, and what is pending while the server is judging."""
    tries = 0
    while chunk:
        body = {"step": step, "items": list(chunk.values())}
        answer = yield Send(body, max(1.0, min(REQUEST_TIMEOUT, deadline - clock())))
        assert answer is not None
        scored = answer.status == 200 and "data" in answer.body
        if scored:
            read(answer.body, list(chunk), found, result)
            waiting = {i: item for i, item in chunk.items() if "pending" in found[i].get("flags", [])}
            tries = tries if len(waiting) == len(chunk) else 0
            chunk = waiting
        elif answer.status not in AGAIN:
            raise refusal(answer)
        pause = delay(tries, answer.retry_after)
        tries += 1
        if not chunk or result.status != "ACTIVE":
            return
        if clock() + pause >= deadline:
            if scored:
                return
            raise ServerUnavailable(f"no scores in time: {answer.status} {answer.error['message']}")
        yield Wait(pause)


def read(body: dict[str, Any], chunk: list[str], found: dict[str, dict[str, Any]], result: Scores) -> None:
    """Read the answer to a chunk. A held session raises: its rewards are not to be trained on."""
    result.status, result.spent_usd = body["status"], body["spent_usd"]
    if body.get("held"):
        raise RewardHeld("the anchor does not confirm the rewards")
    if len(body["data"]) != len(chunk):
        raise ServerUnavailable(f"{len(chunk)} items were sent, and {len(body['data'])} came back")
    found.update(zip(chunk, body["data"], strict=True))


def refusal(answer: Answer) -> Refused | RewardHeld | SessionEnded:
    """The error that an answer means."""
    code, message = answer.error.get("code"), answer.error["message"]
    if code == "anchor_held":
        return RewardHeld(message)
    if code == "session_overbudget":
        return SessionEnded("OVERBUDGET", message)
    if code == "session_not_active":
        return SessionEnded("ENDED", message)
    return Refused(answer.status, code, message)


def delay(tries: int, retry_after: float | None) -> float:
    """How long to wait after so many failures: what the server asks for, and a random time that doubles, up to 30 s, so
    that many workers do not come back at once."""
    return (retry_after or 0.0) + random.uniform(0.1, 0.5) * min(2.0**tries, 60.0)
