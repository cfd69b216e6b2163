"""TRL, unmodified, against a running server."""

from __future__ import annotations

import json
import os
import pathlib
import random
import re
import socket
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Callable
from typing import Any
from unittest import mock

from datasets import load_dataset
from trl import DPOConfig, DPOTrainer, GRPOConfig, KTOConfig, KTOTrainer, SFTConfig, SFTTrainer

import policy
import task
from lab import ROOT, Lab, Labelled, child
from sovereign_rewards import Item, RewardHeld, Session
from sovereign_rewards.trl import HoldCallback, reward_function

LAB: Lab
GRADED: list[Labelled]
JUDGE: dict[str, Any]


def setUpModule() -> None:
    global LAB, GRADED, JUDGE  # noqa: PLW0603
    LAB = Lab()
    rng = random.Random(3)
    GRADED = [
        (asked, text := task.answer(rng, asked, 0.5), task.right(asked, text)) for asked in task.questions(4, 240)
    ]
    JUDGE = LAB.workspace.judge("first letter", "judges/sound", task.RUBRIC, GRADED)


def tearDownModule() -> None:
    LAB.close()


class GRPOCase(unittest.TestCase):
    def test_the_reward_rises_over_30_steps(self) -> None:
        session = LAB.workspace.session(JUDGE)
        with tempfile.TemporaryDirectory() as folder:
            trainer = policy.grpo(reward_function(session), folder, 30, [])
            trainer.train()
        rewards = [entry["reward"] for entry in trainer.state.log_history if "reward" in entry]
        first, last = sum(rewards[:6]) / 6, sum(rewards[-6:]) / 6
        print(f"GRPO: {len(rewards)} steps, mean reward of the first six {first:.3f}, of the last six {last:.3f}")
        self.assertEqual(len(rewards), 30)
        self.assertGreater(last, first + 0.05)
        state = session.complete()
        self.assertEqual(state["status"], "COMPLETED")
        most = 30 * policy.PROMPTS_PER_STEP * policy.ANSWERS_PER_PROMPT
        self.assertTrue(0.9 * most < state["scored"] <= most, state["scored"])  # identical answers are one item
        self.assertGreater(state["spent_usd"], 0)

    def test_a_resumed_run_pays_nothing_again(self) -> None:
        session = LAB.workspace.session(JUDGE)
        with tempfile.TemporaryDirectory() as folder:
            options = {"save_strategy": "steps", "save_steps": 2}
            policy.grpo(reward_function(session), folder, 6, [], **options).train()
            spent = session.state()["spent_usd"]
            again = policy.grpo(reward_function(session), folder, 6, [], **options)
            again.train(resume_from_checkpoint=f"{folder}/checkpoint-4")
        self.assertEqual(session.state()["spent_usd"], spent)

    def test_a_session_that_ends_ends_the_run_with_a_checkpoint(self) -> None:
        session = LAB.workspace.session(JUDGE)
        hold = HoldCallback(session)
        self.interrupted(session, hold, session.stop)
        self.assertEqual(getattr(hold.error, "status", None), "STOPPED")

    def test_a_session_that_is_held_ends_the_run_with_a_checkpoint(self) -> None:
        judge = LAB.workspace.judge("first letter, void later", "judges/sound", task.RUBRIC, GRADED)
        session = LAB.workspace.session(judge)
        hold = HoldCallback(session)

        def void() -> None:
            labels = LAB.workspace.call("GET", f"/v1/labels?criterion_id={judge['criterion_id']}&limit=100")["data"]
            measured = next(label["id"] for label in labels if label["in_report_half"])
            LAB.workspace.call("DELETE", f"/v1/labels/{measured}")

        self.interrupted(session, hold, void)
        self.assertIsInstance(hold.error, RewardHeld)
        self.assertIn("void", str(hold.error))

    def interrupted(self, session: Session, hold: HoldCallback, interrupt: Callable[[], object]) -> None:
        """A run during whose fourth step something happens. It ends with that step."""
        score, calls = reward_function(session, hold), 0

        async def interrupting(**columns: Any) -> list[float | None]:
            nonlocal calls
            calls += 1
            if calls == 4:
                interrupt()
            return await score(**columns)

        with tempfile.TemporaryDirectory() as folder:
            trainer = policy.grpo(interrupting, folder, 30, [hold])
            trainer.train()
            self.assertEqual(trainer.state.global_step, 4)
            self.assertTrue(pathlib.Path(folder, "checkpoint-4").is_dir())

    def test_the_example_of_the_README_trains(self) -> None:
        page = (ROOT / "clients/python/README.md").read_text()
        example = next(text for text in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "trl" in text)
        base = LAB.folder / "example"
        policy.tokenizer().save_pretrained(base)
        policy.model(policy.tokenizer()).save_pretrained(base)
        small = GRPOConfig(
            output_dir=str(LAB.folder / "trained"), max_steps=2, max_completion_length=task.LONGEST, use_cpu=True,
            bf16=False, gradient_checkpointing=False, report_to=[], disable_tqdm=True,
        )  # fmt: skip
        session = LAB.workspace.session(JUDGE)
        where = {"SOVEREIGN_BASE_URL": LAB.address, "SOVEREIGN_API_KEY": LAB.workspace.key}
        names: dict[str, Any] = {"small": small, "base": str(base)}
        with mock.patch.dict(os.environ, {**where, "SOVEREIGN_SESSION": session.id}):
            exec(re.sub(r"GRPOConfig\([^)]*\),", "small,", example.replace('"Qwen/Qwen3-0.6B"', "base")), names)
        self.assertEqual(names["trainer"].state.global_step, 2)
        self.assertGreater(session.state()["scored"], 0)


class DistributedCase(unittest.TestCase):
    def test_a_hold_of_one_process_ends_all(self) -> None:
        program = (
            "import torch.distributed as d; from sovereign_rewards.trl import _anywhere; d.init_process_group('gloo'); "
            "print(_anywhere(d.get_rank() == 1), _anywhere(False))"
        )
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = str(found.getsockname()[1])
        runs = []
        for rank in ("0", "1"):
            where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "RANK": rank}
            runs.append(child(sys.executable, "-c", program, env={**os.environ, **where}, stdout=subprocess.PIPE))
        self.assertEqual([run.communicate()[0].strip() for run in runs], ["True False"] * 2)


class ExportCase(unittest.TestCase):
    """TRL's trainers read the exports as they stand."""

    def exported(self, conversation: bool) -> dict[str, pathlib.Path]:
        """A session's exports: plain prompts, or messages."""
        session, rng = LAB.workspace.session(JUDGE), random.Random(6)
        items = []
        for asked in task.questions(5, 12):
            prompt = [{"role": "user", "content": asked}] if conversation else asked
            items += [Item(prompt, task.answer(rng, asked, skill)) for skill in (0.34, 0.34, 1.0, 1.0)]
        session.score(items, 1)
        folder = pathlib.Path(tempfile.mkdtemp(dir=LAB.folder))
        files = {name: folder / f"{name}.jsonl" for name in ("rl", "sft", "pairwise")}
        for name, file in files.items():
            headers = LAB.workspace.download(f"/v1/reward/sessions/{session.id}/export?format={name}", file)
            lines = [json.loads(line) for line in file.read_text().splitlines()]
            self.assertEqual(headers["X-Service-Export-Count"], str(len(lines)))
            self.assertGreater(len(lines), 4)
            print(f"{name}: {len(lines)} lines, such as {json.dumps(lines[0])}")
        return files

    def test_the_exports_train(self) -> None:
        kinds = {
            "sft": [("sft", SFTTrainer, SFTConfig)],
            "pairwise": [("dpo", DPOTrainer, DPOConfig), ("kto", KTOTrainer, KTOConfig)],
        }
        base = LAB.folder / "base"  # DPO and KTO load their reference from where the model is from
        words = policy.tokenizer()
        words.save_pretrained(base)
        policy.model(words).save_pretrained(base)
        for conversation in (False, True):
            files = self.exported(conversation)
            self.assertEqual(len(self.loaded(files["rl"])), 48)
            for export, trainers in kinds.items():
                for name, trainer, config in trainers:
                    with self.subTest(name, conversation=conversation):
                        arguments = config(
                            output_dir=str(LAB.folder / name), max_steps=3, per_device_train_batch_size=4, use_cpu=True,
                            bf16=False, gradient_checkpointing=False, report_to=[], disable_tqdm=True, logging_steps=1,
                            save_strategy="no", max_length=64,
                        )  # fmt: skip
                        run = trainer(model=str(base), args=arguments, train_dataset=self.loaded(files[export]))
                        run.train()
                        self.assertEqual(run.state.global_step, 3)
                        self.assertGreater(float(run.state.log_history[0]["loss"]), 0)

    def loaded(self, file: pathlib.Path) -> Any:
        """An export as a dataset."""
        return load_dataset("json", data_files=str(file), split="train", cache_dir=str(LAB.folder / "cache"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
