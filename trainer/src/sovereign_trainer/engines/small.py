"""The engine `small`: it trains a bigram model in plain Python. It is for tests and for trying things out, and needs
nothing but Python.

A killed run that is resumed gives the same model, bit for bit: what a step does follows from the checkpoint, the seed
and the number of the step alone.
"""

from __future__ import annotations

import json
import math
import pathlib
import random
from dataclasses import dataclass, field
from typing import Any

from ..engine import About, Context, Job, Model
from ..errors import Failure, Halt
from .bigram import SIZE, Adam, Bigram, read, write
from .grpo import GRPO
from .sampling import Sampling
from .tasks import DPO, SFT, Task, start, whole, write_json

MODEL = "tiny/bigram"
RATE = 500.0
"""A table of logits takes larger steps than a transformer: a learning rate of 2e-4 becomes 0.1."""


@dataclass
class State:
    """What a checkpoint keeps beside the tables."""

    step: int = 0
    tokens: int = 0
    best: float | None = None  # the lowest eval_loss
    best_step: int = 0
    worse: int = 0  # evaluations since then
    figures: dict[str, float] = field(default_factory=dict)


class Training:
    """A run: steps, evaluations and checkpoints, from the start or from a checkpoint."""

    def __init__(self, job: Job, context: Context) -> None:
        self.job, self.context = job, context
        self.settings = job.hyperparameters
        self.state = State()
        if job.resume:
            self.resume(pathlib.Path(job.resume))
        else:
            self.adam = Adam(start(job))
        self.saved = self.state.step  # the step of the last checkpoint
        self.task = METHODS[job.method](job, context, self.adam.model)
        self.batch = self.task.batch
        self.per_epoch = math.ceil(len(self.task.rows) / self.batch)
        self.total = self.task.total()
        self.save_every = int(job.spec.get("checkpoint_every") or 0) or self.total

    def run(self) -> None:
        """Train to the end, or until it is told to stop."""
        if self.job.spec.get("lora"):
            self.context.message("tiny/bigram is trained with all its weights: it has no layers for LoRA")
        self.context.progress(self.state.step, self.total, self.state.tokens)
        state = self.state
        while not self.ended():
            try:
                self.step()
            except Halt as halt:
                self.stop(str(halt))
                return
            if self.context.stop_wanted and not self.ended():
                self.stop("")
                return
        if state.step < self.total:
            self.context.message(f"stopped early: eval_loss was lowest at step {state.best_step}", step=state.step)
        self.context.done(state.step, state.tokens)

    def stop(self, why: str) -> None:
        """Save what is not saved, and stop."""
        state = self.state
        if why:
            self.context.message(f"stops after step {state.step}: {why}", "warn", state.step)
        if self.saved < state.step:
            self.save()
        self.context.stopped(state.step, state.tokens)

    def step(self) -> None:
        """Train a step. What is raised before its end leaves the step before."""
        state = self.state
        result = self.task.step(state.step + 1, self.rows(state.step + 1))
        state.step += 1
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
        """Write a checkpoint."""
        folder = pathlib.Path(self.job.folder) / f"checkpoint-{self.state.step}"
        config = {"model_type": "bigram", "base_model": MODEL, "vocab_size": SIZE, "dtype": "float64"}
        kept = {"method": self.job.method, "total_steps": self.total, **vars(self.state)}
        with whole(folder) as torn:
            write_json(torn / "config.json", config)
            write(torn / "model.bin", self.adam.model.table)
            write(torn / "state" / "adam.bin", self.adam.first, self.adam.second)
            write_json(torn / "state" / "trainer.json", kept)
        self.saved = self.state.step
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


METHODS: dict[str, type[Task]] = {"sft": SFT, "dpo": DPO, "grpo": GRPO}


def about() -> About:
    """It trains one model, on any machine."""
    return About([*METHODS, "sample"], [Model(MODEL, SIZE * SIZE, 1024, random=True)])


def run(job: Job, context: Context) -> None:
    """Do a run."""
    if job.base_model != MODEL:
        raise Failure("unsupported_model", f"the engine small trains {MODEL}, and not {job.base_model!r}")
    if job.method == "sample":
        Sampling(job, context).run()
    elif job.method in METHODS:
        Training(job, context).run()
    else:
        raise Failure("unsupported_method", f"the engine small does not train with {job.method!r}")
