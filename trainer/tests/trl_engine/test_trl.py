"""The engine trl with real TRL, as the worker's child: it learns, and a kill changes nothing."""

from __future__ import annotations

import io
import os
import pathlib
import random
import signal
import tempfile
import threading
import unittest
from typing import Any

from server import Server
from test_small import CHAT, PREFERENCES, lines

from sovereign_trainer.client import Client, Lease
from sovereign_trainer.display import Display
from sovereign_trainer.supervisor import Attempt

LORA = {"rank": 8, "alpha": 16.0, "dropout": 0.0}


class TRLCase(unittest.TestCase):
    def setUp(self) -> None:
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = pathlib.Path(made.name)

    def serve(self, method: str, rows: Any, held: Any = None, lora: Any = None, **settings: Any) -> Server:
        spec = {
            "seed": 7, "checkpoint_every": 10, "lora": lora,
            "hyperparameters": {"epochs": 99, "batch_size": 8, "max_length": 128, "warmup_ratio": 0.05, **settings},
        }  # fmt: skip
        inputs = {"train.jsonl": lines(rows), **({"validation.jsonl": lines(held)} if held else {})}
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

    def killed(self, server: Server, kills: int) -> None:
        """Train with kill -9 of the engine at random points."""
        rng = random.Random(5)
        for _ in range(kills):
            attempt = self.attempt(server)
            thread = threading.Thread(target=attempt.run, daemon=True)
            thread.start()
            seen = len(server.metrics()) + rng.randrange(1, 12)
            server.wait(lambda seen=seen: len(server.metrics()) >= seen or bool(server.done.get(server.attempt)))
            if attempt.child:
                os.kill(attempt.child.pid, signal.SIGKILL)
            thread.join(300)
            if server.done[server.attempt]["outcome"] == "succeeded":
                return
            self.assertTrue(server.done[server.attempt]["infrastructure"])
            server.done.clear()
        self.succeed(server)

    def compare(self, whole: Server, other: Server) -> None:
        """The same figures of every step, and the same bytes."""
        self.assertEqual(other.metrics(), whole.metrics())
        self.assertEqual(other.model(), whole.model())

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
