"""TRL: a reward function for GRPOTrainer and its kin, and a callback that ends a run when the session is held.

session = Session.attach()
hold = HoldCallback(session)
GRPOTrainer(..., reward_funcs=[reward_function(session, hold)], callbacks=[hold])
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from .errors import RewardError, RewardHeld, SessionEnded
from .item import Item, Message, text_of
from .session import Session

if TYPE_CHECKING:

    class TrainerCallback:
        """The base class of transformers, which is not needed to check the types."""

else:
    try:
        from transformers import TrainerCallback
    except ImportError:  # the reward function works without it
        TrainerCallback = object

log = logging.getLogger(__name__)

RewardFunction = Callable[..., Awaitable[list[float | None]]]


class _State(Protocol):
    global_step: int


def reward_function(session: Session, hold: HoldCallback | None = None, *, label: str | None = None) -> RewardFunction:
    """A reward function that scores a whole batch in one call. A reward is None where no judge has given one, and TRL
    leaves such a completion out of the baseline.

    When the session is held or has ended, it tells the callback `hold`, which ends the run with a checkpoint; without
    one it raises. `label` is the column of the dataset that is kept with each item.
    """

    async def sovereign(
        prompts: Sequence[str | Sequence[Message]],
        completions: Sequence[str | Sequence[Message]],
        trainer_state: _State,
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        labels = columns[label] if label else [None] * len(prompts)
        items = [
            Item(prompt, text_of(completion), None if note is None else str(note))
            for prompt, completion, note in zip(prompts, completions, labels, strict=True)
        ]
        try:
            scores = await session.ascore(items, trainer_state.global_step)
        except (RewardHeld, SessionEnded) as error:
            if hold is None:
                raise
            hold.end(error)
            return [None] * len(items)
        if log_metric is not None:
            log_metric("sovereign/null_rate", sum(r is None for r in scores.rewards) / max(1, len(items)))
            log_metric("sovereign/spent_usd", scores.spent_usd)
        return scores.rewards

    return sovereign


class HoldCallback(TrainerCallback):
    """Ends a run when its session is held or has ended: it saves a checkpoint and stops after the step.

    Afterwards `error` says why, `pinned_step` is the last step that passed a check of the anchor, and `checkpoint` the
    newest checkpoint that is not younger than that. Checkpoint N is the policy whose completions have the step N: set
    `save_steps` so that there is one between two checks.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.error: RewardError | None = None
        self.pinned_step: str | None = None
        self.checkpoint: str | None = None

    def end(self, error: RewardError) -> None:
        """End the run after the step that is under way."""
        self.error = self.error or error
        if isinstance(error, RewardHeld):
            self.pinned_step = error.pinned_step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        if _anywhere(self.error is not None):
            control.should_save = True
            control.should_training_stop = True
        return control

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        if self.error is not None:
            self.checkpoint = newest_checkpoint(args.output_dir, self.pinned_step)
            log.error("%s; the checkpoint to go on from: %s", self.error, self.checkpoint)
        return control


def newest_checkpoint(folder: str, step: str | None) -> str | None:
    """The newest checkpoint of a folder up to a step; None where there is none."""
    if step is None or not step.isdecimal() or not os.path.isdir(folder):
        return None
    steps = [int(m[1]) for name in os.listdir(folder) if (m := re.fullmatch(r"checkpoint-(\d+)", name))]
    kept = [n for n in steps if n <= int(step)]
    return os.path.join(folder, f"checkpoint-{max(kept)}") if kept else None


def _anywhere(ended: bool) -> bool:
    """Whether any process of a distributed run must end. All of them end at the same step, or the others would wait."""
    torch = sys.modules.get("torch")
    if torch is None or not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return ended
    everywhere: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(everywhere, ended)
    return any(everywhere)
