"""verl: `compute_score` for its reward managers.

    reward.custom_reward_function.path=pkg://sovereign_rewards.verl
    reward.custom_reward_function.name=compute_score

The session and the server are in the environment: SOVEREIGN_SESSION, SOVEREIGN_BASE_URL, SOVEREIGN_API_KEY. The prompt
is `extra_info["prompt"]` of the dataset's row. verl tells a reward function no step: items are scored under
`extra_info["step"]`, or else under "verl".

verl turns every failure of a reward function, and every timeout, into a reward of 0, and trains on it. So a failure
does not leave `compute_score`: it retries, and then ends its process with the status 78. verl's reward worker is gone
then, and with it the run, which begins again from its last checkpoint.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from .item import Item
from .session import Session

EXIT_STATUS = 78
TIMEOUT = 240.0
"""Below the 300 s after which verl's manager gives up and takes 0."""


def end_process(reason: str) -> NoReturn:
    """End the process at once: no handler of an exception and no `finally` can turn this into a reward."""
    print(f"sovereign_rewards: the run is stopped: {reason}", file=sys.stderr, flush=True)
    os._exit(EXIT_STATUS)


@functools.cache
def _session(session_id: str | None) -> Session:
    return Session.attach(session_id, timeout=TIMEOUT)


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any = None,
    extra_info: dict[str, Any] | None = None,
    *,
    session_id: str | None = None,
    stop: Callable[[str], NoReturn] = end_process,
    **_: Any,
) -> dict[str, Any]:
    """Score one completion. It answers a reward, or ends the run."""
    info = extra_info or {}
    try:
        prompt = info.get("prompt")
        if prompt is None:
            raise ValueError('extra_info["prompt"] is missing: a judge must see what was asked')
        label = None if ground_truth is None else str(ground_truth)
        scores = await _session(session_id).ascore([Item(prompt, solution_str, label)], info.get("step", "verl"))
    except asyncio.CancelledError:
        stop("the reward manager gave up before the server answered: raise its timeout above 300 s")
    except Exception as error:
        stop(f"{type(error).__name__}: {error}")
    reward, data = scores.rewards[0], scores.data[0]
    if reward is None:
        stop(f"no judge has given a reward: {data.get('flags')}")
    return {"score": reward, "verdict": data.get("verdict")}
