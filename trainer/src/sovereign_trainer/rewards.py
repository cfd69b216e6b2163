"""The rewards of GRPO: what is sent to be scored, and how much better than its group an answer is."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any

from .engine import Context


def item(prompt: list[dict[str, Any]], completion: Any) -> dict[str, Any]:
    """An item to be scored. Its id follows from its content alone: a run that is resumed sends the same one, and pays
    nothing again; two equal answers are one item."""
    text = json.dumps([prompt, completion], sort_keys=True, separators=(",", ":"))
    return {"id": hashlib.sha256(text.encode()).hexdigest()[:32], "messages": prompt, "completion": completion}


def score(
    context: Context, step: int, prompts: Sequence[list[dict[str, Any]]], completions: Sequence[Any]
) -> list[float | None]:
    """The rewards of answers. None: no judge has given one, and the answer is left out."""
    return context.score(step, [item(*pair) for pair in zip(prompts, completions, strict=True)])


def advantages(rewards: Sequence[float | None], group: int) -> list[float]:
    """How much better than its group each answer is. One without a reward has none, and is in no baseline."""
    found: list[float] = []
    for first in range(0, len(rewards), group):
        part = rewards[first : first + group]
        middle, spread = _moments([one for one in part if one is not None])
        found += [0.0 if one is None else (one - middle) / (spread + 1e-4) for one in part]
    return found


def figures(rewards: Sequence[float | None]) -> dict[str, float]:
    """The figures of a step's rewards. A step without any has no mean."""
    known = [one for one in rewards if one is not None]
    missing = {"rewards/missing": float(len(rewards) - len(known))}
    if not known:
        return missing
    middle, spread = _moments(known)
    return {"reward": middle, "reward_std": spread, **missing}


def _moments(values: Sequence[float]) -> tuple[float, float]:
    """The mean and the standard deviation."""
    if not values:
        return 0.0, 0.0
    middle = math.fsum(values) / len(values)
    return middle, math.sqrt(math.fsum((value - middle) ** 2 for value in values) / len(values))
