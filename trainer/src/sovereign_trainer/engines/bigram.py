"""A language model over bytes that knows the byte before: a table of logits, trained with Adam, in plain Python.

Everything it does is deterministic, and its state can be written and read without losing a bit.
"""

from __future__ import annotations

import bisect
import itertools
import math
import pathlib
import random
import sys
from array import array
from collections.abc import Iterable, Iterator
from typing import TypeAlias

END = 256  # ends an answer; before the first byte it is what came before
SIZE = 257
Pair = tuple[int, int]  # the byte before, and the byte
Table: TypeAlias = "list[array[float]]"  # Python 3.11 cannot evaluate it

BETAS, EPSILON = (0.9, 0.999), 1e-8


def pairs(before: int, target: bytes, end: bool) -> list[Pair]:
    """What there is to predict in a text."""
    text = [*target, END] if end else list(target)
    return list(zip([before, *text], text, strict=False))


def zeros() -> Table:
    """A table of zeros."""
    return [array("d", bytes(8 * SIZE)) for _ in range(SIZE)]


def write(path: pathlib.Path, *tables: Table) -> None:
    """Write tables as doubles, little-endian."""
    with path.open("wb") as file:
        for table in tables:
            for row in table:
                kept = array("d", row)
                if sys.byteorder == "big":
                    kept.byteswap()
                file.write(kept.tobytes())


def read(path: pathlib.Path, count: int) -> list[Table]:
    """Read tables that write has written. It raises ValueError for a file of another length."""
    if path.stat().st_size != count * SIZE * SIZE * 8:
        raise ValueError(f"{path.name} has {path.stat().st_size} bytes")
    found = []
    with path.open("rb") as file:
        for _ in range(count):
            table = []
            for _ in range(SIZE):
                row = array("d", file.read(8 * SIZE))
                if sys.byteorder == "big":
                    row.byteswap()
                table.append(row)
            found.append(table)
    return found


class Bigram:
    """The model. Rows of log-probabilities are kept until a step changes them."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._known: dict[int, list[float]] = {}
        self._sums: dict[int, dict[float, list[float]]] = {}  # by temperature

    @classmethod
    def base(cls, seed: str = "tiny/bigram") -> Bigram:
        """The base model: the same for everyone, and it knows nothing."""
        rng = random.Random(seed)
        return cls([array("d", [rng.uniform(-0.05, 0.05) for _ in range(SIZE)]) for _ in range(SIZE)])

    def row(self, before: int) -> list[float]:
        """The log-probabilities of every byte after one."""
        found = self._known.get(before)
        if found is None:
            logits = self.table[before]
            top = max(logits)
            scale = top + math.log(math.fsum(math.exp(x - top) for x in logits))
            found = self._known[before] = [x - scale for x in logits]
        return found

    def score(self, text: Iterable[Pair]) -> float:
        """The log-probability of a text."""
        return math.fsum(self.row(before)[byte] for before, byte in text)

    def sample(self, rng: random.Random, before: int, most: int, heat: float = 1.0) -> bytes:
        """Write up to so many bytes, or to the end that the model chooses. `heat` is the temperature."""
        return bytes(itertools.islice(self.stream(rng, before, heat), most))

    def stream(self, rng: random.Random, before: int, heat: float = 1.0) -> Iterator[int]:
        """Write bytes until the end that the model chooses. At a temperature of 0, the likeliest one is next."""
        while True:
            byte = self.following(rng, before, heat)
            if byte == END:
                return
            yield byte
            before = byte

    def following(self, rng: random.Random, before: int, heat: float) -> int:
        """The byte after one, or END."""
        row = self.row(before)
        if heat == 0:
            return row.index(max(row))
        kept = self._sums.setdefault(before, {})
        sums = kept.get(heat)
        if sums is None:
            top = max(row)
            sums = kept[heat] = list(itertools.accumulate(math.exp((one - top) / heat) for one in row))
        return min(bisect.bisect_right(sums, rng.random() * sums[-1]), END)

    def forget(self, before: int) -> None:
        """The row has changed."""
        self._known.pop(before, None)
        self._sums.pop(before, None)


class Adam:
    """Adam on the rows that a step touches."""

    def __init__(self, model: Bigram, moments: list[Table] | None = None) -> None:
        self.model = model
        self.first, self.second = moments or [zeros(), zeros()]

    def ascend(self, weights: dict[Pair, float], step: int, rate: float, decay: float = 0.0) -> float:
        """Raise the sum of the log-probabilities by their weights. It returns the length of the gradient.

        The gradient of a row is the weights of its bytes, less the probabilities by their sum.
        """
        rows: dict[int, dict[int, float]] = {}
        for (before, byte), weight in weights.items():
            rows.setdefault(before, {})[byte] = weight
        length = 0.0
        one, two = 1 - BETAS[0] ** step, 1 - BETAS[1] ** step
        for before in sorted(rows):
            wanted = rows[before]
            total = math.fsum(wanted.values())
            gradient = [-total * math.exp(chance) for chance in self.model.row(before)]
            for byte, weight in wanted.items():
                gradient[byte] += weight
            length += math.fsum(g * g for g in gradient)
            self._move(before, gradient, rate, (one, two), decay)
        return math.sqrt(length)

    def _move(
        self, before: int, gradient: list[float], rate: float, corrections: tuple[float, float], decay: float
    ) -> None:
        table, first, second = self.model.table[before], self.first[before], self.second[before]
        (a, b), (one, two) = BETAS, corrections
        for i, g in enumerate(gradient):
            m = first[i] = a * first[i] + (1 - a) * g
            v = second[i] = b * second[i] + (1 - b) * g * g
            table[i] += rate * (m / one / (math.sqrt(v / two) + EPSILON) - decay * table[i])
        self.model.forget(before)
