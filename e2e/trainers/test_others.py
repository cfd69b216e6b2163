"""OpenRLHF's remote reward function and verl's reward managers, unmodified, against a running server."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import types
import unittest
from typing import Any

import httpx
import numpy as np
import torch
from omegaconf import OmegaConf
from openrlhf.utils.agent import SingleTurnAgentExecutor
from verl import DataProto
from verl.experimental.reward_loop.reward_manager.limited import RateLimitedRewardManager
from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager
from verl.trainer.ppo.reward import get_custom_reward_fn

import policy
import task
from lab import HERE, Lab
from sovereign_rewards import Session

LAB: Lab
JUDGE: dict[str, Any]
ASKED, RIGHT, WRONG = "e bcdfgh", "eeeee", "bbbbb"


def setUpModule() -> None:
    global LAB, JUDGE  # noqa: PLW0603
    LAB = Lab()
    rng = random.Random(3)
    graded = [
        (asked, text := task.answer(rng, asked, 0.5), task.right(asked, text)) for asked in task.questions(4, 240)
    ]
    JUDGE = LAB.workspace.judge("first letter", "judges/sound", task.RUBRIC, graded)


def tearDownModule() -> None:
    LAB.close()


def address(session: Session, trainer: str) -> str:
    """The address of an adapter, with a token of its own."""
    token = LAB.workspace.call("POST", f"/v1/reward/sessions/{session.id}/tokens", {"name": trainer})
    return f"{LAB.address}/rewards/v1/{token['token']}/{trainer}"


class OpenRLHFCase(unittest.TestCase):
    def execute(self, url: str, answer: str) -> dict[str, Any]:
        """What the executor makes of an answer of its engine."""
        words = policy.tokenizer()

        class Engine:
            async def generate(self, *_: Any, **__: Any) -> Any:
                written = types.SimpleNamespace(
                    token_ids=words(answer)["input_ids"], text=answer, finish_reason="stop", logprobs=None
                )
                return types.SimpleNamespace(outputs=[written])

        limits = types.SimpleNamespace(max_tokens=16, logprobs=None)
        return asyncio.run(SingleTurnAgentExecutor(url).execute(ASKED, "label", limits, 64, words, Engine()))

    def test_its_remote_reward_function_gets_a_reward(self) -> None:
        url = address(LAB.workspace.session(JUDGE), "openrlhf")
        for answer, low, high in ((RIGHT, 0.5, 1), (WRONG, 0, 0.5)):
            found = self.execute(url, answer)
            (reward,) = found["reward"]  # of one query, as its own reward server answers
            self.assertTrue(low <= reward <= high, found)
            self.assertEqual(found["scores"], [reward])

    def test_a_session_that_ended_gives_no_reward(self) -> None:
        session = LAB.workspace.session(JUDGE)
        url = address(session, "openrlhf")
        session.stop()
        self.assertIsNone(self.execute(url, RIGHT)["reward"])


class SlimeCase(unittest.TestCase):
    def test_the_answer_is_the_reward(self) -> None:
        url = address(LAB.workspace.session(JUDGE), "slime")
        answer = httpx.post(url, json={"prompt": ASKED, "response": RIGHT, "label": "x"}, timeout=120)
        self.assertIsInstance(answer.json(), float)


class VerlCase(unittest.TestCase):
    def batch(self, answers: list[str]) -> DataProto:
        """Answers as verl has them."""
        words = policy.tokenizer()
        ids = [words(text)["input_ids"] for text in answers]
        longest = max(map(len, ids))
        responses = torch.tensor([one + [words.pad_token_id] * (longest - len(one)) for one in ids])
        mask = torch.tensor([[1] * 4 + [1] * len(one) + [0] * (longest - len(one)) for one in ids])
        each = lambda value: np.array([value for _ in ids], dtype=object)  # noqa: E731
        return DataProto.from_dict(
            tensors={
                "prompts": torch.ones(len(ids), 4, dtype=torch.long),
                "responses": responses,
                "attention_mask": mask,
            },
            non_tensors={
                "data_source": each("toy"),
                "reward_model": each({"ground_truth": ""}),
                "extra_info": each({"prompt": ASKED}),
            },
        )

    def managed(self, session: Session) -> tuple[RateLimitedRewardManager, NaiveRewardManager]:
        """Both managers, configured as a run configures them."""
        os.environ.update(
            SOVEREIGN_BASE_URL=LAB.address, SOVEREIGN_API_KEY=LAB.workspace.key, SOVEREIGN_SESSION=session.id
        )
        function = {"path": "pkg://sovereign_rewards.verl", "name": "compute_score"}
        function["reward_kwargs"] = {"session_id": session.id}
        config = OmegaConf.create(
            {"reward": {"max_concurrent": 8, "timeout": 300.0, "num_workers": 1, "custom_reward_function": function}}
        )
        score, words = get_custom_reward_fn(config), policy.tokenizer()
        return RateLimitedRewardManager(config, words, score), NaiveRewardManager(config, words, score)

    def test_its_reward_managers_get_rewards(self) -> None:
        limited, naive = self.managed(LAB.workspace.session(JUDGE))
        found = limited(self.batch([RIGHT, WRONG, RIGHT]), return_dict=True)
        rewards = found["reward_tensor"].sum(1).tolist()
        self.assertTrue(rewards[0] == rewards[2] > 0.5 > rewards[1], rewards)
        self.assertEqual(list(found["reward_extra_info"]["verdict"]), ["pass", "fail", "pass"])
        one = limited.loop.run_until_complete(naive.run_single(self.batch([RIGHT])))
        self.assertAlmostEqual(one["reward_score"], rewards[0], places=5)

    def test_a_failure_ends_the_process_and_gives_no_reward(self) -> None:
        session = LAB.workspace.session(JUDGE)
        session.stop()
        environment = {
            **os.environ,
            "LAB_ADDRESS": LAB.address,
            "LAB_KEY": LAB.workspace.key,
            "LAB_SESSION": session.id,
        }
        done = subprocess.run(
            [sys.executable, str(HERE / "verl_ended.py")], env=environment, capture_output=True, text=True, check=False
        )
        self.assertEqual(done.returncode, 78, done.stderr[-2000:])
        self.assertNotIn("reward:", done.stdout)
        self.assertIn("STOPPED", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
