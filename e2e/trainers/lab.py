"""A server, its judges, and the calls that lead from labels to a session."""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

import httpx

from sovereign_rewards import Session

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
BINARY = os.environ.get("SOVEREIGN_BINARY", str(ROOT / "bin/sovereign"))
WAIT = 300.0  # a bound on everything that is waited for; no promise

CONFIG = """
providers:
  - {{name: judges, kind: openai, base_url: "{address}/v1", api_key: none}}
models:
"""
SIMULATED = (
    "  - {id: sim/chat, provider: sim, kind: chat, context_window: 32768, max_output_tokens: 256, "
    "price: {input_per_mtok_usd: 0.1, output_per_mtok_usd: 0.4}}\n"
)
MODEL = (
    "  - {{id: judges/{name}, provider: judges, kind: chat, context_window: 32768, max_output_tokens: 256, "
    "price: {{input_per_mtok_usd: 0.1, output_per_mtok_usd: 0.4}}}}\n"
)

JUDGES = ("sound", "weak", "gullible", "anchor", "letters")

Labelled = tuple[str, str, bool]
"""A question, an answer, and whether it is right."""


def child(*command: str, **options: Any) -> subprocess.Popen[str]:
    """Start a process that is killed when this one ends, however it ends."""
    prctl, pdeathsig = ctypes.CDLL(None).prctl, 1
    end = lambda: prctl(pdeathsig, signal.SIGKILL)  # noqa: E731
    return subprocess.Popen(command, text=True, preexec_fn=end, **options)  # noqa: PLW1509


class Workspace:
    """A workspace of the server, by its key."""

    def __init__(self, address: str, key: str) -> None:
        self.address, self.key = address, key
        self._http = httpx.Client(base_url=address, headers={"Authorization": f"Bearer {key}"}, timeout=WAIT)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Call the API. It answers the object that came back."""
        response = self._http.request(method, path, json=body)
        if response.status_code >= 300:
            raise RuntimeError(f"{method} {path}: {response.status_code} {response.text}")
        return response.json()

    def download(self, path: str, to: pathlib.Path) -> httpx.Headers:
        """Keep an export as a file."""
        response = self._http.get(path)
        response.raise_for_status()
        to.write_bytes(response.content)
        return response.headers

    def judge(self, name: str, model: str, rubric: str, labelled: list[Labelled]) -> dict[str, Any]:
        """Make a judge, and calibrate it by labels. It answers the certificate."""
        made = self.call("POST", "/v1/criteria", {"name": name, "rubric": rubric, "judge_model": model})
        criterion = made["id"]
        for first in range(0, len(labelled), 500):
            labels = [
                {
                    "criterion_id": criterion,
                    "messages": [{"role": "user", "content": asked}],
                    "response": {"role": "assistant", "content": answer},
                    "verdict": "pass" if right else "fail",
                }
                for asked, answer, right in labelled[first : first + 500]
            ]
            self.call("POST", "/v1/labels", {"labels": labels})
        run = self.call("POST", f"/v1/criteria/{criterion}/calibrations")
        deadline = time.monotonic() + WAIT
        while run["status"] not in ("DONE", "FAILED", "CANCELLED"):
            if time.monotonic() > deadline:
                raise TimeoutError(run)
            time.sleep(0.2)
            run = self.call("GET", f"/v1/criteria/{criterion}/calibrations/{run['id']}")
        if run["status"] != "DONE":
            raise RuntimeError(json.dumps(run))
        return self.call("GET", f"/v1/criteria/{criterion}/certificate")

    def session(self, judge: dict[str, Any], anchor: dict[str, Any] | None = None, **fields: Any) -> Session:
        """Open a session by certificates."""
        checks = {**fields.pop("checks", {}), "criterion_id": anchor["criterion_id"]} if anchor else None
        fields = {"budget_usd": 5.0, **fields}
        return Session.create(judge["criterion_id"], anchor=checks, base_url=self.address, api_key=self.key, **fields)


class Lab:
    """A server with SQLite in a folder of its own, and the judges as its provider. They end with `close`."""

    def __init__(self, *flags: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="lab")
        self.folder = pathlib.Path(self._folder.name)
        self._judges = child(sys.executable, str(HERE / "judges.py"), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._judges.stdout is not None
        config = self.folder / "sovereign.yaml"
        text = CONFIG.format(address=self._judges.stdout.readline().strip())
        config.write_text(text + "".join(MODEL.format(name=name) for name in JUDGES) + SIMULATED)
        self._more, self._config = flags, str(config)
        self._flags = ["--data-dir", f"{self.folder}/data", "--root-key-file", f"{self.folder}/root.key"]
        self._out, self._log = self.folder / "out", self.folder / "log"
        self._listen = "127.0.0.1:0"
        self.serve()
        self.workspace = Workspace(self.address, self._await(self._out, r"(sk_sovereign_[0-9a-z]{47})"))
        self.admin("wallet", "topup", "--workspace", "default", "--amount-usd", "100")

    def serve(self) -> None:
        """Start the server, or start it again on the same address."""
        self._server = child(
            BINARY, "serve", "--listen", self._listen, "--operations-listen", "off", "--bootstrap",
            "--config", self._config, *self._more, *self._flags, stdout=self._out.open("a"), stderr=self._log.open("w"),
        )  # fmt: skip
        self.address = self._await(self._log, r"msg=serving address=(\S+)")
        self._listen = self.address.removeprefix("http://")

    def kill(self) -> None:
        """End the server as a power failure does."""
        self._server.kill()
        self._server.wait()

    def dataset(self, asked: list[str], holdout: int = 0) -> dict[str, Any]:
        """A dataset of prompts, by way of the logs."""
        self.admin("logging", "on", "--workspace", "default")
        for text in asked:
            body = {"model": "sim/chat", "messages": [{"role": "user", "content": text}]}
            self.workspace.call("POST", "/v1/chat/completions", body)
        deadline = time.monotonic() + WAIT
        while self.workspace.call("GET", "/v1/logs?limit=1")["total"] < len(asked):
            if time.monotonic() > deadline:
                raise TimeoutError("the logs")
            time.sleep(0.1)
        body = {"name": "prompts", "holdout_pct": holdout}
        made: dict[str, Any] = self.workspace.call("POST", "/v1/datasets/from_logs", body)
        return made

    def _await(self, file: pathlib.Path, pattern: str) -> str:
        deadline = time.monotonic() + WAIT
        while time.monotonic() < deadline and self._server.poll() is None:
            if found := re.search(pattern, file.read_text()):
                return found[1]
            time.sleep(0.05)
        raise RuntimeError(f"the server does not serve:\n{self._log.read_text()}")

    def admin(self, *command: str) -> str:
        """Run an admin command."""
        done = subprocess.run([BINARY, "admin", *self._flags, *command], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"admin {command}: {done.stdout} {done.stderr}")
        return done.stdout

    def another(self, name: str) -> Workspace:
        """A further workspace, with money."""
        flags = ["--workspace", name, "--email", f"{name}@example.test", "--balance-usd", "100", "--json"]
        return Workspace(self.address, json.loads(self.admin("bootstrap", *flags))["api_key"])

    def log(self) -> str:
        """What the server logged."""
        return self._log.read_text()

    def close(self) -> None:
        """End everything."""
        for process in (self._server, self._judges):
            process.kill()
            process.wait()
        self._folder.cleanup()
