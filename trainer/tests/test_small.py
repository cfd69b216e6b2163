"""The small engine learns, and forgets nothing over a kill."""

from __future__ import annotations

import io
import json
import pathlib
import tempfile
import unittest
from typing import Any

from sovereign_trainer.engine import Context, Job
from sovereign_trainer.engines import small
from sovereign_trainer.errors import Failure
from sovereign_trainer.files import manifest

WORDS = ("red", "green", "blue", "sky", "sea", "sun", "moon", "tree")
CHAT = [
    {"messages": [{"role": "user", "content": f"say {w} {i}"}, {"role": "assistant", "content": f"{w} {w} {i}"}]}
    for i in range(4)
    for w in WORDS
]
PREFERENCES = [{"prompt": f"say {w}", "chosen": f"{w} {w}", "rejected": f"no {w[::-1]}"} for w in WORDS * 2]
PROMPTS = [{"prompt": f"say {w}"} for w in WORDS]


def lines(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


class EngineCase(unittest.TestCase):
    def setUp(self) -> None:
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = pathlib.Path(made.name)

    def job(self, rows: Any, method: str = "sft", resume: str | None = None, held: Any = None, **spec: Any) -> Job:
        inputs = {"train.jsonl": rows, **({"validation.jsonl": held} if held else {})}
        for name, content in inputs.items():
            (self.folder / name).write_bytes(content if isinstance(content, bytes) else lines(content))
        out = tempfile.mkdtemp(dir=self.folder)
        settings = {
            "epochs": 12,
            "batch_size": 8,
            "learning_rate": 2e-4,
            "warmup_ratio": 0.1,
            **spec.pop("settings", {}),
        }
        spec = {"seed": 7, "hyperparameters": settings, "checkpoint_every": 10, **spec}
        paths = {name: str(self.folder / name) for name in inputs}
        return Job("ft_1", method, small.MODEL, spec, paths, out, resume)

    def run_job(self, job: Job, reward: Any = None) -> list[dict[str, Any]]:
        out = io.StringIO()
        small.run(job, Context(out), reward)
        return [json.loads(line) for line in out.getvalue().splitlines()]

    def series(self, said: list[dict[str, Any]], name: str) -> list[float]:
        told = [line["metrics"]["data"] for line in said if "metrics" in line]
        return [data[name] for data in told if name in data]

    def fails(self, code: str, job: Job) -> None:
        with self.assertRaises(Failure) as caught:
            self.run_job(job)
        self.assertEqual(caught.exception.code, code)


class LearningCase(EngineCase):
    def test_sft_lowers_the_loss(self) -> None:
        said = self.run_job(self.job(CHAT, settings={"epochs": 30}))
        loss = self.series(said, "loss")
        self.assertGreater(loss[0], 5.4)  # it knows nothing: log(257) is 5.55
        self.assertLess(loss[-1], 1.6)
        self.assertEqual(said[-1], {"done": {"step": 120, "tokens": said[-1]["done"]["tokens"]}})

    def test_dpo_raises_the_margin_over_the_frozen_base_model(self) -> None:
        said = self.run_job(self.job(PREFERENCES, "dpo", settings={"beta": 0.1}))
        margin = self.series(said, "rewards/margins")
        self.assertEqual(margin[0], 0.0)
        self.assertGreater(margin[-1], 1.0)
        self.assertEqual(self.series(said, "rewards/accuracies")[-1], 1.0)

    def test_grpo_raises_the_reward(self) -> None:
        def plain(_: int, items: list[tuple[str, str]]) -> list[float | None]:
            return [sum(c.isascii() for c in text) / len(text) if text else None for _, text in items]

        settings = {"epochs": 20, "max_completion_length": 4, "learning_rate": 2e-3}
        reward = self.series(self.run_job(self.job(PROMPTS, "grpo", group_size=8, settings=settings), plain), "reward")
        self.assertLess(sum(reward[:5]) / 5, 0.6)
        self.assertGreater(sum(reward[-5:]) / 5, 0.8)

    def test_the_validation_loss_is_told_and_ends_a_run_that_no_longer_improves(self) -> None:
        held = [{"prompt": "say", "completion": "zzzz qqqq"}]
        job = self.job(CHAT, held=held, checkpoint_every=5, early_stopping_patience=2, settings={"epochs": 50})
        said = self.run_job(job)
        lowest = min(range(len(found := self.series(said, "eval_loss"))), key=found.__getitem__)
        self.assertEqual(len(found), lowest + 3)
        self.assertEqual(said[-1]["done"]["step"], 5 * len(found))
        self.assertIn(f"lowest at step {5 * (lowest + 1)}", said[-2]["message"]["text"])
        self.assertEqual([line["checkpoint"]["metrics"]["eval_loss"] for line in said if "checkpoint" in line], found)


class ResumeCase(EngineCase):
    """A run that was killed after any checkpoint gives the same figures and the same files."""

    def test_a_resumed_run_is_the_same_run(self) -> None:
        for method, rows, held in (("sft", CHAT, CHAT[:3]), ("dpo", PREFERENCES, PREFERENCES[:2])):
            options = {"held": held, "checkpoint_every": 7, "settings": {"max_steps": 24, "epochs": 99}}
            whole = self.run_job(self.job(rows, method, **options))
            points = {
                line["checkpoint"]["step"]: line["checkpoint"]["folder"] for line in whole if "checkpoint" in line
            }
            self.assertEqual(sorted(points), [7, 14, 21, 24])
            told = {line["metrics"]["step"]: line["metrics"] for line in whole if "metrics" in line}
            for step, folder in points.items():
                with self.subTest(method=method, step=step):
                    rest = self.run_job(self.job(rows, method, resume=folder, **options))
                    for line in rest:
                        if "metrics" in line:
                            self.assertEqual(line["metrics"], told[line["metrics"]["step"]])
                        if "checkpoint" in line:
                            made = manifest(pathlib.Path(line["checkpoint"]["folder"]))
                            self.assertEqual(made, manifest(pathlib.Path(points[line["checkpoint"]["step"]])))
                    self.assertEqual(rest[-1], whole[-1])

    def test_a_run_that_was_stopped_between_checkpoints_goes_on_as_if_it_had_not_been(self) -> None:
        whole = self.run_job(self.job(CHAT))
        out = io.StringIO()
        context = Context(out)
        context.want_stop()
        small.run(self.job(CHAT), context)
        said = [json.loads(line) for line in out.getvalue().splitlines()]
        self.assertEqual(said[-1]["stopped"]["step"], 1)
        rest = self.run_job(self.job(CHAT, resume=said[-2]["checkpoint"]["folder"]))
        self.assertEqual(self.series(rest, "loss"), self.series(whole, "loss")[1:])
        last = [manifest(pathlib.Path(said[-2]["checkpoint"]["folder"])) for said in (whole, rest)]
        self.assertEqual(last[0], last[1])

    def test_a_checkpoint_of_another_method_or_that_is_cut_is_refused(self) -> None:
        folder = pathlib.Path(self.run_job(self.job(CHAT))[-2]["checkpoint"]["folder"])
        self.fails("invalid_checkpoint", self.job(PREFERENCES, "dpo", resume=str(folder)))
        (folder / "model.bin").write_bytes(b"cut")
        self.fails("invalid_checkpoint", self.job(CHAT, resume=str(folder)))


class RefusalCase(EngineCase):
    def test_rows_that_are_wrong_are_named_by_their_line(self) -> None:
        for rows, part in {
            b"{}\n": "train.jsonl line 1: has neither",
            b'\n{"prompt":"a","completion":"b"}\n{"mess': "train.jsonl line 3: is no JSON",
            b'{"messages":[{"role":"user","content":"a"}]}': "no message is the assistant's",
            b'{"messages":[{"content":"a"}]}': "without a role",
            b'{"messages":[{"role":"assistant","content":[{"type":"image_url"}]}]}': "no text",
            b"[]": "is no object",
            b"": "no rows",
        }.items():
            with self.subTest(part), self.assertRaisesRegex(Failure, part):
                self.run_job(self.job(rows))

    def test_content_may_come_in_parts(self) -> None:
        whole = {"messages": [{"role": "assistant", "content": "ab"}]}
        parts = {"messages": [{"role": "assistant", "content": [{"type": "text", "text": t} for t in "ab"]}]}
        losses = [self.series(self.run_job(self.job([row])), "loss") for row in (whole, parts)]
        self.assertEqual(losses[0], losses[1])

    def test_other_models_and_methods_are_refused(self) -> None:
        self.fails("unsupported_method", self.job(CHAT, "kto"))
        self.fails("unsupported_method", self.job(PROMPTS, "grpo"))
        job = self.job(CHAT)
        self.fails("unsupported_model", Job(**{**vars(job), "base_model": "tiny/llama"}))

    def test_a_loss_that_is_not_finite_ends_the_run(self) -> None:
        self.fails("diverged", self.job(CHAT, settings={"learning_rate": 1e306}))
