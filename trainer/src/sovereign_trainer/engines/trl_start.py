"""What a run of the engine `trl` begins with: a tokenizer, and the base model or a version of it."""

from __future__ import annotations

import pathlib
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from ..engine import Job
from ..errors import Failure
from . import tiny

PLAIN = (
    "{% for message in messages %}{{ message.role }}: {% if message.role == 'assistant' %}{% generation %}"
    "{{ message.content }}{{ eos_token }}{% endgeneration %}{% else %}{{ message.content }}{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
"""For base models without a chat template."""


def tokenizer(job: Job) -> Any:
    """The tokenizer of the base model."""
    if job.base_model in tiny.SHAPES:
        return tiny.tokenizer(job.base_model)
    if not job.model_folder:
        raise Failure("unsupported_model", f"this worker has no model {job.base_model!r}")
    words = AutoTokenizer.from_pretrained(job.model_folder)
    words.pad_token = words.pad_token or words.eos_token
    words.chat_template = words.chat_template or PLAIN
    return words


def version(job: Job) -> pathlib.Path | None:
    """The folder of the model version that a run begins from, if there is one."""
    for name, path in job.inputs.items():
        parts = pathlib.PurePosixPath(name).parts
        if parts[0] == "model":
            return pathlib.Path(path).parents[len(parts) - 2]
    return None


def start(job: Job, words: Any) -> Any:
    """The model that a run begins with: a version, or the base model. The adapter of a version is trained on. Where all
    weights are trained, it becomes a part of them."""
    given, lora = version(job), job.spec.get("lora")
    try:
        if given is None:
            return _base(job, words, half=bool(lora))
        if (given / "adapter_config.json").is_file():
            model = PeftModel.from_pretrained(_base(job, words, half=bool(lora)), str(given), is_trainable=bool(lora))
            return model if lora else model.merge_and_unload()
        if lora:
            raise Failure("invalid_model", "the version has full weights: train it without LoRA")
        return _named(AutoModelForCausalLM.from_pretrained(given, dtype=torch.float32), job)
    except (OSError, ValueError, RuntimeError) as error:
        raise Failure("invalid_model", f"the model cannot be read: {error}") from None


def _base(job: Job, words: Any, half: bool) -> Any:
    """The base model. Weights that are not trained need half the memory."""
    if job.base_model in tiny.SHAPES:
        return tiny.model(words, job.base_model)
    kind = torch.bfloat16 if half and torch.cuda.is_available() else torch.float32
    return _named(AutoModelForCausalLM.from_pretrained(job.model_folder, dtype=kind), job)


def _named(model: Any, job: Job) -> Any:
    model.config._name_or_path = job.base_model  # what an adapter names as its base
    return model
