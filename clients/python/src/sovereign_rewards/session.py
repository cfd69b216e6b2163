"""A reward session of a server."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import time
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from .errors import Refused, RewardHeld, ServerUnavailable, SessionEnded
from .item import Item
from .scoring import Answer, Scores, Send, Wait, refusal, scoring

SCORE_TIMEOUT = 600.0


class Session:
    """One session: it scores, and shows its state. Threads and event loops may share it.

    `timeout` bounds a call of `score` in seconds, all of its retries together.
    """

    def __init__(
        self,
        session_id: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float = SCORE_TIMEOUT,
    ) -> None:
        self.id = session_id
        self.timeout = timeout
        self._base_url = (base_url or _setting("SOVEREIGN_BASE_URL")).rstrip("/").removesuffix("/v1")
        self._headers = {"Authorization": f"Bearer {api_key or _setting('SOVEREIGN_API_KEY')}"}
        self._tls = ssl.create_default_context()
        self._client = httpx.Client(**self._options())
        self._clients: dict[asyncio.AbstractEventLoop, httpx.AsyncClient] = {}

    @classmethod
    def attach(cls, session_id: str | None = None, **options: Any) -> Session:
        """The session with this id, or that of the environment variable SOVEREIGN_SESSION."""
        return cls(session_id or _setting("SOVEREIGN_SESSION"), **options)

    @classmethod
    def create(
        cls,
        criterion: str | None = None,
        *,
        budget_usd: float,
        label: str = "",
        reward: Mapping[str, Any] | None = None,
        anchor: str | Mapping[str, Any] | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float = SCORE_TIMEOUT,
        **fields: Any,
    ) -> Session:
        """Make a session whose judge is a criterion (`crit_…`), or whose judges the object `reward` names. `anchor` is
        the criterion of the anchor, or the whole object. Other fields are sent as they are: `agentic`, `tasks`, …"""
        if (criterion is None) == (reward is None):
            raise ValueError("say which judge: a criterion, or reward={...}, and not both")
        session = cls("", base_url=base_url, api_key=api_key, timeout=timeout)
        body: dict[str, Any] = {
            "label": label,
            "budget_usd": budget_usd,
            "reward": dict(reward) if reward is not None else {"mode": "single", "criterionId": criterion},
            **fields,
        }
        if anchor is not None:
            body["anchor"] = {"criterion_id": anchor} if isinstance(anchor, str) else dict(anchor)
        session.id = session._call("POST", "/v1/reward/sessions", body)["id"]
        return session

    def score(self, items: Sequence[Item], step: int | str, *, timeout: float | None = None) -> Scores:
        """Score items, in their order. It raises RewardHeld or SessionEnded when the run must stop."""
        work = scoring(items, str(step), timeout or self.timeout, time.monotonic)
        answer: Answer | None = None
        try:
            while True:
                match work.send(answer):
                    case Wait(seconds):
                        time.sleep(seconds)
                        answer = None
                    case Send(body, limit):
                        answer = self._send(body, limit)
        except StopIteration as done:
            scores: Scores = done.value
            return scores
        except (RewardHeld, SessionEnded) as error:
            raise self._explained(error) from None

    async def ascore(self, items: Sequence[Item], step: int | str, *, timeout: float | None = None) -> Scores:
        """Like score, without blocking the event loop."""
        work = scoring(items, str(step), timeout or self.timeout, time.monotonic)
        answer: Answer | None = None
        try:
            while True:
                match work.send(answer):
                    case Wait(seconds):
                        await asyncio.sleep(seconds)
                        answer = None
                    case Send(body, limit):
                        answer = await self._asend(body, limit)
        except StopIteration as done:
            scores: Scores = done.value
            return scores
        except (RewardHeld, SessionEnded) as error:
            raise await asyncio.to_thread(self._explained, error) from None

    def state(self) -> dict[str, Any]:
        """The session as the API shows it: status, budget, spend, certificates, anchor."""
        return self._call("GET", f"/v1/reward/sessions/{self.id}")

    def anchor(self) -> dict[str, Any]:
        """What the anchor has found so far: held, held_reason, pinned_step, checks, history."""
        return self._call("GET", f"/v1/reward/sessions/{self.id}/anchor")

    def check(self, step: int | str) -> dict[str, Any]:
        """Have the anchor check a step now."""
        return self._call("POST", f"/v1/reward/sessions/{self.id}/anchor/checks", {"step": str(step)})

    def release(self, note: str) -> dict[str, Any]:
        """Let a held session score again. The note is kept in the audit trail."""
        return self._call("POST", f"/v1/reward/sessions/{self.id}/anchor/release", {"note": note})

    def complete(self) -> dict[str, Any]:
        """End the session: the run is done. What is left of its budget goes back to the wallet."""
        return self._call("POST", f"/v1/reward/sessions/{self.id}/complete")

    def stop(self) -> dict[str, Any]:
        """Stop scoring at once. What is left of the budget goes back to the wallet."""
        return self._call("DELETE", f"/v1/reward/sessions/{self.id}")

    def __reduce__(self) -> tuple[Any, ...]:
        """A session that is sent to a worker opens its own connections there."""
        key = self._headers["Authorization"].removeprefix("Bearer ")
        return _opened, (self.id, self._base_url, key, self.timeout)

    def _options(self) -> dict[str, Any]:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        return {"base_url": self._base_url, "headers": self._headers, "verify": self._tls, "limits": limits}

    def _explained(self, error: RewardHeld | SessionEnded) -> RewardHeld | SessionEnded:
        """The error with what the session's state says of it, where that can be read."""
        try:
            now = self.state()
        except (Refused, ServerUnavailable):
            return error
        if isinstance(error, RewardHeld):
            anchor = now["anchor"]
            return RewardHeld(anchor.get("held_reason") or error.reason, anchor.get("pinned_step"))
        return SessionEnded(now["status"], now.get("reason") or error.reason)

    def _send(self, body: dict[str, Any], limit: float) -> Answer:
        try:
            return _read(self._client.post(f"/v1/reward/sessions/{self.id}/score", json=body, timeout=limit))
        except httpx.TransportError as error:
            return _nothing(error)

    async def _asend(self, body: dict[str, Any], limit: float) -> Answer:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client = httpx.AsyncClient(**self._options())
            kept = {one: its for one, its in self._clients.items() if not one.is_closed()}
            self._clients = {**kept, loop: client}
        try:
            return _read(await client.post(f"/v1/reward/sessions/{self.id}/score", json=body, timeout=limit))
        except httpx.TransportError as error:
            return _nothing(error)

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        try:
            answer = _read(self._client.request(method, path, json=body, timeout=60.0))
        except httpx.TransportError as error:
            raise ServerUnavailable(f"{method} {path}: {type(error).__name__} {error}") from None
        if answer.status >= 300:
            raise refusal(answer)
        return answer.body


def _read(response: httpx.Response) -> Answer:
    """The answer as the state machine reads it. A page that is no JSON, as of a proxy, has no error of ours."""
    try:
        body = response.json()
    except (json.JSONDecodeError, UnicodeDecodeError):
        body = {"error": {"message": response.text[:200]}}
    try:
        retry_after = float(response.headers["Retry-After"])
    except (KeyError, ValueError):
        retry_after = None
    if not isinstance(body, dict):
        body = {"error": {"message": "no object"}}
    return Answer(response.status_code, body, retry_after)


def _nothing(error: httpx.TransportError) -> Answer:
    return Answer(0, {"error": {"message": f"{type(error).__name__} {error}"}})


def _opened(session_id: str, base_url: str, api_key: str, timeout: float) -> Session:
    return Session(session_id, base_url=base_url, api_key=api_key, timeout=timeout)


def _setting(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise ValueError(f"give it to the session, or set the environment variable {name}")
    return value
