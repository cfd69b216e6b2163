"""The functions that trainers call. The trainers themselves are tested by `make trainers`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import types
import unittest
from typing import Any
from unittest import mock

from server import Reply, Server, graded, refused

from sovereign_rewards import RewardHeld, Session, verl
from sovereign_rewards import scoring as machine
from sovereign_rewards.trl import HoldCallback, newest_checkpoint, reward_function

STATE = types.SimpleNamespace(global_step=12)


def length(item: Any) -> float | None:
    return float(len(item["completion"])) if item["completion"] else None


def held(method: str, path: str, body: Any) -> Reply:
    if method == "GET":
        return 200, {"status": "ACTIVE", "anchor": {"held_reason": "not confirmed", "pinned_step": "8"}}
    return 412, refused("anchor_held", "held")


class TrainersCase(unittest.TestCase):
    def setUp(self) -> None:
        patch = mock.patch.object(machine.random, "uniform", lambda low, _: low / 100)
        patch.start()
        self.addCleanup(patch.stop)

    def served(self, reply: Any) -> tuple[Server, Session]:
        server = Server(reply)
        self.addCleanup(server.close)
        return server, Session("rs_1", base_url=server.url, api_key="key")


class TRLCase(TrainersCase):
    def test_a_batch_is_one_call_under_the_step_of_the_trainer(self) -> None:
        server, session = self.served(lambda m, p, b: (200, graded(b, length)))
        logged: dict[str, float] = {}
        rewards = asyncio.run(
            reward_function(session, label="answer")(
                prompts=["p", [{"role": "user", "content": "q"}], "p"],
                completions=["aa", [{"role": "assistant", "content": "b"}], ""],
                completion_ids=[[1], [2], [3]],
                trainer_state=STATE,
                log_metric=logged.__setitem__,
                log_extra=None,
                answer=["x", 4, None],
            )
        )
        self.assertEqual(rewards, [2, 1, None])
        (body,) = server.scored()
        self.assertEqual(body["step"], "12")
        self.assertEqual([item["completion"] for item in body["items"]], ["aa", "b", ""])
        self.assertEqual([item.get("label") for item in body["items"]], ["x", "4", None])
        self.assertEqual(logged, {"sovereign/null_rate": 1 / 3, "sovereign/spent_usd": 0.25})

    def test_a_trajectory_is_sent_whole(self) -> None:
        server, session = self.served(lambda m, p, b: (200, graded(b, length)))
        steps = [{"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]}, {"role": "tool", "content": "4"}]
        asyncio.run(reward_function(session)(prompts=["p"], completions=[steps], trainer_state=STATE))
        self.assertEqual(server.scored()[0]["items"][0]["completion"], steps)

    def test_a_hold_raises_without_a_callback(self) -> None:
        _, session = self.served(held)
        with self.assertRaises(RewardHeld):
            asyncio.run(reward_function(session)(prompts=["p"], completions=["a"], trainer_state=STATE))

    def test_a_hold_ends_the_run_with_a_checkpoint(self) -> None:
        _, session = self.served(held)
        hold = HoldCallback(session)
        call = reward_function(session, hold)(prompts=["p", "q"], completions=["a", "b"], trainer_state=STATE)
        with tempfile.TemporaryDirectory() as folder:
            for step in (4, 8, 12):
                os.mkdir(f"{folder}/checkpoint-{step}")
            args = types.SimpleNamespace(output_dir=folder)
            control = types.SimpleNamespace(should_save=False, should_training_stop=False)
            hold.on_step_end(args, STATE, control)
            self.assertFalse(control.should_training_stop, "it is not held yet")
            self.assertEqual(asyncio.run(call), [None, None])
            hold.on_step_end(args, STATE, control)
            self.assertTrue(control.should_save and control.should_training_stop)
            with self.assertLogs("sovereign_rewards.trl", "ERROR"):
                hold.on_train_end(args, STATE, control)
            self.assertEqual((hold.pinned_step, hold.checkpoint), ("8", f"{folder}/checkpoint-8"))
            self.assertEqual(newest_checkpoint(folder, "7"), f"{folder}/checkpoint-4")
            self.assertIsNone(newest_checkpoint(folder, "3"))


class VerlCase(TrainersCase):
    def score(self, reply: Any, info: dict[str, Any] | None = None) -> tuple[Any, list[str], Server]:
        """What compute_score answers, and why it would have stopped the run."""
        server, _ = self.served(reply)
        reasons: list[str] = []

        class StoppedError(Exception):
            pass

        def stop(reason: str) -> Any:
            reasons.append(reason)
            raise StoppedError

        environment = {"SOVEREIGN_BASE_URL": server.url, "SOVEREIGN_API_KEY": "k", "SOVEREIGN_SESSION": "rs_1"}
        verl._session.cache_clear()
        with mock.patch.dict(os.environ, environment), mock.patch.object(verl, "TIMEOUT", 0.3):
            try:
                answer = asyncio.run(verl.compute_score("set", "aaa", "truth", info, stop=stop))
            except StoppedError:
                answer = None
        return answer, reasons, server

    def test_a_completion_is_scored(self) -> None:
        answer, reasons, server = self.score(lambda m, p, b: (200, graded(b, length)), {"prompt": "p", "step": 3})
        self.assertEqual((answer, reasons), ({"score": 3.0, "verdict": "pass"}, []))
        self.assertEqual((server.scored()[0]["step"], server.scored()[0]["items"][0]["label"]), ("3", "truth"))

    def test_a_failure_never_becomes_a_reward(self) -> None:
        null = lambda m, p, b: (200, graded(b, lambda item: None))  # noqa: E731
        away = lambda m, p, b: (503, refused("unavailable", "away"))  # noqa: E731
        bad = lambda m, p, b: (400, refused("invalid_body", "no"))  # noqa: E731
        for reply in (null, away, bad, held):
            answer, reasons, _ = self.score(reply, {"prompt": "p"})
            self.assertEqual((answer, len(reasons)), (None, 1))
        answer, reasons, _ = self.score(null, {})
        self.assertIn('extra_info["prompt"]', reasons[0])

    def test_the_process_ends_although_the_manager_catches_everything(self) -> None:
        server, _ = self.served(held)
        program = """
import asyncio
from sovereign_rewards.verl import compute_score
async def manager():
    try:
        return await asyncio.wait_for(compute_score("set", "a", "", {"prompt": "p"}), timeout=60)
    except BaseException:
        return 0.0
print("reward", asyncio.run(manager()))
"""
        environment = {
            **os.environ, "SOVEREIGN_BASE_URL": server.url, "SOVEREIGN_API_KEY": "k", "SOVEREIGN_SESSION": "rs_1",
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
        )
        self.assertEqual((done.returncode, done.stdout), (verl.EXIT_STATUS, ""))
        self.assertIn("not confirmed", done.stderr)


if __name__ == "__main__":
    unittest.main()
