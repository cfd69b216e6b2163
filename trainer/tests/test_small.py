"""The small engine learns, and forgets nothing over a kill."""

from __future__ import annotations

import io
import json
import pathlib
import tempfile
import unittest
from typing import Any

from sovereign_trainer import rewards
from sovereign_trainer.engine import Context, Job
from sovereign_trainer.engines import small
from sovereign_trainer.engines.bigram import read
from sovereign_trainer.errors import Failure, Halt
from sovereign_trainer.files import manifest

WORDS = ("red", "green", "blue", "sky", "sea", "sun", "moon", "tree")
CHAT = [
    {"messages": [{"role": "user", "content": f"say {w} {i}"}, {"role": "assistant", "content": f"{w} {w} {i}"}]}
    for i in range(4)
    for w in WORDS
]
PREFERENCES = [{"prompt": f"say {w}", "chosen": f"{w} {w}", "rejected": f"no {w[::-1]}"} for w in WORDS * 2]
PROMPTS = [{"id": w, "messages": [{"role": "user", "content": f"say {w}"}]} for w in WORDS]


def lines(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


class Judged(Context):
    """A supervisor whose judge is a function. It keeps what it was asked; `halt` is the step without an answer."""

    def __init__(self, out: io.StringIO, judge: Any, halt: int = -1) -> None:
        super().__init__(out)
        self.judge, self.halt = judge, halt
        self.asked: list[tuple[str, str]] = []

    def ask(self, kind: str, what: dict[str, Any]) -> dict[str, Any]:
        if int(what["step"]) == self.halt:
            raise Halt("the session is held")
        self.asked += [(what["step"], item["id"]) for item in what["items"]]
        return {"rewards": [self.judge(item["completion"]) for item in what["items"]]}


def plain(text: str) -> float | None:
    """Rewards plain characters. An empty answer has no reward."""
    return sum(c.isascii() for c in text) / len(text) if text else None


class EngineCase(unittest.TestCase):
    def setUp(self) -> None:
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = pathlib.Path(made.name)

    def job(self, rows: Any, method: str = "sft", resume: str | None = None, held: Any = None, **spec: Any) -> Job:
        first = "prompts.jsonl" if method in ("grpo", "sample") else "train.jsonl"
        inputs = {first: rows, **({"validation.jsonl": held} if held else {}), **spec.pop("model", {})}
        for name, content in inputs.items():
            (self.folder / name).parent.mkdir(exist_ok=True)
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

    def run_job(self, job: Job, judge: Any = plain, halt: int = -1) -> list[dict[str, Any]]:
        out = io.StringIO()
        self.context = Judged(out, judge, halt)
        small.run(job, self.context)
        return [json.loads(line) for line in out.getvalue().splitlines()]

    def series(self, said: list[dict[str, Any]], name: str) -> list[float]:
        told = [line["metrics"]["data"] for line in said if "metrics" in line]
        return [data[name] for data in told if name in data]

    def fails(self, code: str, job: Job) -> None:
        with self.assertRaises(Failure) as caught:
            self.run_job(job)
        self.assertEqual(caught.exception.code, code)


GRPO = {
    "max_steps": 40, "group_size": 8, "prompts_per_step": 4, "max_completion_tokens": 4, "learning_rate": 2e-3,
    "kl_beta": 0.02, "temperature": 1,
}  # fmt: skip


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

    def test_grpo_raises_the_reward_and_moves_away_from_the_base(self) -> None:
        said = self.run_job(self.job(PROMPTS, "grpo", settings=GRPO))
        reward = self.series(said, "reward")
        self.assertEqual(len(reward), 40)
        self.assertLess(sum(reward[:5]) / 5, 0.6)
        self.assertGreater(sum(reward[-5:]) / 5, 0.8)
        far = self.series(said, "kl")
        self.assertEqual(far[0], 0)
        self.assertGreater(far[-1], 0.05)
        self.assertEqual(len(self.context.asked), 40 * 4 * 8)
        self.assertEqual({step for step, _ in self.context.asked}, {str(step) for step in range(40)})

    def test_grpo_that_may_not_move_stays_near_the_base(self) -> None:
        far = [
            self.series(self.run_job(self.job(PROMPTS, "grpo", settings={**GRPO, "kl_beta": beta})), "kl")[-1]
            for beta in (0.0, 1.0)
        ]
        self.assertLess(far[1], far[0] / 2)

    def test_an_answer_without_a_reward_is_no_answer_of_reward_0(self) -> None:
        self.assertEqual(rewards.advantages([None, 1.0, None, 1.0, None, None, None, None], 4), [0.0] * 8)
        self.assertEqual(rewards.advantages([0.0, None, 1.0, None], 4)[1::2], [0.0, 0.0])
        said = self.run_job(self.job(PROMPTS, "grpo", settings={**GRPO, "kl_beta": 0}), lambda _: None)
        self.assertEqual(self.series(said, "reward"), [])
        self.assertEqual(set(self.series(said, "grad_norm")), {0.0})

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
        for method, rows, held in (
            ("sft", CHAT, CHAT[:3]),
            ("dpo", PREFERENCES, PREFERENCES[:2]),
            ("grpo", PROMPTS, None),
        ):
            settings = GRPO if held is None else {"epochs": 99}
            options = {"held": held, "checkpoint_every": 7, "settings": {**settings, "max_steps": 24}}
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

    def test_a_step_without_rewards_is_done_again_and_asks_for_the_same(self) -> None:
        options = {"settings": {**GRPO, "max_steps": 12}}
        whole = self.run_job(self.job(PROMPTS, "grpo", **options))
        asked = self.context.asked
        first = self.run_job(self.job(PROMPTS, "grpo", **options), halt=5)
        self.assertEqual(first[-1]["stopped"]["step"], 5)
        self.assertIn("the session is held", first[-3]["message"]["text"])
        before = self.context.asked
        rest = self.run_job(self.job(PROMPTS, "grpo", resume=first[-2]["checkpoint"]["folder"], **options))
        self.assertEqual(before + self.context.asked, asked)
        self.assertEqual(self.series(rest, "reward"), self.series(whole, "reward")[5:])
        last = [manifest(pathlib.Path(said[-2]["checkpoint"]["folder"])) for said in (whole, rest)]
        self.assertEqual(last[0], last[1])
        none = self.run_job(self.job(PROMPTS, "grpo", **options), halt=0)
        self.assertEqual(none[-1], {"stopped": {"step": 0, "tokens": 0}})
        self.assertFalse(any("checkpoint" in line for line in none))

    def test_a_checkpoint_of_another_method_or_that_is_cut_is_refused(self) -> None:
        folder = pathlib.Path(self.run_job(self.job(CHAT))[-2]["checkpoint"]["folder"])
        self.fails("invalid_checkpoint", self.job(PREFERENCES, "dpo", resume=str(folder)))
        (folder / "model.bin").write_bytes(b"cut")
        self.fails("invalid_checkpoint", self.job(CHAT, resume=str(folder)))


class VersionCase(EngineCase):
    """A run begins from a model version where it is given one."""

    def version(self, settings: Any) -> dict[str, Any]:
        said = self.run_job(self.job(CHAT, settings=settings))
        folder = pathlib.Path(said[-2]["checkpoint"]["folder"])
        return {f"model/{name}": (folder / name).read_bytes() for name in ("config.json", "model.bin")}

    def test_every_method_begins_from_the_version(self) -> None:
        model = self.version({"epochs": 30})
        for method, rows in (("sft", CHAT), ("dpo", PREFERENCES), ("grpo", PROMPTS)):
            settings = {**(GRPO if method == "grpo" else {}), "max_steps": 3, "learning_rate": 1e-9}
            said = self.run_job(self.job(rows, method, model=model, settings=settings))
            folder = pathlib.Path(said[-2]["checkpoint"]["folder"])
            (before,), (after,) = read(self.folder / "model" / "model.bin", 1), read(folder / "model.bin", 1)
            far = max(abs(a - b) for x, y in zip(before, after, strict=True) for a, b in zip(x, y, strict=True))
            self.assertLess(far, 1e-5)
            if method == "sft":
                self.assertLess(self.series(said, "loss")[0], 1.6)
            else:  # the version itself is the reference
                self.assertAlmostEqual(self.series(said, "kl" if method == "grpo" else "rewards/margins")[0], 0)

    def test_a_version_that_cannot_be_read_is_refused(self) -> None:
        self.fails("invalid_model", self.job(CHAT, model={"model/adapter_model.safetensors": b""}))
        self.fails("invalid_model", self.job(CHAT, model={"model/model.bin": b"cut"}))


class SampleCase(EngineCase):
    def options(self, **settings: Any) -> dict[str, Any]:
        hyper = {"samples_per_prompt": 3, "temperature": 0.8, "max_completion_tokens": 12, **settings}
        return {"settings": hyper, "checkpoint_every": 3}

    def samples(self, said: list[dict[str, Any]]) -> bytes:
        return (pathlib.Path(said[-3]["checkpoint"]["folder"]) / "samples.jsonl").read_bytes()

    def test_every_prompt_is_answered_and_a_resumed_run_writes_the_same_bytes(self) -> None:
        whole = self.run_job(self.job(PROMPTS, "sample", **self.options()))
        found = [json.loads(line) for line in self.samples(whole).splitlines()]
        self.assertEqual([(one["prompt_id"], one["index"]) for one in found], [(w, i) for w in WORDS for i in range(3)])
        self.assertGreater(len({one["content"] for one in found}), 20)
        self.assertEqual(whole[-1]["done"]["step"], 8)
        points = {line["checkpoint"]["step"]: line["checkpoint"]["folder"] for line in whole if "checkpoint" in line}
        self.assertEqual(sorted(points), [3, 6, 8])
        for step in (3, 6):
            rest = self.run_job(self.job(PROMPTS, "sample", resume=points[step], **self.options()))
            self.assertEqual((self.samples(rest), rest[-1]), (self.samples(whole), whole[-1]))

    def test_a_sample_follows_from_the_seed_the_prompt_and_its_number_alone(self) -> None:
        whole = self.run_job(self.job(PROMPTS, "sample", **self.options()))
        fewer = self.run_job(self.job(PROMPTS[5:], "sample", **self.options(samples_per_prompt=2)))
        self.assertLess(set(self.samples(fewer).splitlines()), set(self.samples(whole).splitlines()))
        other = self.run_job(self.job(PROMPTS, "sample", seed=8, **self.options()))
        self.assertNotEqual(self.samples(other), self.samples(whole))

    def test_a_version_writes_what_it_has_learned(self) -> None:
        said = self.run_job(self.job(CHAT, settings={"epochs": 60}))
        model = {"model/model.bin": (pathlib.Path(said[-2]["checkpoint"]["folder"]) / "model.bin").read_bytes()}
        options = self.options(temperature=0.3, samples_per_prompt=1)
        found = self.run_job(self.job(PROMPTS, "sample", model=model, **options))
        self.assertRegex(self.samples(found).decode(), "red|green|blue|sky|sea|sun|moon|tree")

    def test_a_stopped_run_goes_on(self) -> None:
        whole = self.run_job(self.job(PROMPTS, "sample", **self.options()))
        out = io.StringIO()
        context = Context(out)
        context.want_stop()
        small.run(self.job(PROMPTS, "sample", **self.options()), context)
        said = [json.loads(line) for line in out.getvalue().splitlines()]
        self.assertEqual(said[-1]["stopped"]["step"], 1)
        rest = self.run_job(self.job(PROMPTS, "sample", resume=said[1]["checkpoint"]["folder"], **self.options()))
        self.assertEqual(self.samples(rest), self.samples(whole))

    def test_prompts_without_an_id_of_their_own_and_torn_checkpoints_are_refused(self) -> None:
        for rows in ([{"messages": PROMPTS[0]["messages"]}], PROMPTS[:1] * 2, []):
            self.fails("invalid_data", self.job(rows, "sample", **self.options()))
        folder = pathlib.Path(self.run_job(self.job(PROMPTS, "sample", **self.options()))[-3]["checkpoint"]["folder"])
        (folder / "samples.jsonl").write_bytes(b"{}\n")
        self.fails("invalid_checkpoint", self.job(PROMPTS, "sample", resume=str(folder), **self.options()))


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
        job = self.job(CHAT)
        self.fails("unsupported_model", Job(**{**vars(job), "base_model": "tiny/llama"}))

    def test_a_loss_that_is_not_finite_ends_the_run(self) -> None:
        self.fails("diverged", self.job(CHAT, settings={"learning_rate": 1e306}))
