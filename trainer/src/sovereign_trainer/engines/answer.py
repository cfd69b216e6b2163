"""Answers of a bigram model to requests of OpenAI's API."""

from __future__ import annotations

import codecs
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .. import data
from ..errors import Failure
from .bigram import Bigram
from .grpo import BEFORE, size

CONTEXT = 1024


@dataclass(frozen=True)
class Wanted:
    """What a request asks for."""

    prompt: int  # tokens
    most: int
    heat: float
    stops: tuple[str, ...]
    seed: int | None

    @classmethod
    def of(cls, asked: dict[str, Any]) -> Wanted:
        """Read a request. It raises ValueError for what it cannot do."""
        try:
            prompt = size(data.messages("the request", asked, "messages"))
        except Failure as failure:
            raise ValueError(str(failure)) from None
        most = asked.get("max_completion_tokens") or asked.get("max_tokens") or 256
        heat = asked.get("temperature")
        heat = 1.0 if heat is None else heat
        stops = asked.get("stop") or []
        stops = [stops] if isinstance(stops, str) else stops
        seed = asked.get("seed")
        if (asked.get("n") or 1) != 1:
            raise ValueError("n must be 1")
        if not isinstance(most, int) or not 1 <= most <= CONTEXT:
            raise ValueError(f"max_tokens must be 1 to {CONTEXT}")
        if not isinstance(heat, (int, float)) or not 0 <= heat <= 2:
            raise ValueError("temperature must be 0 to 2")
        if not isinstance(stops, list) or not all(isinstance(stop, str) and stop for stop in stops):
            raise ValueError("stop must be a text or a list of texts")
        if seed is not None and not isinstance(seed, int):
            raise ValueError("seed must be a whole number")
        return cls(prompt, most, float(heat), tuple(stops), seed)


class Writer:
    """Writes an answer: iterate over its texts, and then ask for the reason of its end and its usage."""

    def __init__(self, model: Bigram, wanted: Wanted, pace: float = 0.0) -> None:
        self.model, self.wanted, self.pace = model, wanted, pace
        self.written = 0  # tokens
        self.reason = "length"

    def __iter__(self) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        held = ""  # what may be the beginning of a stop
        source = self.model.stream(random.Random(self.wanted.seed), BEFORE, self.wanted.heat)
        while self.written < self.wanted.most:
            byte = next(source, None)
            if byte is None:
                self.reason = "stop"
                break
            self.written += 1
            if self.pace:
                time.sleep(self.pace)
            held += decoder.decode(bytes([byte]))
            if (at := self.stopped(held)) is not None:
                self.reason = "stop"
                if held[:at]:
                    yield held[:at]
                return
            if sure := len(held) - self.beginning(held):
                yield held[:sure]
                held = held[sure:]
        if held := held + decoder.decode(b"", True):
            yield held

    def stopped(self, text: str) -> int | None:
        """Where the first stop begins in a text."""
        found = [at for stop in self.wanted.stops if (at := text.find(stop)) >= 0]
        return min(found, default=None)

    def beginning(self, text: str) -> int:
        """How many characters at the end of a text may be the beginning of a stop."""
        lengths = (n for stop in self.wanted.stops for n in range(1, len(stop)) if text.endswith(stop[:n]))
        return max(lengths, default=0)

    def usage(self) -> dict[str, int]:
        """The tokens of the prompt and the answer."""
        prompt = self.wanted.prompt
        return {"prompt_tokens": prompt, "completion_tokens": self.written, "total_tokens": prompt + self.written}
