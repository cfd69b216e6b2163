"""What an engine asks of the server goes through its supervisor, which has the token."""

from __future__ import annotations

import random
import sys
import threading
from typing import Any
from unittest import mock

from server import Server
from test_small import GRPO, PROMPTS, lines, plain
from test_supervisor import WorkerCase, start

from sovereign_trainer import child, relay
from sovereign_trainer.errors import Stopped

SPEC = {"seed": 7, "checkpoint_every": 10, "hyperparameters": GRPO}
SAMPLE = {"seed": 7, "checkpoint_every": 2, "hyperparameters": {"samples_per_prompt": 2, "max_completion_tokens": 9}}


class GRPOCase(WorkerCase):
    def grpo(self, **settings: Any) -> Server:
        spec = {**SPEC, "hyperparameters": {**GRPO, **settings}}
        server = Server(spec, {"prompts.jsonl": lines(PROMPTS)}, "grpo")
        server.judge = plain
        self.addCleanup(server.close)
        return server

    def test_the_reward_rises(self) -> None:
        server = self.grpo()
        self.assertEqual(self.attempt(server).run(), "succeeded")
        reward = server.metrics("reward")
        self.assertEqual(sorted(reward), list(range(1, 41)))
        self.assertGreater(reward[40], reward[1] + 0.2)
        for name in ("reward_std", "kl", "loss"):
            self.assertEqual(sorted(server.metrics(name)), sorted(reward), name)
        self.assertEqual({step for step, _ in server.scored}, {str(step) for step in range(40)})

    def test_a_server_that_fails_or_is_slow_to_judge_changes_nothing(self) -> None:
        whole = self.grpo()
        self.attempt(whole).run()
        rng = random.Random(3)
        server = self.grpo()
        attempt = self.attempt(server)
        server.pending = 5
        server.fault = lambda *_: rng.choice([None, None, 0, 429, 500, 503])
        self.assertEqual(attempt.run(), "succeeded")
        self.compare(server, whole)

    def compare(self, server: Server, whole: Server) -> None:
        """The same rewards of every step, the same questions, and the same bytes."""
        self.assertEqual(server.metrics("reward"), whole.metrics("reward"))
        self.assertEqual(server.scored, whole.scored)
        self.assertEqual(server.model(), whole.model())

    def test_kills_leave_the_same_rewards_and_bytes_and_ask_nothing_else(self) -> None:
        whole = self.grpo()
        self.attempt(whole).run()
        server = self.grpo()
        token = self.folder / "token"
        token.write_text("wk_test\n")
        rng = random.Random(5)
        for _ in range(3):
            worker = start(server, token)
            seen = len(server.scored) + rng.randrange(1, 200)
            server.wait(lambda seen=seen: len(server.scored) >= seen or bool(server.done))
            worker.kill()
            worker.communicate()
            server.lose()
        if not server.done:
            self.assertEqual(self.attempt(server).run(), "succeeded")
        self.compare(server, whole)

    def test_a_held_session_saves_and_stops_and_a_released_one_goes_on_as_if_it_had_not_been(self) -> None:
        whole = self.grpo()
        self.attempt(whole).run()
        for code in relay.OVER:
            server = self.grpo()

            def judge(text: str, server: Server = server, code: str = code) -> float | None:
                if len(server.scored) >= 300 and server.attempt == 1:
                    server.held = code
                return plain(text)

            server.judge = judge
            server.order = lambda _, server=server: "checkpoint_and_stop" if server.held else "continue"
            self.assertEqual(self.attempt(server).run(), "stopped")
            self.assertEqual(server.done[1]["step"], max(server.checkpoints))
            server.held = ""
            self.assertEqual(self.attempt(server).run(), "succeeded")
            self.compare(server, whole)

    def test_the_server_hears_that_the_run_stops_before_it_does(self) -> None:
        server = self.grpo()
        server.held = "anchor_held"
        server.beat_every = 3600
        self.assertEqual(self.attempt(server).run(), "stopped")
        self.assertEqual(len(server.beats), 2)
        self.assertEqual(server.done[1]["step"], 0)

    def test_a_run_that_waits_for_rewards_can_be_stopped(self) -> None:
        server = self.grpo()
        asked = threading.Event()

        def fault(_: str, what: str) -> int | None:
            if what == "score" and "9" in {step for step, _ in server.scored}:
                asked.set()
                return 503
            return None

        server.fault = fault
        server.order = lambda _: "checkpoint_and_stop" if asked.is_set() else "continue"
        self.assertEqual(self.attempt(server).run(), "stopped")
        self.assertEqual(server.done[1]["step"], 10)

    def test_a_refused_question_fails_the_run(self) -> None:
        server = self.grpo()
        server.fault = lambda _, what: 400 if what == "score" else None
        self.assertEqual(self.attempt(server).run(), "failed")
        self.assertEqual(server.done[1]["error_code"], "score_refused")

    def test_an_engine_calls_tools(self) -> None:
        program = (
            "import sys, json; from sovereign_trainer import engine; engine.ENGINES = ('x',);"
            "run = lambda self, job, context: (context.message(context.tool('tool_1', {'q': 1}, 'r', 3)['content']),"
            " context.stopped(0, 0)); engine.load = lambda _: type('X', (), {'run': run})();"
            "code = engine.serve('x'); sys.stderr.flush(); import os; os._exit(code)"
        )
        server = self.grpo()
        with mock.patch.object(child, "command", lambda _: [sys.executable, "-c", program]):
            self.assertEqual(self.attempt(server).run(), "stopped", server.done)
        asked = {"arguments": {"q": 1}, "rollout_id": "r", "step": 3}
        self.assertEqual(server.called, [("tool_1", asked)])
        said = [event["message"] for event in server.events.values() if event["type"] == "message"]
        self.assertEqual(said, ["tool_1 was called"])

    def test_a_wait_for_judges_ends_with_the_attempt(self) -> None:
        server = self.grpo()
        server.pending = 1 << 30
        lease = self.lease(server)
        asker = relay.Relay(lease, print, print, print)
        server.fault = lambda *_: lease.cancel.set()
        self.assertRaises(Stopped, asker._score, "0", [{"id": "a", "completion": "b"}])


class SampleCase(WorkerCase):
    def test_a_killed_run_writes_the_same_samples(self) -> None:
        made: list[Server] = []
        for kill in (False, True):
            server = Server(SAMPLE, {"prompts.jsonl": lines(PROMPTS)}, "sample")
            self.addCleanup(server.close)
            made.append(server)
            if kill:
                attempt = self.attempt(server)
                thread = self.begin(attempt)
                server.wait(lambda server=server: bool(server.checkpoints))
                assert attempt.child
                attempt.child.kill()
                thread.join(120)
                if server.done[1]["outcome"] == "succeeded":
                    continue
                server.done.clear()
            self.assertEqual(self.attempt(server).run(), "succeeded")
        self.assertEqual(made[0].model(), made[1].model())
        self.assertEqual(list(made[0].model()), ["samples.jsonl"])
