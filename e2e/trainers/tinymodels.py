"""Trains tiny/llama with the engine trl, all weights and with LoRA, and says what transformers answers with both.

    python tinymodels.py FOLDER

writes FOLDER/base, FOLDER/whole and FOLDER/adapter, and FOLDER/answers.json: a list of {"model", "prompt", "answer",
"prompt_tokens"}, the likeliest answer of at most 24 tokens.
"""

from __future__ import annotations

import io
import json
import pathlib
import shutil
import sys
import tempfile

import torch
from peft import PeftModel
from sovereign_trainer.engine import Context, Job
from sovereign_trainer.engines import tiny, trl
from transformers import AutoModelForCausalLM

WORDS = ("red", "green", "blue", "sky", "sea", "sun", "moon", "tree")
ROWS = [
    {"messages": [{"role": "user", "content": f"say {w} {i}"}, {"role": "assistant", "content": f"{w} {w} {i}"}]}
    for i in range(4)
    for w in WORDS
]
LONGEST = 24


def train(to: pathlib.Path, lora: dict[str, float] | None) -> None:
    """Train, and copy the model's files."""
    with tempfile.TemporaryDirectory() as made:
        rows = pathlib.Path(made) / "train.jsonl"
        rows.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
        settings = {"epochs": 99, "batch_size": 8, "max_length": 128, "max_steps": 60, "learning_rate": 3e-3}
        spec = {"seed": 7, "checkpoint_every": 60, "lora": lora, "hyperparameters": settings}
        out = pathlib.Path(made) / "out"
        out.mkdir()
        trl.run(
            Job("ft_1", "sft", tiny.MODEL, spec, {"train.jsonl": str(rows)}, str(out), None), Context(io.StringIO())
        )
        shutil.copytree(out / "checkpoint-60", to, ignore=shutil.ignore_patterns("state"))


def main() -> None:
    """Make everything."""
    folder = pathlib.Path(sys.argv[1])
    words = tiny.tokenizer()
    base = tiny.model(words)
    base.save_pretrained(folder / "base")
    words.save_pretrained(folder / "base")
    train(folder / "whole", None)
    train(folder / "adapter", {"rank": 8, "alpha": 16.0, "dropout": 0.0})
    models = {
        "whole": AutoModelForCausalLM.from_pretrained(folder / "whole", dtype=torch.float32),
        "adapter": PeftModel.from_pretrained(tiny.model(words), str(folder / "adapter")),
    }
    answers = []
    for name, model in models.items():
        model.eval()
        for prompt in ("say blue 2", "say moon 3", "Grüße, was ist?"):
            asked = words.apply_chat_template(
                [{"role": "user", "content": prompt}], add_generation_prompt=True, return_tensors="pt", return_dict=True
            )
            got = model.generate(**asked, max_new_tokens=LONGEST, do_sample=False)[0, asked["input_ids"].shape[1] :]
            said = words.decode(got, skip_special_tokens=True)
            answers.append(
                {"model": name, "prompt": prompt, "answer": said, "prompt_tokens": asked["input_ids"].shape[1]}
            )
            print(name, repr(prompt), repr(said), file=sys.stderr)
    (folder / "answers.json").write_text(json.dumps(answers, indent=1))


if __name__ == "__main__":
    main()
