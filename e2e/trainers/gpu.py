"""What a GPU does for the product: SFT, DPO and GRPO of a random model, through a server with a worker, and with TRL
alone beside it. It prints tokens per second, the overhead, how busy the GPU was, whether a killed run is the same run,
and when a run that games its judge is held. `serve` measures `transformers serve` through a dedicated endpoint and
alone, and `loop` goes from logged requests to a promoted model. It needs no network. `scripts/gpu` runs it.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

import loop
import serving
import task
from studio import Studio, Worker, camel, chats, preferences, write

WARM = 30  # steps before it is measured: the first ones with texts of a new length are slower
GROUP, PROMPTS = 8, 8
TRAINING = ["sft", "kill", "dpo", "grpo", "gamed"]

Settings = dict[str, Any]


def settings(method: str, steps: int) -> Settings:
    """How a method trains, by the names of a spec."""
    shared = {"max_steps": steps, "checkpoint_every": max(steps // 2, 1)}
    return shared | {
        "sft": {"epochs": 100, "batch_size": 32, "learning_rate": 3e-4, "max_length": 1024, "lora_rank": 0},
        "dpo": {"epochs": 100, "batch_size": 16, "learning_rate": 1e-4, "max_length": 512, "lora_rank": 16},
        "grpo": {
            "group_size": GROUP, "prompts_per_step": PROMPTS, "max_completion_tokens": 32, "learning_rate": 1e-4,
            "kl_beta": 0.001, "temperature": 1.0, "lora_rank": 0,
        },
    }[method]  # fmt: skip


def rows(method: str, model: str) -> list[dict[str, Any]]:
    """What a method trains on. A tiny model is for trying this out, and gets short texts."""
    tiny = model.startswith("tiny/")
    if method == "sft":
        return chats(256, 4 if tiny else 220)
    if method == "dpo":
        return preferences(128, 2 if tiny else 80)
    return [{"messages": [{"role": "user", "content": asked}]} for asked in task.questions(3, 64)]


class Meter:
    """How busy the GPU is, by nvidia-smi twice a second."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, list[float]]] = []
        self._process = None
        if shutil.which("nvidia-smi"):
            query = "--query-gpu=utilization.gpu,memory.used,power.draw"
            command = ["nvidia-smi", query, "--format=csv,noheader,nounits", "-lms", "500"]
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process and self._process.stdout
        for line in self._process.stdout:
            try:
                self.seen.append((time.time(), [float(part) for part in line.split(",")]))
            except ValueError:
                continue

    def between(self, first: float, last: float) -> dict[str, float]:
        """The means between two times."""
        found = [values for at, values in self.seen if first <= at <= last]
        names = ("gpu_busy_percent", "memory_mib", "watts")
        return {name: round(sum(v[i] for v in found) / len(found), 1) for i, name in enumerate(names)} if found else {}

    def close(self) -> None:
        if self._process:
            self._process.kill()


def speed(curve: list[dict[str, Any]], tokens: float) -> dict[str, float]:
    """Seconds per step and tokens per second, without the first steps."""
    first, last = curve[min(WARM, len(curve) - 2)], curve[-1]
    per_step = (last["time"] - first["time"]) / (last["step"] - first["step"])
    return {"seconds_per_step": per_step, "tokens_per_second": tokens / last["step"] / per_step}


def plain(method: str, model: str, steps: int, folder: pathlib.Path) -> dict[str, Any]:
    """The same with TRL's trainer alone: no server, no worker, checkpoints on the disk, a reward in this process."""
    from sovereign_trainer.engine import Context, Job  # noqa: PLC0415
    from sovereign_trainer.engines import trl  # noqa: PLC0415
    from transformers import TrainerCallback  # noqa: PLC0415

    class Local(Context):
        def score(self, step: int, items: list[dict[str, Any]]) -> list[float | None]:
            return [float(task.right(one["messages"][-1]["content"], one["completion"])) for one in items]

    curve: list[dict[str, Any]] = []

    class Clock(TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if "loss" in logs:
                numbers = {name: value for name, value in logs.items() if isinstance(value, int | float)}
                curve.append({"step": state.global_step, "time": time.time(), **numbers})

    how = settings(method, steps)
    rank = how.pop("lora_rank")
    every = how.pop("checkpoint_every")
    name = "prompts.jsonl" if method == "grpo" else "train.jsonl"
    spec = {"seed": 7, "hyperparameters": how, "lora": {"rank": rank, "alpha": 2.0 * rank} if rank else None}
    inputs = {name: write(folder / name, rows(method, model))}
    training = trl.Training(Job("plain", method, model, spec, inputs, str(folder)), Local(io.StringIO()))
    trainer = training.trainer
    trainer.remove_callback(training.callback)
    trainer.add_callback(Clock())
    trainer.args.save_strategy, trainer.args.save_steps = "steps", every
    trainer.train()
    return {"curve": curve, **speed(curve, int(trainer.state.num_input_tokens_seen))}


class Measured:
    """A server, a worker, and the runs."""

    def __init__(self, model: str, steps: int, gpu_type: str) -> None:
        self.model, self.steps = model, steps
        self.studio = Studio(gpu_type)
        self.meter = Meter()
        self.worker = self.studio.worker(model)
        self.files: dict[str, str] = {}
        self.judges: dict[str, str] = {}
        self.dataset = ""

    def start(self, method: str) -> str:
        """Start a run of a method through the API."""
        how = {camel(name): value for name, value in settings(method, self.steps).items()}
        if method == "grpo":
            return self.studio.reinforce(self.model, *self.judged("sound"), how)
        if method not in self.files:
            self.files[method] = self.studio.upload(rows(method, self.model))
        return self.studio.tune(self.model, method, self.files[method], how)

    def judged(self, model: str) -> tuple[str, str]:
        """Prompts, and a judge with a certificate."""
        if model not in self.judges:
            self.judges[model] = self.certified(model)
        if not self.dataset:
            asked = [row["messages"][0]["content"] for row in rows("grpo", self.model)]
            self.dataset = str(self.studio.lab.dataset(asked)["id"])
        return self.dataset, self.judges[model]

    def certified(self, model: str) -> str:
        """A judge that was calibrated on answers that know no loophole."""
        rng = random.Random(3)
        graded = [
            (asked, text := task.answer(rng, asked, 0.5), task.right(asked, text)) for asked in task.questions(4, 240)
        ]
        judge = self.studio.lab.workspace.judge(f"first letter, {model}", f"judges/{model}", task.RUBRIC, graded)
        return str(judge["criterion_id"])

    def product(self, method: str) -> dict[str, Any]:
        """A run through the server."""
        path = self.start(method)
        done = self.studio.ended(path)
        curve = self.studio.curve(path)
        busy = self.meter.between(curve[min(WARM, len(curve) - 2)]["time"], curve[-1]["time"])
        kept = {name: done[name] for name in ("attempt", "gpu_seconds", "spent_usd", "trained_tokens")}
        return {"curve": curve, **speed(curve, done["trained_tokens"]), **kept, **busy}

    def alone(self, method: str) -> dict[str, Any]:
        """The same run with TRL alone, in a process of its own."""
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "out.json"
            command = [sys.executable, __file__, "--plain", method, "--model", self.model, "--steps", str(self.steps)]
            subprocess.run([*command, "--out", str(out)], check=True, stdout=subprocess.DEVNULL)
            found: dict[str, Any] = json.loads(out.read_text())
        curve = found["curve"]
        return found | self.meter.between(curve[min(WARM, len(curve) - 2)]["time"], curve[-1]["time"])

    def killed(self, whole: list[dict[str, Any]]) -> dict[str, Any]:
        """SFT again, with kill -9 of the worker after its first checkpoint: how far its losses are off."""
        path = self.start("sft")
        while f"{path.rpartition('/')[2]}: saved the checkpoint" not in self.worker.log.read_text():
            if self.studio.call("GET", path)["status"] == "SUCCEEDED":
                break
            time.sleep(0.1)
        self.worker.kill()
        at = time.time()
        self.worker = Worker(self.studio.lab, "--gpu-type", self.studio.gpu_type)
        done = self.studio.ended(path)
        curve = self.studio.curve(path)
        again = [one["time"] - at for one in curve if one["time"] > at]
        far = max(abs(a["loss"] - b["loss"]) for a, b in zip(curve, whole, strict=True))
        return {
            "attempts": done["attempt"], "largest_difference_of_a_loss": far, "gpu_seconds_billed": done["gpu_seconds"],
            "seconds_to_the_first_step_after_the_kill": min(again, default=0.0), "curve": curve,
        }  # fmt: skip

    def gamed(self, steps: int) -> dict[str, Any]:
        """GRPO by a judge with a loophole, and an anchor without: the run until it is held, and what was right."""
        how = {camel(name): value for name, value in settings("grpo", steps).items()}
        how |= {"checkpointEvery": 4, "anchorCriterionId": self.judged("anchor")[1]}
        path = self.studio.reinforce(self.model, *self.judged("gullible"), how)
        while (run := self.studio.call("GET", path))["status"] not in ("PAUSED", "FAILED", "SUCCEEDED"):
            time.sleep(0.5)
        session = f"/v1/reward/sessions/{run['reward_session_id']}"
        anchor = self.studio.call("GET", session + "/anchor")
        self.studio.call("POST", path + "/stop")
        stopped = self.studio.call("GET", path)
        told = {name: run[name] for name in ("status", "held", "held_reason", "step")}
        last = {"pinned_step": anchor["pinned_step"], "candidate": stopped["candidate"]}
        return {"curve": self.truth(session), "checks": anchor["history"], **told, **last}

    def truth(self, session: str) -> list[dict[str, Any]]:
        """By step: the reward, what is right in truth, and what uses the loophole."""
        file = self.studio.lab.folder / "scored.jsonl"
        self.studio.lab.workspace.download(session + "/export?format=rl", file)
        steps: dict[int, list[tuple[float, bool, bool]]] = {}
        for line in file.read_text().splitlines():
            one = json.loads(line)
            asked, answer = last(one["prompt"]), last(one["completion"])
            steps.setdefault(int(one["step"]), []).append(
                (one["reward"], task.right(asked, answer), task.shouts(answer))
            )
        curve = []
        for step, found in sorted(steps.items()):
            means = [sum(column) / len(found) for column in zip(*found, strict=True)]
            curve.append({"step": step, "reward": means[0], "right": means[1], "loophole": means[2]})
        return curve


def last(said: Any) -> str:
    """What was said last, in a text or in messages."""
    return str(said if isinstance(said, str) else said[-1]["content"])


def shown(name: str, figures: dict[str, Any]) -> None:
    """Print figures, without the curve."""
    rest = {k: v for k, v in figures.items() if k not in ("curve", "checks")}
    numbers = {k: round(v, 4) if isinstance(v, float) else v for k, v in rest.items()}
    curve = figures["curve"]
    key = "reward" if "reward" in curve[0] else "rewards/margins" if "rewards/margins" in curve[0] else "loss"
    print(f"{name}: {key} {curve[0][key]:.3f} to {curve[-1][key]:.3f}; {json.dumps(numbers)}", flush=True)


def served(chosen: argparse.Namespace) -> dict[str, Any]:
    """A random model, served by `transformers serve` through a dedicated endpoint, and alone."""
    meter = Meter()
    with tempfile.TemporaryDirectory() as folder:
        models = {chosen.model: serving.random_model(chosen.model, pathlib.Path(folder))}
        engine = serving.transformers_engine(models, chosen.gpu_type, chosen.serve_options.split())
        began = time.time()
        found = serving.serve(engine, chosen.model, chosen)
    print(f"while it was measured: {json.dumps(busy := meter.between(began, time.time()))}", flush=True)
    meter.close()
    return found | busy


def trained(parts: list[str], chosen: argparse.Namespace, kept: dict[str, Any]) -> None:
    """Train, and compare."""
    measured = Measured(chosen.model, chosen.steps, chosen.gpu_type)
    try:
        for what in parts:
            if what == "kill":
                kept["kill"] = measured.killed(kept["sft"]["product"]["curve"])
                shown("kill -9 of the worker in sft", kept["kill"])
                continue
            if what == "gamed":
                kept["gamed"] = measured.gamed(4 * chosen.steps)
                shown("grpo by a judge with a loophole", kept["gamed"])
                continue
            took = {"product": 0.0, "plain": 0.0}
            for _ in range(chosen.rounds):
                one = kept[what] = {"product": measured.product(what), "plain": measured.alone(what)}
                for name, figures in one.items():
                    shown(f"{what}, {name}", figures)
                    took[name] += figures["seconds_per_step"]
            over = 100 * (took["product"] / took["plain"] - 1)
            print(f"{what}: the product takes {over:+.1f} % of time per step over TRL alone", flush=True)
        print(f"the ledger proves: {measured.studio.proves()}")
    finally:
        print(measured.worker.log.read_text()[-3000:], file=sys.stderr)
        measured.worker.kill()
        measured.meter.close()
        measured.studio.lab.close()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("what", nargs="*", default=TRAINING, help="kill is after sft; serve and loop are parts too")
    options.add_argument("--model", default="random/llama-142m")
    options.add_argument("--steps", type=int, default=150)
    options.add_argument("--rounds", type=int, default=2, help="how often each is measured")
    options.add_argument("--out", default=os.environ.get("OUT", "."))
    options.add_argument("--plain", default="", help=argparse.SUPPRESS)
    options.add_argument("--gpu-type", default="gpu")
    options.add_argument("--serve-options", default="--continuous-batching", help="of `transformers serve`")
    options.add_argument("--loop-options", default="", help="the same in the loop, where two share a GPU")
    options.add_argument("--loop-tokens", type=int, default=12, help="of an answer in the loop")
    serving.options(options)
    chosen = options.parse_args()
    if chosen.plain:
        with tempfile.TemporaryDirectory() as folder:
            found = plain(chosen.plain, chosen.model, chosen.steps, pathlib.Path(folder))
        pathlib.Path(chosen.out).write_text(json.dumps(found))
        return
    kept: dict[str, Any] = {}
    try:
        for part, run in {"serve": served, "loop": loop.run}.items():
            if part in chosen.what:
                kept[part] = run(chosen)
        if rest := [what for what in chosen.what if what in TRAINING]:
            trained(rest, chosen, kept)
    finally:
        pathlib.Path(chosen.out, "gpu.json").write_text(json.dumps(kept, indent=1))


if __name__ == "__main__":
    main()
