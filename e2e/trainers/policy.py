"""The toy policy: a random transformer of 135,000 parameters that writes letter by letter, and its GRPO run."""

from __future__ import annotations

from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, set_seed
from trl import GRPOConfig, GRPOTrainer

import task

torch.set_num_threads(1)
PAD, END = "<pad>", "<end>"
PROMPTS_PER_STEP, ANSWERS_PER_PROMPT = 16, 8


def tokenizer() -> Any:
    """A token is a letter."""
    words = {word: number for number, word in enumerate([PAD, END, " ", *task.LETTERS])}
    letters = Tokenizer(models.WordLevel(words, unk_token=" "))
    letters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    letters.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=letters, pad_token=PAD, eos_token=END, padding_side="left", model_max_length=64,
        chat_template="{% for m in messages %}{{ m.content }} {% endfor %}",
    )  # fmt: skip


def model(words: Any, seed: int = 2) -> Any:
    """A random model."""
    set_seed(seed)
    config = Qwen2Config(
        vocab_size=len(words), hidden_size=64, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=64, bos_token_id=None, eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id, tie_word_embeddings=False,
    )  # fmt: skip
    return Qwen2ForCausalLM(config)


def answers(policy: Any, words: Any, asked: list[str], seed: int = 7) -> list[str]:
    """What a policy answers."""
    set_seed(seed)
    shown = words(asked, return_tensors="pt", padding=True)
    with torch.no_grad():
        written = policy.generate(
            input_ids=shown["input_ids"], attention_mask=shown["attention_mask"], do_sample=True, top_k=0,
            max_new_tokens=task.LONGEST,
        )  # fmt: skip
    return words.batch_decode(written[:, shown["input_ids"].shape[1] :], skip_special_tokens=True)


def grpo(reward: Any, folder: str, steps: int, callbacks: list[Any], seed: int = 2, **options: Any) -> Any:
    """A trainer of the random model."""
    words = tokenizer()
    arguments = GRPOConfig(
        output_dir=folder, max_steps=steps, per_device_train_batch_size=PROMPTS_PER_STEP * ANSWERS_PER_PROMPT,
        num_generations=ANSWERS_PER_PROMPT, max_completion_length=task.LONGEST,
        lr_scheduler_type="constant", beta=0.0, temperature=1.0, logging_steps=1, seed=seed, data_seed=seed,
        report_to=[], use_cpu=True, bf16=False, gradient_checkpointing=False, disable_tqdm=True,
        **{"save_strategy": "no", "learning_rate": 3e-3, **options},
    )  # fmt: skip
    rows = [{"prompt": asked} for asked in task.questions(seed, 4096)]
    return GRPOTrainer(
        model=model(words, seed), args=arguments, train_dataset=Dataset.from_list(rows), processing_class=words,
        reward_funcs=[reward], callbacks=callbacks,
    )  # fmt: skip
