"""Training through a running server: a worker with TRL, jobs and runs, and what they show."""

from __future__ import annotations

import datetime
import json
import os
import pathlib
import random
import subprocess
import sys
import time
from typing import Any

from lab import ROOT, WAIT, Lab, child

ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")
WORDS = ("red", "green", "blue", "sky", "sea", "sun", "moon", "tree")


def camel(name: str) -> str:
    """A name as requests have it."""
    first, *rest = name.split("_")
    return first + "".join(map(str.title, rest))


class Worker:
    """A worker in a process of its own, with a token of its own."""

    def __init__(self, lab: Lab, *options: str) -> None:
        self.lab = lab
        minted = json.loads(lab.admin("worker", "create", "drill", "--json"))
        self.id: str = minted["id"]
        folder = lab.folder / self.id
        folder.mkdir()
        (folder / "token").write_text(minted["token"])
        self.log = folder / "log"
        where = [str(ROOT / "trainer/src"), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(where)}
        self._process = child(
            sys.executable, "-m", "sovereign_trainer", "work", "--url", lab.address, "--engine", "trl",
            "--token-file", str(folder / "token"), "--work", str(folder / "work"), *options,
            stdout=self.log.open("w"), stderr=subprocess.STDOUT, env=env,
        )  # fmt: skip

    def kill(self) -> None:
        """End it as a power failure does, and let nobody wait for its lease to run out."""
        self._process.kill()
        self._process.wait()
        self.lab.admin("worker", "revoke", self.id)


class Studio:
    """A server that trains."""

    def __init__(self, gpu_type: str = "cpu", *flags: str) -> None:
        self.lab = Lab("--training-prices", f"{gpu_type}=36", *flags)  # a cent per second
        self.call = self.lab.workspace.call
        self.gpu_type = gpu_type

    def worker(self, model: str) -> Worker:
        """Start a worker, and wait until it has said what it can train."""
        made = Worker(self.lab, "--gpu-type", self.gpu_type)
        deadline = time.monotonic() + WAIT
        while not any(one["id"] == model for one in self.call("GET", "/v1/fine-tuning/models")):
            if time.monotonic() > deadline:
                raise TimeoutError(made.log.read_text())
            time.sleep(0.5)
        return made

    def upload(self, rows: list[dict[str, Any]]) -> str:
        """Upload examples. It answers the id of the file."""
        text = "".join(json.dumps(row) + "\n" for row in rows)
        sent = self.lab.workspace._http.post(
            "/v1/fine-tuning/files", data={"purpose": "fine-tune"}, files={"file": ("rows.jsonl", text)}
        )
        sent.raise_for_status()
        return str(sent.json()["id"])

    def tune(self, model: str, method: str, file: str, settings: dict[str, Any]) -> str:
        """Start a fine-tuning job. It answers its path."""
        body = {
            "baseModel": model, "trainingFile": file, "method": method, "seed": 7, "budgetUsd": 20,
            "hyperparameters": settings,
        }  # fmt: skip
        return "/v1/fine-tuning/jobs/" + str(self.call("POST", "/v1/fine-tuning/jobs", body)["id"])

    def reinforce(self, model: str, dataset: str, criterion: str, settings: dict[str, Any]) -> str:
        """Start a GRPO run. It answers its path."""
        what = {"baseModel": model, "datasetId": dataset, "criterionId": criterion}
        body = {**what, "seed": 7, "budgetUsd": 20, **settings}
        return "/v1/grpo/runs/" + str(self.call("POST", "/v1/grpo/runs", body)["id"])

    def ended(self, path: str) -> dict[str, Any]:
        """Wait until a run has succeeded, and is charged."""
        deadline = time.monotonic() + 10 * WAIT
        while True:
            now = self.call("GET", path)
            spent = now["spent_usd"] - now.get("reward_spent_usd", 0)
            if now["status"] in ENDED and abs(spent - now["gpu_seconds"] / 100) < 1e-9:
                break
            if time.monotonic() > deadline:
                raise TimeoutError(json.dumps(now))
            time.sleep(0.2)
        if now["status"] != "SUCCEEDED":
            raise RuntimeError(json.dumps(now))
        return now

    def curve(self, path: str) -> list[dict[str, Any]]:
        """The figures of a run by step: `time` is when the server had them. A step that was done twice must agree."""
        found: dict[int, dict[str, Any]] = {}
        after = 0
        while events := self.call("GET", f"{path}/events?after={after}&limit=1000"):
            for event in events:
                after = event["seq"]
                if event["type"] == "metrics" and ("loss" in event["data"] or "reward" in event["data"]):
                    at = datetime.datetime.fromisoformat(event["at"]).timestamp()
                    found[event["step"]] = {"step": event["step"], "time": at, **event["data"]}
        return [found[step] for step in sorted(found)]

    def files(self, version: str) -> dict[str, str]:
        """The digests of a model's files."""
        return {one["name"]: one["sha256"] for one in self.call("GET", f"/v1/model-versions/{version}/files")["data"]}

    def proves(self) -> bool:
        """The ledger proves."""
        return bool(json.loads(self.lab.admin("ledger", "verify", "--json"))["ok"])


def chats(count: int, words: int) -> list[dict[str, Any]]:
    """Conversations to memorise, with answers of so many words."""
    made = []
    for i in range(count):
        rng = random.Random(i)
        answer = " ".join(rng.choices(WORDS, k=words))
        made.append({"messages": [{"role": "user", "content": f"say {i}"}, {"role": "assistant", "content": answer}]})
    return made


def preferences(count: int, words: int) -> list[dict[str, Any]]:
    """Answers of which one is preferred."""
    made = []
    for i in range(count):
        rng = random.Random(i)
        good, bad = (" ".join(rng.choices(part, k=words)) for part in (WORDS[:4], WORDS[4:]))
        made.append({"prompt": f"say {i}", "chosen": good, "rejected": bad})
    return made


def write(path: pathlib.Path, rows: list[dict[str, Any]]) -> str:
    """Write rows as lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)
