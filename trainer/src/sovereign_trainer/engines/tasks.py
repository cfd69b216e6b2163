"""What the engine `small` does in a step of SFT and DPO."""

from __future__ import annotations

import contextlib
import json
import math
import os
import pathlib
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .. import data
from ..engine import Context, Job
from ..errors import Failure
from .bigram import Bigram, Pair, pairs, read


def start(job: Job) -> Bigram:
    """The model that a run begins with: the version that it was given, or the base model."""
    if not any(name.startswith("model/") for name in job.inputs):
        return Bigram.base()
    try:
        (table,) = read(pathlib.Path(job.inputs["model/model.bin"]), 1)
    except (KeyError, ValueError) as error:
        raise Failure("invalid_model", f"the model version cannot be read: {error}") from None
    return Bigram(table)


@contextlib.contextmanager
def whole(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """A folder to write a checkpoint into. It gets its name when it is complete."""
    torn = folder.with_suffix(".torn")
    shutil.rmtree(torn, ignore_errors=True)
    (torn / "state").mkdir(parents=True)
    yield torn
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(torn, folder)


def write_json(path: pathlib.Path, what: Any) -> None:
    path.write_text(json.dumps(what, sort_keys=True, indent=1) + "\n")


@dataclass(frozen=True)
class Text:
    """What an example teaches to predict, and how many tokens it has with its prompt."""

    pairs: list[Pair]
    tokens: int


@dataclass
class Result:
    """A step: the weight of every pair, and figures."""

    weights: dict[Pair, float]
    tokens: int
    data: dict[str, float]


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


class Task:
    """What a method does: `step` with a batch, `evaluate` on other rows."""

    file = "train.jsonl"

    def __init__(self, job: Job, context: Context, model: Bigram) -> None:
        self.job, self.context, self.model = job, context, model
        self.settings = job.hyperparameters
        self.rows = self.read(self.file)
        self.held = self.read("validation.jsonl") if "validation.jsonl" in job.inputs else []
        if not self.rows:
            raise Failure("invalid_data", f"{self.file} has no rows")
        self.batch = int(self.settings.get("batch_size") or 8) * int(self.settings.get("gradient_accumulation") or 1)

    def total(self) -> int:
        """How many steps there are."""
        epochs = float(self.settings.get("epochs") or 1)
        found = max(1, math.ceil(epochs * math.ceil(len(self.rows) / self.batch)))
        return min(found, int(self.settings.get("max_steps") or found))

    def read(self, name: str) -> list[Any]:
        longest = int(self.settings.get("max_length") or 1024)
        return [self.parse(where, row, longest) for where, row in data.rows(self.job.inputs[name])]

    def parse(self, where: str, row: data.Row, longest: int) -> Any:
        raise NotImplementedError

    def step(self, number: int, batch: list[Any]) -> Result:
        raise NotImplementedError

    def evaluate(self) -> dict[str, float]:
        """Figures on the held-out rows, without learning from them."""
        if not self.held:
            return {}
        return {f"eval_{name}": value for name, value in self.step(0, self.held).data.items()}


class SFT(Task):
    """Predict the assistant's messages."""

    def parse(self, where: str, row: data.Row, longest: int) -> Text:
        found: list[Pair] = []
        tokens = 0
        for message in data.conversation(where, row):
            head, body = f"{message['role']}: ".encode(), message["content"].encode()
            if message["role"] == "assistant":
                found += pairs(head[-1], body, end=True)[: max(0, longest - tokens - len(head))]
            tokens += len(head) + len(body) + 1
        return Text(found, min(tokens, longest))

    def step(self, number: int, batch: list[Text]) -> Result:
        count = sum(len(text.pairs) for text in batch)
        if not count:
            raise Failure("invalid_data", "a batch has nothing to learn within max_length")
        weights: dict[Pair, float] = {}
        for text in batch:
            for pair in text.pairs:
                weights[pair] = weights.get(pair, 0.0) + 1 / count
        loss = -math.fsum(weight * self.model.row(before)[byte] for (before, byte), weight in weights.items())
        return Result(weights, sum(text.tokens for text in batch), {"loss": loss})


class DPO(Task):
    """Prefer the chosen answer, against the frozen model that the run began with."""

    def __init__(self, job: Job, context: Context, model: Bigram) -> None:
        self.reference = start(job)
        super().__init__(job, context, model)
        self.beta = float(self.settings.get("beta") or 0.1)

    def parse(self, where: str, row: data.Row, longest: int) -> tuple[Text, Text]:
        prompt, *answers = data.preference(where, row)
        asked = sum(len(message["content"].encode()) + 1 for message in prompt)
        chosen, rejected = ("".join(message["content"] for message in one).encode() for one in answers)
        room = max(1, longest - asked)
        return tuple(Text(pairs(ord(" "), a, True)[:room], asked + len(a) + 1) for a in (chosen, rejected))  # type: ignore[return-value]

    def step(self, number: int, batch: list[tuple[Text, Text]]) -> Result:
        weights: dict[Pair, float] = {}
        losses, chosen, rejected = [], [], []
        for good, bad in batch:
            up, down = (
                self.beta * (self.model.score(text.pairs) - self.reference.score(text.pairs)) for text in (good, bad)
            )
            margin = up - down
            losses.append(math.log1p(math.exp(-abs(margin))) + max(0.0, -margin))
            chosen.append(up)
            rejected.append(down)
            force = self.beta / (1 + math.exp(min(margin, 700.0))) / len(batch)
            for text, weight in ((good, force), (bad, -force)):
                for pair in text.pairs:
                    weights[pair] = weights.get(pair, 0.0) + weight
        figures = {
            "loss": mean(losses),
            "rewards/chosen": mean(chosen),
            "rewards/rejected": mean(rejected),
            "rewards/margins": mean(chosen) - mean(rejected),
            "rewards/accuracies": mean([float(a > b) for a, b in zip(chosen, rejected, strict=True)]),
        }
        return Result(weights, sum(good.tokens + bad.tokens for good, bad in batch), figures)
