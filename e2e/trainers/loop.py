"""The whole loop with a real trainer and a real engine: logged requests, a dataset, a judge's certificate, GRPO, a
candidate, its eval and gate, adopted by an alias's canary, and promoted by the alias's own gate.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import random
import statistics
import sys
import tempfile
import threading
import time
from typing import Any

import httpx

import serving
from lab import Labelled
from serving import until
from studio import Studio

PROMPTS, HOLDOUT = 128, 40
RUBRIC = "The answer consists of small letters."


def labels(count: int) -> list[Labelled]:
    """What people graded: letters pass, and what is no letter fails."""
    rng, made = random.Random(1), []
    for i in range(count):
        alphabet = "äöüßéèçñøå" if i % 2 else "abcdefghijklmnopqrstuvwxyz"
        made.append((f"Write some letters: {i}", "".join(rng.choices(alphabet, k=12)), i % 2 == 0))
    return made


class Loop:
    """A server that trains and serves. The trainer and the engines share a GPU."""

    def __init__(self, chosen: argparse.Namespace, folder: pathlib.Path) -> None:
        self.model, self.steps, self.tokens = chosen.model, chosen.steps, chosen.loop_tokens
        models = {self.model: serving.random_model(self.model, folder)}
        # A GPU is one replica's. Here the pool has an engine of the base and one of the candidate, and says cpu.
        shared = {} if chosen.gpu_type == "cpu" else {"CUDA_VISIBLE_DEVICES": "0"}
        engine = serving.transformers_engine(models, "cpu", chosen.loop_options.split(), **shared)
        prices = [] if chosen.gpu_type == "cpu" else ["--training-prices", "cpu=0"]
        self.studio = Studio(
            chosen.gpu_type, *prices, "--serving-engines", json.dumps([engine]),
            "--serving-pool-engine", "transformers", "--serving-cold-start", "10m", "--limits-judge-calls", "64",
        )  # fmt: skip
        self.lab, self.call = self.studio.lab, self.studio.call
        self.engines = serving.Engines(self.lab.folder / "data")
        self.began = time.time()
        self.found: dict[str, Any] = {}

    def tell(self, text: str) -> None:
        """Say what has happened, and when."""
        print(f"{time.time() - self.began:6.1f} s: {text}", flush=True)

    def prepare(self) -> tuple[str, str]:
        """Logs, a dataset and a judge."""
        made = self.lab.dataset([f"Write some letters, and then {i}." for i in range(PROMPTS)], HOLDOUT)
        self.tell(f"{PROMPTS} logged requests are a dataset of {made['rows']}, and the others are held out")
        # Answers are as long as those that the model is trained with.
        self.lab.admin("workspace", "set", "--workspace", "default", "--default-max-tokens", str(self.tokens))
        certificate = self.lab.workspace.judge("small letters", "judges/letters", RUBRIC, labels(320))
        self.tell("the judge has its certificate")
        return str(made["id"]), str(certificate["criterion_id"])

    def reinforce(self, dataset: str, judge: str) -> None:
        """GRPO."""
        settings = {
            "maxSteps": self.steps, "groupSize": 8, "promptsPerStep": 8, "checkpointEvery": self.steps,
            "maxCompletionTokens": self.tokens, "learningRate": 1e-4 if self.model.startswith("random/") else 1e-3,
            "klBeta": 0.001, "loraRank": 0, "budgetUsd": 60,
        }  # fmt: skip
        path = self.studio.reinforce(self.model, dataset, judge, settings)
        done = self.studio.ended(path)
        rewards = [one["reward"] for one in self.studio.curve(path)]
        before, after = statistics.mean(rewards[:5]), statistics.mean(rewards[-5:])
        self.tell(f"GRPO, {self.steps} steps, {done['gpu_seconds']} s billed: reward {before:.3f} to {after:.3f}")
        self.found |= {"rewards": rewards, "reward_before": before, "reward_after": after}

    def gated(self) -> dict[str, Any] | None:
        """The candidate with what its gate said, or None."""
        return next((one for one in self.call("GET", "/v1/grpo/candidates") if one["gate"]), None)

    def candidate(self) -> dict[str, Any]:
        """The candidate, when its gate has said something."""
        one: dict[str, Any] = until("a gate", self.gated)
        cases = self.call("GET", f"/v1/evals/{one['eval_id']}/cases?limit=1000")["data"]
        said = [(v["of"], v["verdict"]) for case in cases for v in case["verdicts"]]
        rates = {of: sum(v == (of, "pass") for v in said) / len(cases) for of in ("baseline", "candidate")}
        self.tell(f"of {len(cases)} held-out cases pass: {rates}; the gate: {one['gate']}, {one['gate_reason']}")
        self.found |= {"eval": rates, "cases": len(cases), "gate": one["gate"]}
        if one["gate"] != "pass":
            raise RuntimeError(json.dumps(one))
        return one

    def promote(self, candidate: dict[str, Any], judge: str) -> None:
        """Adopt it, and ask until the alias's gate acts."""
        alias = {"name": "support", "target_model": f"ft/base/{self.model}"}
        self.call("PUT", "/v1/aliases", {**alias, "gate_criterion_id": judge, "gate_mode": "auto"})
        version = candidate["model_version_id"]
        adopted = {"aliasName": "support", "canaryPercent": 50, "evalId": candidate["eval_id"]}
        self.call("POST", f"/v1/model-versions/{version}/adopt", adopted)
        self.tell("adopted as the canary of half of the requests")
        over, count = threading.Event(), iter(range(1 << 30))

        def ask() -> None:
            with httpx.Client(base_url=self.lab.address, timeout=600) as client:
                headers = {"Authorization": f"Bearer {self.lab.workspace.key}"}
                while not over.is_set():
                    body = {"model": "support", "messages": [{"role": "user", "content": f"question {next(count)}"}]}
                    client.post("/v1/chat/completions", json=body, headers=headers)

        threads = [threading.Thread(target=ask, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            until("the gate acts", lambda: self.call("GET", "/v1/aliases/support")["canary_percent"] == 0)
        finally:
            over.set()
        for thread in threads:
            thread.join()
        now = self.call("GET", "/v1/aliases/support")
        gate, name = now["gate"], self.call("GET", f"/v1/model-versions/{version}")["name"]
        arms = {arm["model"]: f"{arm['passes']} of {arm['n']}" for arm in gate["arms"]}
        self.tell(f"the gate says {gate['verdict']}, {gate['reason']}; live requests that pass: {arms}")
        self.found |= {"verdict": gate["verdict"], "live": arms}
        if now["target_model"] != name:
            raise RuntimeError(json.dumps(now))
        self.tell(f"the alias stands for {name}; the ledger proves: {self.studio.proves()}")


def run(chosen: argparse.Namespace) -> dict[str, Any]:
    """Go once around."""
    with tempfile.TemporaryDirectory() as folder:
        loop = Loop(chosen, pathlib.Path(folder))
        worker = loop.studio.worker(chosen.model)
        try:
            dataset, judge = loop.prepare()
            loop.reinforce(dataset, judge)
            loop.promote(loop.candidate(), judge)
            return loop.found
        except Exception:
            print(worker.log.read_text()[-3000:], loop.lab.log()[-5000:], file=sys.stderr)
            for path in (loop.lab.folder / "data/engines/run").glob("*/*.log"):
                print(path.read_text()[-3000:], file=sys.stderr)
            print(json.dumps(loop.call("GET", "/v1/grpo/candidates")), file=sys.stderr)
            raise
        finally:
            worker.kill()
            loop.engines.close()
            loop.lab.close()
