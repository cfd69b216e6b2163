"""Training through the product with real TRL: it learns, and kills of workers and servers change nothing.

KILLS is how many there are of each (20).
"""

from __future__ import annotations

import os
import random
import time
import unittest
from typing import Any

import task
from studio import ENDED, Studio, Worker, chats, preferences

MODEL = "tiny/llama"
KILLS = int(os.environ.get("KILLS", "20"))
SFT = {
    "maxSteps": 120, "epochs": 100, "batchSize": 8, "learningRate": 3e-3, "maxLength": 128, "loraRank": 0,
    "checkpointEvery": 5,
}  # fmt: skip
STUDIO: Studio
WORKER: Worker


def setUpModule() -> None:
    global STUDIO, WORKER  # noqa: PLW0603
    STUDIO = Studio()
    WORKER = STUDIO.worker(MODEL)


def tearDownModule() -> None:
    WORKER.kill()
    STUDIO.lab.close()


def trained(path: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A run that has succeeded, and its figures."""
    return STUDIO.ended(path), STUDIO.curve(path)


class LearningCase(unittest.TestCase):
    def test_sft_memorises_32_rows(self) -> None:
        file = STUDIO.upload(chats(32, 4))
        done, curve = trained(STUDIO.tune(MODEL, "sft", file, {**SFT, "maxSteps": 320, "checkpointEvery": 80}))
        print(f"SFT: loss {curve[0]['loss']:.3f} to {curve[-1]['loss']:.4f}, {done['trained_tokens']} tokens")
        self.assertGreater(curve[0]["loss"], 5)
        self.assertLess(curve[-1]["loss"], 0.1)
        self.assertIn("model.safetensors", STUDIO.files(done["model_version_id"]))

    def test_dpo_raises_the_margin(self) -> None:
        file = STUDIO.upload(preferences(32, 2))
        how = {"maxSteps": 30, "epochs": 100, "batchSize": 8, "learningRate": 5e-3, "maxLength": 128, "loraRank": 8}
        done, curve = trained(STUDIO.tune(MODEL, "dpo", file, how))
        first, last = (curve[at]["rewards/margins"] for at in (0, -1))
        print(f"DPO: margin {first:.3f} to {last:.3f}")
        self.assertGreater(last, first + 1)
        self.assertIn("adapter_model.safetensors", STUDIO.files(done["model_version_id"]))

    def test_grpo_raises_the_reward(self) -> None:
        rng, asked = random.Random(3), task.questions(4, 240)
        graded = [(one, text := task.answer(rng, one, 0.5), task.right(one, text)) for one in asked]
        judge = STUDIO.lab.workspace.judge("first letter", "judges/sound", task.RUBRIC, graded)
        dataset = STUDIO.lab.dataset(task.questions(3, 32))["id"]
        how = {
            "maxSteps": 48, "groupSize": 8, "promptsPerStep": 8, "maxCompletionTokens": 24, "learningRate": 3e-3,
            "klBeta": 0.001, "loraRank": 0, "checkpointEvery": 8,
        }  # fmt: skip
        done, curve = trained(STUDIO.reinforce(MODEL, dataset, judge["criterion_id"], how))
        rewards = [one["reward"] for one in curve]
        first, last = sum(rewards[:4]) / 4, sum(rewards[-4:]) / 4
        print(f"GRPO: mean reward of the first four steps {first:.3f}, of the last four {last:.3f}; judges "
              f"${done['reward_spent_usd']:.4f}")  # fmt: skip
        self.assertEqual(len(rewards), 48)
        self.assertGreater(last, first + 0.1)
        self.assertEqual(done["candidate"]["step"], 48)
        self.assertTrue(STUDIO.proves())


class KillCase(unittest.TestCase):
    file: str
    losses: list[float]
    files: dict[str, str]

    @classmethod
    def setUpClass(cls) -> None:
        cls.file = STUDIO.upload(chats(32, 4))
        done, curve = trained(STUDIO.tune(MODEL, "sft", cls.file, SFT))
        cls.losses, cls.files = [one["loss"] for one in curve], STUDIO.files(done["model_version_id"])

    def saved(self, path: str, rng: random.Random) -> bool:
        """Wait for a further checkpoint, and then for a random time. It reports whether the run has ended."""
        log, name = WORKER.log, path.rpartition("/")[2]
        seen = log.read_text().count(f"{name}: saved")
        while STUDIO.call("GET", path)["status"] not in ENDED:
            if log.read_text().count(f"{name}: saved") > seen:
                time.sleep(rng.random())  # anywhere
                return False
            time.sleep(0.05)
        return True

    def compare(self, path: str, began: float) -> dict[str, Any]:
        """The same losses, the same bytes, and no more seconds charged than have passed."""
        done, curve = trained(path)
        self.assertEqual([one["loss"] for one in curve], self.losses)
        self.assertEqual(STUDIO.files(done["model_version_id"]), self.files)
        self.assertLessEqual(done["gpu_seconds"], time.time() - began)
        self.assertTrue(STUDIO.proves())
        return done

    def test_killed_workers_leave_the_same_losses(self) -> None:
        global WORKER  # noqa: PLW0603
        rng, kills, runs = random.Random(5), 0, 0
        while kills < KILLS:
            began, path = time.time(), STUDIO.tune(MODEL, "sft", self.file, SFT)
            while kills < KILLS and not self.saved(path, rng):
                WORKER.kill()
                WORKER = Worker(STUDIO.lab)
                kills += 1
            done = self.compare(path, began)
            runs += 1
            print(f"{kills} kills of workers: {done['attempt']} attempts, {done['gpu_seconds']} s charged", flush=True)
        print(f"{kills} kills of workers in {runs} runs: the same losses and the same bytes; the ledger proves")

    def test_killed_servers_leave_the_same_losses(self) -> None:
        rng, kills, runs = random.Random(6), 0, 0
        while kills < KILLS:
            began, path = time.time(), STUDIO.tune(MODEL, "sft", self.file, SFT)
            while kills < KILLS and not self.saved(path, rng):
                STUDIO.lab.kill()
                STUDIO.lab.serve()
                kills += 1
            done = self.compare(path, began)
            self.assertEqual(done["attempt"], 1)
            runs += 1
        print(f"{kills} kills of servers in {runs} runs: one attempt each, the same losses; the ledger proves")


if __name__ == "__main__":
    unittest.main(verbosity=2)
