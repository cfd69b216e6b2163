"""The method `sample` of the engine `small`: a model answers prompts. A step is a prompt.

What is written follows from the model, the seed, the prompt's id and the number of the sample alone.
"""

from __future__ import annotations

import json
import pathlib
import random
from typing import Any

from .. import data
from ..engine import Context, Job
from ..errors import Failure
from .grpo import BEFORE, size
from .tasks import start, whole, write_json

SAMPLES = "samples.jsonl"


def prompts(job: Job) -> list[tuple[str, list[data.Row]]]:
    """The prompts of a run, by their ids."""
    found: dict[str, list[data.Row]] = {}
    for where, row in data.rows(job.inputs["prompts.jsonl"]):
        name = row.get("id")
        if not isinstance(name, str) or not name or name in found:
            raise data.invalid(where, "has no id of its own")
        found[name] = data.messages(where, row, "messages")
    if not found:
        raise Failure("invalid_data", "prompts.jsonl has no rows")
    return list(found.items())


class Sampling:
    """A run, from the start or from a checkpoint."""

    def __init__(self, job: Job, context: Context) -> None:
        self.job, self.context = job, context
        self.load()
        self.prompts = prompts(job)
        self.count = int(job.hyperparameters.get("samples_per_prompt") or 1)
        self.heat = float(job.hyperparameters.get("temperature") or 1.0)
        self.longest = int(job.hyperparameters.get("max_completion_tokens") or 256)
        self.total = len(self.prompts)
        self.save_every = int(job.spec.get("checkpoint_every") or 0) or self.total
        self.step, self.tokens = 0, 0
        self.lines: list[str] = []
        if job.resume:
            self.resume(pathlib.Path(job.resume))

    def run(self) -> None:
        """Sample to the end, or until it is told to stop."""
        self.context.progress(self.step, self.total, self.tokens)
        while self.step < self.total:
            self.answer(*self.prompts[self.step])
            self.step += 1
            last = self.step == self.total
            if last or self.context.stop_wanted or self.step % self.save_every == 0:
                self.save()
            self.context.progress(self.step, self.total, self.tokens)
            if self.context.stop_wanted and not last:
                self.context.stopped(self.step, self.tokens)
                return
        self.context.done(self.step, self.tokens)

    def load(self) -> None:
        """Load the model."""
        self.model: Any = start(self.job)

    def answer(self, name: str, prompt: list[data.Row]) -> None:
        """Answer a prompt."""
        seed = self.job.spec.get("seed") or 0
        dice = [random.Random(f"{seed}/{name}/{index}") for index in range(self.count)]
        for index, text in enumerate(self.written(name, prompt, dice)):
            self.lines.append(line(name, index, text))

    def written(self, name: str, prompt: list[data.Row], dice: list[random.Random]) -> list[str]:
        """The answers to a prompt, each by dice of its own."""
        found = [self.model.sample(rng, BEFORE, self.longest, self.heat) for rng in dice]
        self.tokens += size(prompt) * len(found) + sum(map(len, found))
        return [text.decode("utf-8", "replace") for text in found]

    def save(self) -> None:
        """Write a checkpoint: all samples so far."""
        folder = pathlib.Path(self.job.folder) / f"checkpoint-{self.step}"
        with whole(folder) as torn:
            (torn / SAMPLES).write_text("".join(self.lines), encoding="utf-8")
            write_json(torn / "state" / "trainer.json", {"method": "sample", "step": self.step, "tokens": self.tokens})
        self.context.checkpoint(self.step, folder, {})

    def resume(self, folder: pathlib.Path) -> None:
        """Go on from a checkpoint."""
        self.lines, self.step, self.tokens = resumed(folder, self.count)


def line(name: str, index: int, content: str) -> str:
    """A sample as a line."""
    return json.dumps({"prompt_id": name, "index": index, "content": content}) + "\n"


def resumed(folder: pathlib.Path, count: int) -> tuple[list[str], int, int]:
    """What a checkpoint has: the lines of the samples, and how many prompts and tokens they are of."""
    try:
        kept = json.loads((folder / "state" / "trainer.json").read_text())
        lines = (folder / SAMPLES).read_text(encoding="utf-8").splitlines(keepends=True)
        if kept["method"] != "sample" or len(lines) != kept["step"] * count:
            raise ValueError(f"it has {len(lines)} samples")
        return lines, kept["step"], kept["tokens"]
    except (OSError, ValueError, KeyError) as error:
        raise Failure("invalid_checkpoint", f"the checkpoint cannot be read: {error}") from None
