"""The method `sample` of the engine `trl`: a model answers prompts. A step is a prompt, whose answers are one batch.

Each answer has random numbers of its own, which follow from the seed, the prompt's id and the number of the answer.
"""

from __future__ import annotations

import random
from typing import Any

import torch

from .. import data
from ..engine import Context, Job
from ..errors import Failure
from . import sampling, trl_start


class Sampling(sampling.Sampling):
    """A run, from the start or from a checkpoint."""

    def load(self) -> None:
        self.words = trl_start.tokenizer(self.job)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = trl_start.start(self.job, self.words).to(self.device).eval()
        ends = self.model.generation_config.eos_token_id
        self.ends = {self.words.eos_token_id, *(ends if isinstance(ends, list) else [ends])} - {None}

    def written(self, name: str, prompt: list[data.Row], dice: list[random.Random]) -> list[str]:
        with torch.inference_mode():
            return self.generated(name, prompt, dice)

    def generated(self, name: str, prompt: list[data.Row], dice: list[random.Random]) -> list[str]:
        """Write token by token. Rows that have ended go on, and what they write is dropped."""
        shown = self.words.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False)
        asked = self.words(shown, add_special_tokens=False)["input_ids"]
        room = min(self.longest, self.words.model_max_length - len(asked))
        if room < 1:
            raise Failure("invalid_data", f"the prompt {name} leaves no room for an answer")
        answers: list[list[int]] = [[] for _ in dice]
        step = torch.tensor([asked] * len(dice), device=self.device)
        open_ = set(range(len(dice)))
        kept: Any = None
        for _ in range(room):
            out = self.model(input_ids=step, past_key_values=kept, use_cache=True, logits_to_keep=1)
            kept = out.past_key_values
            picked = self.pick(out.logits[:, -1], dice)
            for row in sorted(open_):
                if picked[row] in self.ends:
                    open_.remove(row)
                else:
                    answers[row].append(picked[row])
            if not open_:
                break
            step = torch.tensor(picked, device=self.device).unsqueeze(1)
        self.tokens += len(asked) * len(dice) + sum(map(len, answers))
        return [self.words.decode(answer, skip_special_tokens=True) for answer in answers]

    def pick(self, logits: torch.Tensor, dice: list[random.Random]) -> list[int]:
        """A token for each row, by one random number of the row's own."""
        sums = torch.softmax(logits.double() / self.heat, dim=-1).cumsum(dim=-1)
        drawn = torch.tensor([[one.random()] for one in dice], dtype=torch.float64, device=sums.device)
        picked = torch.searchsorted(sums, drawn * sums[:, -1:], right=True).clamp(max=sums.shape[-1] - 1)
        return [int(one) for one in picked[:, 0].tolist()]


def sample(job: Job, context: Context) -> None:
    """Do a run of the method."""
    Sampling(job, context).run()
