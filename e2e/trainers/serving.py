"""Measures an engine through the server and alone: a dedicated endpoint from its creation to its first answer, tokens
per second by both ways, what is billed, scaled to zero, and woken.

    python serving.py --engine small --base-model tiny/bigram
    python serving.py --command 'engine --weights {model_path} --as {name} --listen {host}:{port}' --model FOLDER
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shlex
import shutil
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from lab import ROOT, WAIT, Lab
from overhead import Caller, Load, Route, compare

HERE = pathlib.Path(__file__).parent
PRICE = 36  # dollars an hour: a cent per second
PASSED = ("HF_", "OMP_", "TRANSFORMERS_", "LD_LIBRARY_PATH", "NVIDIA_")  # of the environment, to engines


def until(what: str, holds: Callable[[], Any]) -> Any:
    """Wait for something."""
    deadline = time.monotonic() + 3 * WAIT
    while not (found := holds()):
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.1)
    return found


def transformers_engine(models: dict[str, str], gpu_type: str, options: list[str], **env: str) -> dict[str, Any]:
    """The template of `transformers serve`, which is a part of transformers."""
    where = [str(ROOT / "trainer/src"), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    passed = {name: value for name, value in os.environ.items() if name.startswith(PASSED)}
    return {
        "name": "transformers", "base_models": list(models), "models": models, "gpu_types": [gpu_type],
        "command": [
            sys.executable, "-W", "ignore", str(HERE / "named.py"), "{work}", "{model_path}", "{name}",
            "--host", "{host}", "--port", "{port}", *options,
        ],
        "env": {"PYTHONPATH": os.pathsep.join(where), **passed, **env},
    }  # fmt: skip


class Engines:
    """The engines of a server, by their records on the disk, and how long each was ready as seen from outside."""

    def __init__(self, data: pathlib.Path) -> None:
        self._folder = data / "engines" / "run"
        self.seen: dict[str, list[float]] = {}  # by replica: the pid, the time it was ready, the last time it was alive
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def records(self) -> list[dict[str, Any]]:
        """The records of replicas."""
        found = []
        for path in self._folder.glob("*/*.json"):
            try:
                record = json.loads(path.read_text())
            except (OSError, ValueError):
                continue  # it is being written, or was removed
            if "PID" in record:
                found.append(record)
        return found

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            for record in self.records():
                if was_ready(record) and record["ID"] not in self.seen:
                    self.seen[record["ID"]] = [record["PID"], time.time(), time.time()]
            for life in self.seen.values():
                if alive(int(life[0])):
                    life[2] = time.time()

    def ready(self) -> dict[str, Any] | None:
        """A replica that is ready."""
        return next((one for one in self.records() if was_ready(one) and not one["Ended"]), None)

    def running(self) -> int:
        """How many of those that were ready are alive."""
        return sum(alive(int(life[0])) for life in self.seen.values())

    def lived(self) -> float:
        """Seconds in which engines were ready."""
        return sum(last - first for _, first, last in self.seen.values())

    def close(self) -> None:
        """End what is left."""
        self._over.set()
        self._thread.join()
        for record in self.records():
            if alive(record["PID"]):
                os.kill(record["PID"], 9)


def was_ready(record: dict[str, Any]) -> bool:
    """Whether an engine was healthy. A record has the year 1970 until then."""
    return not record["ReadyAt"].startswith("1970")


def alive(pid: int) -> bool:
    """Whether a process runs."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


class Endpoint:
    """A dedicated endpoint."""

    def __init__(self, lab: Lab, engines: Engines, base: str, gpu_type: str, idle: int) -> None:
        self.lab, self.engines = lab, engines
        self.call = lab.workspace.call
        body = {"name": "measured", "baseModel": base, "gpuType": gpu_type, "idleTimeoutSeconds": idle}
        made = self.call("POST", "/v1/dedicated-endpoints", body)
        self.path = f"/v1/dedicated-endpoints/{made['id']}"
        self.route = Route(f"{lab.address}/v1", made["model"], lab.workspace.key)

    def now(self) -> dict[str, Any]:
        """As the API shows it."""
        found: dict[str, Any] = self.call("GET", self.path)
        if found["status"] == "FAILED":
            raise RuntimeError(json.dumps(found["error"], indent=1))
        return found

    def held(self) -> float:
        """What is set aside. It is 0 when all is billed."""
        return float(json.loads(self.lab.admin("wallet", "show", "--workspace", "default", "--json"))["held_usd"])

    def first(self) -> float:
        """Ask, and say how long the answer takes: its engine starts first."""
        began, caller = time.perf_counter(), Caller(self.route)
        failed: list[Exception] = []

        def ask() -> None:
            try:
                caller.ask("hello", 8, stream=True)
            except Exception as error:
                failed.append(error)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(1)
            self.now()  # or it has failed
        caller.close()
        if failed:
            raise failed[0]
        return time.perf_counter() - began

    def stop(self) -> None:
        """Stop it, and wait until its engines are billed."""
        self.call("POST", self.path + "/stop")
        until("stopped", lambda: self.now()["status"] == "STOPPED" and self.engines.running() == 0)
        until("billed", lambda: not self.held())

    def alone(self) -> Route:
        """The way to its engine past the server."""
        record = until("a replica", self.engines.ready)
        return Route(record["URL"] + record["API"], record["Spec"]["Model"])

    def same(self, tokens: int) -> bool:
        """Whether the likeliest answer is the same by both ways, whole and streamed."""
        answers = []
        for route in (self.alone(), self.route):
            caller = Caller(route)
            both = [caller.ask("Write some letters.", tokens, stream) for stream in (False, True)]
            answers.append([(one.text, one.tokens) for one in both])
            caller.close()
        return answers[0] == answers[1]


def measure(lab: Lab, engines: Engines, base: str, asked: argparse.Namespace) -> dict[str, Any]:
    """The life of an endpoint that is measured, and of one that sleeps."""
    endpoint = Endpoint(lab, engines, base, asked.gpu_type, idle=3600)  # else it sleeps while its engine is asked alone
    print(f"created, and the first answer after {(cold := endpoint.first()):.1f} s", flush=True)
    found: dict[str, Any] = {"first_answer_seconds": cold, "same_answers": endpoint.same(asked.tokens), "overhead": []}
    print(f"by both ways, whole and streamed, the answer is the same: {found['same_answers']}", flush=True)
    for at_once in asked.at_once:
        for stream in (False, True):
            load = Load(at_once, asked.each, asked.tokens, stream)
            show = lambda text: print(text, flush=True)  # noqa: E731
            found["overhead"].append(compare(endpoint.alone(), endpoint.route, load, asked.rounds, show))
    endpoint.stop()
    sleeper = Endpoint(lab, engines, base, asked.gpu_type, asked.idle)
    sleeper.first()
    until("scaled to zero", lambda: sleeper.now()["replicas"] == 0 and engines.running() == 0)
    found["woken_seconds"] = sleeper.first()
    print(f"another one: scaled to zero; woken, and answered after {found['woken_seconds']:.1f} s", flush=True)
    sleeper.stop()
    billed, ready = 100 * sum(one.now()["spent_usd"] for one in (endpoint, sleeper)), engines.lived()
    found |= {"billed_seconds": billed, "ready_seconds": ready, "engines": len(engines.seen)}
    print(f"billed {billed:.0f} s of {len(engines.seen)} engines that were ready for {ready:.1f} s", flush=True)
    return found


def serve(template: dict[str, Any], base: str, asked: argparse.Namespace) -> dict[str, Any]:
    """Start a server with an engine, and measure."""
    flags = ["--training-prices", f"{asked.gpu_type}={PRICE}", "--serving-engines", json.dumps([template])]
    flags += ["--serving-cold-start", "10m"]
    if asked.gpu_type != "cpu":
        flags += ["--serving-gpus", "0"]
    lab = Lab(*flags)
    engines = Engines(lab.folder / "data")
    try:
        found = measure(lab, engines, base, asked)
        proven = json.loads(lab.admin("ledger", "verify", "--json"))["ok"]
        print(f"the ledger proves: {proven}", flush=True)
        return found
    except Exception:
        print(lab.log()[-6000:], file=sys.stderr)
        for path in (lab.folder / "data/engines/run").glob("*/*.log"):
            print(path.read_text()[-3000:], file=sys.stderr)
        raise
    finally:
        engines.close()
        lab.close()


def random_model(name: str, folder: pathlib.Path) -> str:
    """Write a random model, as the engine trl has it, in half precision where there is a GPU."""
    import torch  # noqa: PLC0415
    from sovereign_trainer.engines import tiny  # noqa: PLC0415

    words = tiny.tokenizer(name)
    made = tiny.model(words, name)
    if torch.cuda.is_available():
        made = made.to(torch.bfloat16)
    made.save_pretrained(folder)
    words.save_pretrained(folder)
    return str(folder)


def options(found: argparse.ArgumentParser) -> None:
    """How it is measured."""
    found.add_argument("--at-once", type=int, nargs="*", default=[1, 8], help="callers at once")
    found.add_argument("--each", type=int, default=4, help="answers of each caller in a round")
    found.add_argument("--tokens", type=int, default=128, help="of an answer")
    found.add_argument("--pairs", dest="rounds", type=int, default=10, help="rounds by each way, in turns")
    found.add_argument("--idle", type=int, default=5, help="seconds without a request until another one has no engine")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="measured", help="a built-in engine, or a name for the command")
    parser.add_argument("--command", default="", help="the engine's command, with placeholders as in docs/serving.md")
    parser.add_argument("--base-model", default="my/model")
    parser.add_argument("--model", default="", help="the folder or the file of the model")
    parser.add_argument("--gpu-type", default="cpu")
    parser.add_argument("--health", default="/health")
    parser.add_argument("--out", default="", help="a file for the figures")
    options(parser)
    asked = parser.parse_args()
    template: dict[str, Any] = {"name": asked.engine, "base_models": [asked.base_model], "gpu_types": [asked.gpu_type]}
    if asked.model:
        template["models"] = {asked.base_model: str(pathlib.Path(asked.model).resolve())}
    if asked.command:
        command = shlex.split(asked.command)
        template |= {"command": [shutil.which(command[0]) or command[0], *command[1:]], "health": asked.health}
    passed = ("SOVEREIGN_LLAMA", "PYTHON")
    template["env"] = {name: value for name, value in os.environ.items() if name.startswith(passed)}
    found = serve(template, asked.base_model, asked)
    if asked.out:
        pathlib.Path(asked.out).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
