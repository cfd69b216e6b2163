"""The engine trl with real TRL, as the worker's child: it learns, and a kill changes nothing."""

from __future__ import annotations

import io
import pathlib
import random
import tempfile
import threading
import unittest
from typing import Any

from server import Server
from test_small import CHAT, PREFERENCES, PROMPTS, lines

from sovereign_trainer.client import Client, Lease
from sovereign_trainer.display import Display
from sovereign_trainer.supervisor import Attempt

LORA = {"rank": 8, "alpha": 16.0, "dropout": 0.0}


class Case(unittest.TestCase):
    def setUp(self) -> None:
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = pathlib.Path(made.name)

    def serve(self, method: str, rows: Any, held: Any = None, lora: Any = None, **settings: Any) -> Server:
        spec = {
            "seed": 7, "checkpoint_every": 10, "lora": lora,
            "hyperparameters": {"epochs": 99, "batch_size": 8, "max_length": 128, "warmup_ratio": 0.05, **settings},
        }  # fmt: skip
        first = "prompts.jsonl" if method in ("grpo", "sample") else "train.jsonl"
        model = settings.pop("model", {})
        spec["hyperparameters"].pop("model", None)
        inputs = {first: lines(rows), **({"validation.jsonl": lines(held)} if held else {}), **model}
        server = Server(spec, inputs, method, beat=0.2)
        server.base_model = "tiny/llama"
        self.addCleanup(server.close)
        return server

    def attempt(self, server: Server) -> Attempt:
        client = Client(server.url, "wk_test")
        given = client.lease({}, threading.Event())
        assert given
        folder = self.folder / f"{id(server)}.{server.attempt}"
        return Attempt(Lease(client, given), "trl", folder, Display(io.StringIO()))

    def succeed(self, server: Server) -> None:
        attempt = self.attempt(server)
        self.assertEqual(attempt.run(), "succeeded", server.done)

    def killed(self, server: Server, kills: int, most: int = 12) -> None:
        """Train with kill -9 of the engine at random points."""
        rng = random.Random(5)
        for _ in range(kills):
            attempt = self.attempt(server)
            thread = threading.Thread(target=attempt.run, daemon=True)
            thread.start()
            seen = len(server.metrics()) + rng.randrange(1, most)
            server.wait(lambda seen=seen: len(server.metrics()) >= seen or bool(server.done.get(server.attempt)))
            if attempt.child:
                attempt.child.kill()
            thread.join(300)
            if server.done[server.attempt]["outcome"] == "succeeded":
                return
            self.assertTrue(server.done[server.attempt]["infrastructure"])
            server.done.clear()
        self.succeed(server)

    def version(self, server: Server) -> dict[str, bytes]:
        """The model of a run, as the inputs of another."""
        return {f"model/{name}": server.files[digest] for name, digest in server.model().items()}

    def compare(self, whole: Server, other: Server) -> None:
        """The same figures of every step, and the same bytes."""
        self.assertEqual(other.metrics(), whole.metrics())
        self.assertEqual(other.model(), whole.model())


class TRLCase(Case):
    def test_sft_memorises_and_a_killed_run_is_the_same_run(self) -> None:
        options = {"max_steps": 150, "learning_rate": 3e-3}
        whole = self.serve("sft", CHAT, **options)
        self.succeed(whole)
        loss = whole.metrics()
        print(f"SFT: loss {loss[1]:.3f} to {loss[150]:.4f}")
        self.assertGreater(loss[1], 5)
        self.assertLess(loss[150], 0.1)
        self.assertIn("model.safetensors", whole.model())
        self.assertIn("tokenizer.json", whole.model())
        other = self.serve("sft", CHAT, **options)
        self.killed(other, 2)
        self.compare(whole, other)

    def test_dpo_with_lora_raises_the_margin_and_a_killed_run_is_the_same_run(self) -> None:
        options = {"lora": LORA, "max_steps": 30, "learning_rate": 5e-3}
        whole = self.serve("dpo", PREFERENCES, **options)
        self.succeed(whole)
        margin = whole.metrics("rewards/margins")
        print(f"DPO: margin {margin[1]:.3f} to {margin[30]:.3f}")
        self.assertLess(abs(margin[1]), 0.01)
        self.assertGreater(margin[30], 1)
        self.assertIn("adapter_model.safetensors", whole.model())
        other = self.serve("dpo", PREFERENCES, **options)
        self.killed(other, 1)
        self.compare(whole, other)

    def test_dpo_of_full_weights_and_validation(self) -> None:
        server = self.serve("dpo", PREFERENCES, held=PREFERENCES[:4], max_steps=20, learning_rate=1e-3)
        self.succeed(server)
        self.assertEqual(sorted(server.metrics("eval_loss")), [10, 20])
        self.assertGreater(server.metrics("rewards/margins")[20], 0.5)
        self.assertIn("eval_loss", server.checkpoints[20]["metrics"])


GRPO = {
    "max_steps": 12, "group_size": 8, "prompts_per_step": 4, "max_completion_tokens": 12, "learning_rate": 3e-3,
    "kl_beta": 0.001, "temperature": 1.0,
}  # fmt: skip


def letters(text: str) -> float | None:
    """Rewards small letters. An empty answer has no reward."""
    return sum(c in "abcdefghijklmnopqrstuvwxyz" for c in text) / len(text) if text else None


class GRPOCase(Case):
    def grpo(self, **options: Any) -> Server:
        server = self.serve("grpo", PROMPTS, **{**GRPO, **options})
        server.spec["checkpoint_every"] = 4
        server.judge = letters
        return server

    def same(self, whole: Server, other: Server) -> None:
        """The same rewards of every step, the same questions, and the same bytes."""
        self.assertEqual(other.metrics("reward"), whole.metrics("reward"))
        self.assertEqual(other.scored, whole.scored)
        self.compare(whole, other)

    def test_the_reward_rises_and_killed_and_held_runs_are_the_same_run(self) -> None:
        whole = self.grpo()
        self.succeed(whole)
        reward = whole.metrics("reward")
        first, last = (sum(reward[step] for step in steps) / 3 for steps in ((1, 2, 3), (10, 11, 12)))
        print(f"GRPO: mean reward of the first three steps {first:.3f}, of the last three {last:.3f}")
        self.assertGreater(last, first + 0.15)
        for name in ("reward_std", "kl", "loss"):
            self.assertEqual(sorted(whole.metrics(name)), list(range(1, 13)), name)
        self.assertEqual({step for step, _ in whole.scored}, {str(step) for step in range(12)})
        killed = self.grpo()
        self.killed(killed, 2, most=5)
        self.same(whole, killed)
        held = self.grpo()

        def judge(text: str) -> float | None:
            if len(held.scored) > 150 and held.attempt == 1:
                held.held = "anchor_held"
            return letters(text)

        held.judge = judge
        self.assertEqual(self.attempt(held).run(), "stopped")
        self.assertEqual(held.done[1]["step"], max(held.checkpoints))
        self.assertNotEqual(held.done[1]["step"] % 4, 0)  # it is no checkpoint that was due
        held.held = ""
        self.succeed(held)
        self.same(whole, held)

    def test_an_adapter_is_trained_on_against_what_it_was(self) -> None:
        options = {"lora": LORA, "max_steps": 4, "learning_rate": 5e-3}
        first = self.grpo(**options)
        self.succeed(first)
        self.assertIn("adapter_model.safetensors", first.model())
        again = self.grpo(**options, model=self.version(first))
        self.succeed(again)
        self.assertLess(again.metrics("kl")[1], 1e-6)
        self.assertNotIn("ref/adapter_model.safetensors", again.model())
        other = self.grpo(**options, model=self.version(first))
        other.spec["checkpoint_every"] = 1
        self.killed(other, 1, most=3)
        self.assertEqual(other.metrics("reward"), again.metrics("reward"))
        self.assertEqual(other.model(), again.model())


class VersionCase(Case):
    def test_a_version_goes_on_and_writes_what_it_has_learned(self) -> None:
        rows = [row for row in CHAT if row["messages"][0]["content"].endswith(" 0")]
        for lora in (None, LORA):
            options = {"lora": lora, "max_steps": 60, "learning_rate": 3e-3 if lora is None else 2e-2}
            first = self.serve("sft", rows, **options)
            self.succeed(first)
            loss = first.metrics()
            again = self.serve("sft", rows, **{**options, "max_steps": 1}, model=self.version(first))
            self.succeed(again)
            print(f"a version with {'LoRA' if lora else 'full weights'}: {loss[1]:.3f} to {loss[60]:.3f}, "
                  f"and from there {again.metrics()[1]:.3f}")  # fmt: skip
            self.assertLess(again.metrics()[1], loss[1] / 2)
        merged = self.serve("sft", rows, max_steps=1, model=self.version(first))
        self.succeed(merged)
        self.assertAlmostEqual(merged.metrics()[1], again.metrics()[1], places=3)
        self.assertIn("model.safetensors", merged.model())
        self.sampled(first)

    def sampled(self, first: Server) -> None:
        prompts = [{"id": w, "messages": [{"role": "user", "content": f"say {w} 0"}]} for w in ("red", "sky", "sun")]
        options = {"samples_per_prompt": 3, "temperature": 0.2, "max_completion_tokens": 16}
        made = []
        for kills in (0, 1):
            server = self.serve("sample", prompts, **options, model=self.version(first))
            server.spec["checkpoint_every"] = 1
            if kills:
                attempt = self.attempt(server)
                thread = threading.Thread(target=attempt.run, daemon=True)
                thread.start()
                server.wait(lambda server=server: bool(server.checkpoints))
                assert attempt.child
                attempt.child.kill()
                thread.join(300)
                server.done.clear()
            if not server.checkpoints or max(server.checkpoints) < 3:
                self.succeed(server)
            made.append(server)
        self.assertEqual(made[0].model(), made[1].model())
        text = made[0].files[made[0].model()["samples.jsonl"]].decode()
        print(text)
        self.assertEqual(len(text.splitlines()), 9)
        self.assertIn("red red 0", text)

    def test_full_weights_with_lora_are_refused(self) -> None:
        model = {"model/model.safetensors": b"", "model/config.json": b"{}"}
        server = self.serve("sft", CHAT, lora=LORA, max_steps=1, model=model)
        self.assertEqual(self.attempt(server).run(), "failed")
        self.assertEqual(server.done[1]["error_code"], "invalid_model")
