"""The engine `small`: it trains a bigram model in plain Python. It is for tests and for trying things out, and needs
nothing but Python.

A killed run that is resumed gives the same model, bit for bit: what a step does follows from the checkpoint, the seed
and the number of the step alone.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import data
from ..engine import About, Context, Job, Model
from ..errors import Failure
from .bigram import SIZE, Adam, Bigram, Pair, pairs, read, write

MODEL = "tiny/bigram"
RATE = 500.0
"""A table of logits takes larger steps than a transformer: a learning rate of 2e-4 becomes 0.1."""

Reward = Callable[[int, list[tuple[str, str]]], Sequence[float | None]]
"""The rewards of a step's (prompt, completion) pairs. None: there is none, and the completion is left out."""


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


@dataclass
class State:
    """What a checkpoint keeps beside the tables."""

    step: int = 0
    tokens: int = 0
    best: float | None = None  # the lowest eval_loss
    best_step: int = 0
    worse: int = 0  # evaluations since then
    figures: dict[str, float] = field(default_factory=dict)


class Task:
    """What a method does: `step` with a batch, `evaluate` on other rows."""

    def __init__(self, job: Job, model: Bigram) -> None:
        self.job, self.model = job, model
        self.settings = job.hyperparameters
        self.rows = self.read("train.jsonl")
        self.held = self.read("validation.jsonl") if "validation.jsonl" in job.inputs else []
        if not self.rows:
            raise Failure("invalid_data", "train.jsonl has no rows")

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
    """Prefer the chosen answer, against the frozen base model."""

    def __init__(self, job: Job, model: Bigram) -> None:
        self.reference = Bigram.base()
        super().__init__(job, model)
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


class GRPO(Task):
    """Raise the reward of what the model writes, in groups of answers to one prompt."""

    def __init__(self, job: Job, model: Bigram, reward: Reward) -> None:
        self.reward = reward
        self.reference = Bigram.base()
        super().__init__(job, model)
        self.group = int(job.spec.get("group_size") or 8)
        self.longest = int(self.settings.get("max_completion_length") or 32)
        self.beta = float(self.settings.get("beta") or 0.0)

    def parse(self, where: str, row: data.Row, longest: int) -> str:
        return "\n".join(message["content"] for message in data.messages(where, row, "prompt"))

    def step(self, number: int, batch: list[str]) -> Result:
        rng = random.Random(f"{self.job.spec.get('seed') or 0}/rollout/{number}")
        asked = [prompt for prompt in batch for _ in range(self.group)]
        written = [self.model.sample(rng, ord(" "), self.longest) for _ in asked]
        shown = [text.decode("utf-8", "replace") for text in written]
        rewards = list(self.reward(number, list(zip(asked, shown, strict=True))))
        weights: dict[Pair, float] = {}
        far: list[float] = []
        for first in range(0, len(asked), self.group):
            advantages = advantage(rewards[first : first + self.group])
            for text, force in zip(written[first : first + self.group], advantages, strict=True):
                learned = pairs(ord(" "), text, end=len(text) < self.longest)
                for before, byte in learned:
                    apart = self.reference.row(before)[byte] - self.model.row(before)[byte]
                    far.append(math.exp(apart) - apart - 1)
                    weight = (force - self.beta * (1 - math.exp(apart))) / len(learned) / len(asked)
                    weights[before, byte] = weights.get((before, byte), 0.0) + weight
        known = [reward for reward in rewards if reward is not None]
        figures = {"kl": mean(far), "completions/mean_length": mean([len(text) for text in written])}
        if known:
            figures |= {"reward": mean(known), "reward_std": deviation(known)}
        return Result(weights, sum(len(p) + len(t) for p, t in zip(asked, written, strict=True)), figures)

    def evaluate(self) -> dict[str, float]:
        return {}


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def deviation(values: Sequence[float]) -> float:
    middle = mean(values)
    return math.sqrt(mean([(value - middle) ** 2 for value in values]))


def advantage(rewards: Sequence[float | None]) -> list[float]:
    """How much better than its group each answer is. One without a reward has none."""
    known = [reward for reward in rewards if reward is not None]
    middle, spread = mean(known), deviation(known)
    return [0.0 if reward is None else (reward - middle) / (spread + 1e-4) for reward in rewards]


class Training:
    """A run: steps, evaluations and checkpoints, from the start or from a checkpoint."""

    def __init__(self, job: Job, context: Context, reward: Reward | None = None) -> None:
        self.job, self.context = job, context
        self.settings = job.hyperparameters
        self.state = State()
        self.adam = Adam(Bigram.base())
        if job.resume:
            self.resume(pathlib.Path(job.resume))
        self.task = self.choose(reward)
        self.batch = int(self.settings.get("batch_size") or 8) * int(self.settings.get("gradient_accumulation") or 1)
        self.per_epoch = math.ceil(len(self.task.rows) / self.batch)
        epochs = float(self.settings.get("epochs") or 1)
        self.total = max(1, math.ceil(epochs * self.per_epoch))
        self.total = min(self.total, int(self.settings.get("max_steps") or self.total))
        self.save_every = int(job.spec.get("checkpoint_every") or 0) or self.total

    def choose(self, reward: Reward | None) -> Task:
        if self.job.method == "grpo" and reward is not None:
            return GRPO(self.job, self.adam.model, reward)
        if self.job.method not in METHODS:
            raise Failure("unsupported_method", f"the engine small does not train with {self.job.method!r}")
        return METHODS[self.job.method](self.job, self.adam.model)

    def run(self) -> None:
        """Train to the end, or until it is told to stop."""
        if self.job.spec.get("lora"):
            self.context.message("tiny/bigram is trained with all its weights: it has no layers for LoRA")
        self.context.progress(self.state.step, self.total, self.state.tokens)
        state = self.state
        while not self.ended():
            saved = self.step()
            if self.context.stop_wanted and not self.ended():
                if not saved:
                    self.save()
                self.context.stopped(state.step, state.tokens)
                return
        if state.step < self.total:
            self.context.message(f"stopped early: eval_loss was lowest at step {state.best_step}", step=state.step)
        self.context.done(state.step, state.tokens)

    def step(self) -> bool:
        """Train a step. It reports whether a checkpoint was saved."""
        state = self.state
        state.step += 1
        result = self.task.step(state.step, self.rows(state.step))
        if not math.isfinite(result.data.get("loss", 0.0)):
            raise Failure("diverged", f"the loss is not finite at step {state.step}: take a smaller learning_rate")
        rate = self.rate(state.step)
        decay = float(self.settings.get("weight_decay") or 0.0)
        length = self.adam.ascend(result.weights, state.step, rate * RATE, decay)
        state.tokens += result.tokens
        state.figures = {**result.data, "learning_rate": rate, "grad_norm": length}
        last = state.step == self.total
        if save := state.step % self.save_every == 0 or last:
            self.evaluate()
        every = max(1, self.total // 1000)
        if save or state.step % every == 0:
            self.context.metrics(state.step, state.tokens, state.figures)
        self.context.progress(state.step, self.total, state.tokens)
        if save:
            self.save()
        return save

    def rows(self, step: int) -> list[Any]:
        """The rows of a step: every epoch has an order of its own, which follows from the seed."""
        epoch, number = divmod(step - 1, self.per_epoch)
        order = list(range(len(self.task.rows)))
        random.Random(f"{self.job.spec.get('seed') or 0}/order/{epoch}").shuffle(order)
        return [self.task.rows[i] for i in order[number * self.batch : (number + 1) * self.batch]]

    def rate(self, step: int) -> float:
        """The learning rate: a linear rise, and then a linear fall to 0 after the last step."""
        full = float(self.settings.get("learning_rate") or 2e-4)
        rise = math.ceil(float(self.settings.get("warmup_ratio") or 0.0) * self.total)
        if step <= rise:
            return full * step / rise
        return full * (self.total - step + 1) / (self.total - rise)

    def evaluate(self) -> None:
        """Measure on the held-out rows, and remember the best."""
        state = self.state
        found = self.task.evaluate()
        state.figures |= found
        if "eval_loss" not in found:
            return
        if state.best is None or found["eval_loss"] < state.best:
            state.best, state.best_step, state.worse = found["eval_loss"], state.step, 0
        else:
            state.worse += 1

    def ended(self) -> bool:
        """It was trained to the end, or evaluations did not improve for as long as it is patient."""
        patience = int(self.job.spec.get("early_stopping_patience") or 0)
        return self.state.step >= self.total or 0 < patience <= self.state.worse

    def save(self) -> None:
        """Write a checkpoint. Its folder gets its name when it is complete."""
        folder = pathlib.Path(self.job.folder) / f"checkpoint-{self.state.step}"
        torn = folder.with_suffix(".torn")
        shutil.rmtree(torn, ignore_errors=True)
        (torn / "state").mkdir(parents=True)
        config = {"model_type": "bigram", "base_model": MODEL, "vocab_size": SIZE, "dtype": "float64"}
        write_json(torn / "config.json", config)
        write(torn / "model.bin", self.adam.model.table)
        write(torn / "state" / "adam.bin", self.adam.first, self.adam.second)
        kept = {"method": self.job.method, "total_steps": self.total, **vars(self.state)}
        write_json(torn / "state" / "trainer.json", kept)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(torn, folder)
        self.context.checkpoint(self.state.step, folder, self.state.figures)

    def resume(self, folder: pathlib.Path) -> None:
        """Go on from a checkpoint."""
        try:
            kept = json.loads((folder / "state" / "trainer.json").read_text())
            if kept.pop("method") != self.job.method:
                raise ValueError("it is of another method")
            kept.pop("total_steps")
            self.state = State(**kept)
            (table,) = read(folder / "model.bin", 1)
            self.adam = Adam(Bigram(table), read(folder / "state" / "adam.bin", 2))
        except (ValueError, TypeError, KeyError) as error:
            raise Failure("invalid_checkpoint", f"the checkpoint cannot be read: {error}") from None


METHODS: dict[str, type[Task]] = {"sft": SFT, "dpo": DPO}


def write_json(path: pathlib.Path, what: Any) -> None:
    path.write_text(json.dumps(what, sort_keys=True, indent=1) + "\n")


def about() -> About:
    """It trains one model, on any machine."""
    return About(list(METHODS), [Model(MODEL, SIZE * SIZE, 1024, random=True)])


def run(job: Job, context: Context, reward: Reward | None = None) -> None:
    """Train a run."""
    if job.base_model != MODEL:
        raise Failure("unsupported_model", f"the engine small trains {MODEL}, and not {job.base_model!r}")
    Training(job, context, reward).run()
