"""GRPO of the engine `trl`: TRL's trainer, whose reward function asks the run's reward session."""

from __future__ import annotations

import itertools
import pathlib
import random
from typing import Any

import numpy
import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from .. import data, rewards
from ..engine import Context, Job
from ..errors import Failure

MICRO = 64
"""Answers that are learned from at once. More than these are learned from in turns, which is the same step."""


def prompts(job: Job, context: Context, words: Any) -> Dataset:
    """The prompts of a run. Those that leave no room for an answer are left out."""
    room = words.model_max_length - int(job.hyperparameters.get("max_completion_tokens") or 256)
    found, long = [], 0
    for where, row in data.rows(job.inputs["prompts.jsonl"]):
        prompt = data.messages(where, row, "messages")
        shown = words.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False)
        if len(words(shown, add_special_tokens=False)["input_ids"]) > room:
            long += 1
        else:
            found.append({"prompt": prompt})
    if long:
        context.message(f"{long} prompts leave no room for an answer, and are left out", "warn")
    if not found:
        raise Failure("invalid_data", "prompts.jsonl has no prompt that leaves room for an answer")
    return Dataset.from_list(found)


def ordered(rows: Dataset, each: int, steps: int, seed: int) -> Dataset:
    """The prompts of all steps, as one epoch: TRL's own order of a run that is resumed after an epoch is another one."""
    order: list[int] = []
    for epoch in itertools.count():
        if len(order) >= each * steps:
            return rows.select(order[: each * steps])
        one = list(range(len(rows)))
        random.Random(f"{seed}/order/{epoch}").shuffle(one)
        order += one[: len(one) // each * each]
    raise AssertionError


def build(job: Job, context: Context, model: Any, arguments: dict[str, Any], **common: Any) -> Any:
    """A trainer. Every step begins with new answers, so that every step can be saved exactly."""
    settings = job.hyperparameters
    group = int(settings.get("group_size") or 8)
    each = min(int(settings.get("prompts_per_step") or 4), len(common["train_dataset"]))
    steps = arguments["max_steps"]
    common["train_dataset"] = ordered(common["train_dataset"], each, steps, arguments["seed"])
    turns = next(n for n in range(1, each + 1) if each % n == 0 and each // n * group <= max(MICRO, group))
    made = GRPOConfig(
        **arguments | {"per_device_train_batch_size": each // turns * group, "gradient_accumulation_steps": turns},
        shuffle_dataset=False,
        num_generations=group,
        steps_per_generation=turns,
        max_completion_length=int(settings.get("max_completion_tokens") or 256),
        temperature=float(settings.get("temperature") or 1.0),
        beta=float(settings.get("kl_beta") or 0.0),
    )
    if made.beta and common["peft_config"] is None and not hasattr(model, "peft_config"):
        # TRL reads its reference from where the model is from.
        folder = str(pathlib.Path(job.folder) / "reference")
        model.save_pretrained(folder)
        model.config._name_or_path = folder
    trainer = GRPOTrainer(model=model, args=made, reward_funcs=[judge(context)], **common)
    model.config._name_or_path = job.base_model
    return trainer


def judge(context: Context) -> Any:
    """The reward function. The step is that of the policy: the checkpoint N is what was scored under the step N."""

    def judge(prompts: list[Any], completions: list[Any], trainer_state: Any, **_: Any) -> list[float | None]:
        return rewards.score(context, trainer_state.global_step, prompts, [said(one) for one in completions])

    return judge


def said(completion: list[dict[str, Any]]) -> Any:
    """An answer as it is scored: a text, or the messages of a rollout with tools."""
    if len(completion) == 1 and not completion[0].get("tool_calls"):
        return completion[0]["content"] or ""
    return completion


class Dice:
    """The state of the random generators, as it was after a step."""

    def __init__(self) -> None:
        self._python, self._numpy, self._torch = random.getstate(), numpy.random.get_state(), torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state() if torch.cuda.is_available() else None

    def restore(self) -> None:
        random.setstate(self._python)
        numpy.random.set_state(self._numpy)
        torch.set_rng_state(self._torch)
        if self._cuda is not None:
            torch.cuda.set_rng_state(self._cuda)
