"""What people see: a line per event, and on a terminal a bar that moves."""

from __future__ import annotations

import sys
import time
from typing import TextIO

BAR = 24
EVERY = 2.0
"""Seconds between two lines of figures where there is no terminal."""


class Display:
    """Prints for one worker. `name` is of the run that it trains."""

    def __init__(self, out: TextIO | None = None) -> None:
        self.out = out or sys.stdout
        self.terminal = self.out.isatty()
        self.begin("")

    def begin(self, name: str) -> None:
        """Another run follows."""
        self.name = name
        self.loss: float | None = None
        self.at = (0, 0, 0)  # step, total steps, tokens
        self.first: tuple[float, int, int] | None = None  # time, step and tokens when it began
        self.shown = 0.0

    def line(self, text: str) -> None:
        """An event."""
        self._clear()
        name = f"{self.name}: " if self.name else ""
        self._write(f"{time.strftime('%H:%M:%S')} {name}{text}\n")
        self._bar()

    def metrics(self, step: int, tokens: int, data: dict[str, float]) -> None:
        """Figures of a step."""
        self.loss = data.get("loss", data.get("reward", self.loss))

    def progress(self, step: int, total: int, tokens: int) -> None:
        """How far it is."""
        now = time.monotonic()
        self.at = (step, total, tokens)
        if self.first is None:
            self.first = (now, step, tokens)
        if self.terminal:
            if now - self.shown > 0.1 or step == total:
                self.shown = now
                self._bar()
        elif now - self.shown > EVERY:
            self.shown = now
            self.line(self.figures(now))

    def figures(self, now: float) -> str:
        """Step, loss, speed and the time that is left."""
        step, total, tokens = self.at
        parts = [f"step {step}/{total or '?'}"]
        if self.loss is not None:
            parts.append(f"loss {self.loss:.4f}")
        if self.first and now > self.first[0] and step > self.first[1]:
            passed = now - self.first[0]
            parts.append(f"{(tokens - self.first[2]) / passed:,.0f} tokens/s")
            left = (total - step) * passed / (step - self.first[1])
            parts.append(f"ETA {duration(left)}")
        return "  ".join(parts)

    def end(self) -> None:
        """The bar is done."""
        self._clear()
        self.at = (0, 0, 0)

    def _bar(self) -> None:
        step, total, _ = self.at
        if self.terminal and total:
            full = BAR * min(step, total) // total
            self._write(f"\r\x1b[K[{'█' * full}{'░' * (BAR - full)}] {self.figures(time.monotonic())}")

    def _clear(self) -> None:
        if self.terminal:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        self.out.write(text)
        self.out.flush()


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
