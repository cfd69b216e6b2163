"""How fast answers come by two ways to the same engine: alone, and through the server."""

from __future__ import annotations

import http.client
import json
import re
import statistics
import threading
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

TEXT = re.compile(rb'"content": ?"[^"]')
WAIT = 900.0  # a bound on an answer; no promise


@dataclass(frozen=True)
class Route:
    """A way to a model."""

    url: str  # of an OpenAI-compatible API, with /v1
    model: str
    key: str = ""


@dataclass
class Answer:
    """What came back."""

    text: str
    tokens: int
    first: float  # seconds until the first text; all of it, where nothing is streamed
    whole: float


class Caller:
    """A connection that asks one question after the other. It does as little as it can: its time counts too."""

    def __init__(self, route: Route) -> None:
        self.route = route
        self._url = urllib.parse.urlsplit(route.url)
        self._connection = http.client.HTTPConnection(self._url.netloc, timeout=WAIT)
        self._headers = {"Content-Type": "application/json"}
        if route.key:
            self._headers["Authorization"] = f"Bearer {route.key}"

    def ask(self, prompt: str, tokens: int, stream: bool) -> Answer:
        """Ask for an answer of at most so many tokens, the likeliest one."""
        body: dict[str, Any] = {
            "model": self.route.model, "messages": [{"role": "user", "content": prompt}], "max_tokens": tokens,
            "temperature": 0,
        }  # fmt: skip
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        began = time.perf_counter()
        self._connection.request("POST", self._url.path + "/chat/completions", json.dumps(body), self._headers)
        response = self._connection.getresponse()
        if response.status != 200:
            raise RuntimeError(f"{self.route.url}: {response.status} {response.read().decode()}")
        if stream:
            return self._streamed(response, began)
        found = json.loads(response.read())
        took = time.perf_counter() - began
        usage = found["usage"]["completion_tokens"]
        return Answer(found["choices"][0]["message"]["content"], usage, took, took)

    @staticmethod
    def _streamed(response: http.client.HTTPResponse, began: float) -> Answer:
        lines, first = [], 0.0
        while line := response.readline():
            if line.startswith(b"data: {"):
                lines.append(line)
                if not first and TEXT.search(line):
                    first = time.perf_counter() - began
        took = time.perf_counter() - began
        chunks = [json.loads(line[6:]) for line in lines]
        text = "".join(one["choices"][0]["delta"].get("content") or "" for one in chunks if one["choices"])
        used = [one["usage"] for one in chunks if one.get("usage")]
        if not used:
            raise RuntimeError(f"the stream has no usage: {chunks[-1:]}")
        return Answer(text, used[-1]["completion_tokens"], first or took, took)

    def connect(self) -> None:
        """Connect anew: engines close a connection that is not used for some seconds."""
        self._connection.close()
        self._connection.connect()

    def close(self) -> None:
        self._connection.close()


@dataclass
class Load:
    """What is asked in a round."""

    at_once: int
    each: int  # answers of each caller
    tokens: int  # of each answer
    stream: bool

    def __str__(self) -> str:
        return f"{self.at_once} at once, {'streamed' if self.stream else 'whole'}"


@dataclass
class Round:
    """What a round by one way took."""

    tokens: int
    seconds: float
    first: float

    @property
    def per_token(self) -> float:
        return self.seconds / self.tokens


def ask_all(callers: list[Caller], load: Load) -> Round:
    """One round by one way. All callers begin at once, with the same questions in every round."""
    answers: list[Answer] = []
    failed: list[Exception] = []
    ready = threading.Barrier(len(callers) + 1)
    for caller in callers:
        caller.connect()

    def work(number: int) -> None:
        ready.wait()
        try:
            for i in range(load.each):
                answers.append(callers[number].ask(f"Write some letters: {number}, {i}.", load.tokens, load.stream))
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(callers))]
    for thread in threads:
        thread.start()
    ready.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    if failed:
        raise failed[0]
    return Round(sum(one.tokens for one in answers), took, statistics.median(one.first for one in answers))


def compare(alone: Route, server: Route, load: Load, rounds: int, show: Callable[[str], None]) -> dict[str, Any]:
    """Ask by both ways in turns. Each pair of rounds gives an overhead: how much longer a token takes."""
    ways = {"alone": alone, "server": server}
    callers = {name: [Caller(way) for _ in range(load.at_once)] for name, way in ways.items()}
    found: dict[str, list[Round]] = {name: [] for name in ways}
    for name in ways:
        ask_all(callers[name], load)  # warm
    for number in range(rounds):
        for name in sorted(ways, reverse=bool(number % 2)):
            found[name].append(ask_all(callers[name], load))
    for all_of_them in callers.values():
        for caller in all_of_them:
            caller.close()
    pairs = zip(found["alone"], found["server"], strict=True)
    over = sorted(100 * (b.per_token / a.per_token - 1) for a, b in pairs)
    low, middle, high = statistics.quantiles(over, n=4) if rounds > 1 else over * 3
    speeds = {name: sum(r.tokens for r in all_) / sum(r.seconds for r in all_) for name, all_ in found.items()}
    firsts = {name: 1000 * statistics.median(r.first for r in all_) for name, all_ in found.items()}
    show(
        f"{load}: {speeds['alone']:.0f} tokens/s alone, {speeds['server']:.0f} through the server; a token takes "
        f"{middle:+.2f} % longer (median of {rounds} pairs, half of them between {low:+.2f} and {high:+.2f}); "
        f"first text after {firsts['alone']:.1f} and {firsts['server']:.1f} ms"
    )
    return {
        "load": str(load), "tokens_per_second": speeds, "overhead_percent": middle, "quartiles": [low, high],
        "first_ms": firsts, "pairs": over,
    }  # fmt: skip
