"""GRPO of the engine `small`: groups of answers to one prompt, which the run's reward session scores."""

from __future__ import annotations

import math
import random
from typing import Any

from .. import data, rewards
from ..engine import Context, Job
from .bigram import Bigram, pairs
from .tasks import Result, Task, mean, start

BEFORE = ord(" ")
"""What stands before an answer. The model knows one byte, and so nothing of its prompt."""


class GRPO(Task):
    """Raise the reward of what the model writes, without moving far from the model that the run began with."""

    file = "prompts.jsonl"

    def __init__(self, job: Job, context: Context, model: Bigram) -> None:
        self.reference = start(job)
        super().__init__(job, context, model)
        self.batch = min(int(self.settings.get("prompts_per_step") or 4), len(self.rows))
        self.group = int(self.settings.get("group_size") or 8)
        self.longest = int(self.settings.get("max_completion_tokens") or 256)
        self.heat = float(self.settings.get("temperature") or 1.0)
        self.beta = float(self.settings.get("kl_beta") or 0.0)
        if job.spec.get("tools"):
            context.message("tiny/bigram calls no tools: its answers are scored as they are", "warn")

    def total(self) -> int:
        return int(self.settings.get("max_steps") or 100)

    def parse(self, where: str, row: data.Row, longest: int) -> list[data.Row]:
        return data.messages(where, row, "messages")

    def step(self, number: int, batch: list[list[data.Row]]) -> Result:
        rng = random.Random(f"{self.job.spec.get('seed') or 0}/rollout/{number}")
        asked = [prompt for prompt in batch for _ in range(self.group)]
        written = [self.model.sample(rng, BEFORE, self.longest, self.heat) for _ in asked]
        shown = [text.decode("utf-8", "replace") for text in written]
        # The step is that of the policy that wrote: the checkpoint N is what was scored under the step N.
        found = rewards.score(self.context, number - 1, asked, shown)
        made = Result({}, 0, rewards.figures(found))
        losses: list[float] = []
        far: list[float] = []
        for text, force in zip(written, rewards.advantages(found, self.group), strict=True):
            learned = pairs(BEFORE, text, end=len(text) < self.longest)
            apart = [self.reference.row(before)[byte] - self.model.row(before)[byte] for before, byte in learned]
            kl = [math.exp(one) - one - 1 for one in apart]
            far += kl
            losses.append(self.beta * mean(kl) - force)
            for pair, one in zip(learned, apart, strict=True):
                weight = (force - self.beta * (1 - math.exp(one))) / len(learned) / len(asked)
                made.weights[pair] = made.weights.get(pair, 0.0) + weight
        made.tokens = sum(map(size, asked)) + sum(map(len, written))
        made.data |= {"loss": mean(losses), "kl": mean(far), "completions/mean_length": mean([len(t) for t in written])}
        return made

    def evaluate(self) -> dict[str, float]:
        return {}


def size(prompt: list[dict[str, Any]]) -> int:
    """The tokens of a prompt."""
    return sum(len(message["content"].encode()) + 1 for message in prompt)
