"""An engine is a child process that trains: `python -m sovereign_trainer.engine NAME`.

It reads its job as one line of JSON from standard input, and then commands and answers, a line each. It writes JSON
lines: metrics, message, progress, checkpoint, score and tool, and as its last one done, stopped or failed. A checkpoint
is a folder that is complete when its line is written; a folder without a line is torn, and nobody reads it.

Score and tool are questions to the server, which the supervisor asks: an engine has no token. Each has an id, and its
answer has the same one.

The end of standard input says that the supervisor is dead: the engine ends too, since another worker may have the run.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import pathlib
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, TextIO

from .errors import Failure, Halt

ENGINES = ("small", "trl")


@dataclass(frozen=True)
class Model:
    """A base model that an engine can train. `random`: its weights are random, and it is for trying out."""

    id: str
    parameters: int
    context_window: int
    random: bool


@dataclass(frozen=True)
class About:
    """What an engine can do on this machine."""

    methods: list[str]
    models: list[Model]
    gpu_type: str = "cpu"
    gpu_count: int = 1


@dataclass(frozen=True)
class Job:
    """What an engine is asked to do."""

    run: str
    method: str
    base_model: str
    spec: dict[str, Any]
    inputs: dict[str, str]  # paths by name
    folder: str  # the engine may write here, and nowhere else
    resume: str | None = None  # the folder of a verified checkpoint
    model_folder: str | None = None  # of a base model that is not built in
    secrets: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def hyperparameters(self) -> dict[str, Any]:
        found = self.spec.get("hyperparameters")
        return found if isinstance(found, dict) else {}


class Context:
    """How an engine talks to its supervisor."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._asked = 0
        self._answers: dict[int, dict[str, Any] | None] = {}  # None: it is waited for
        self._answered = threading.Condition()

    @property
    def stop_wanted(self) -> bool:
        """Save a checkpoint, say stopped, and return."""
        return self._stop.is_set()

    def want_stop(self) -> None:
        """Ask the engine to save a checkpoint and stop."""
        with self._answered:
            self._stop.set()
            self._answered.notify_all()

    def score(self, step: int, items: list[dict[str, Any]]) -> list[float | None]:
        """The rewards of items, in their order; None where there is none. It raises Halt, as ask does."""
        found: list[float | None] = self.ask("score", {"step": str(step), "items": items})["rewards"]
        return found

    def tool(self, tool: str, arguments: Any, rollout: str, step: int) -> dict[str, Any]:
        """Call a tool of the run: its content, and error where it failed. It raises Halt, as ask does."""
        return self.ask("tool", {"tool": tool, "arguments": arguments, "rollout_id": rollout, "step": step})

    def ask(self, kind: str, what: dict[str, Any]) -> dict[str, Any]:
        """Ask the server, and wait for as long as it is away. Threads may ask at once.

        It raises Halt when the run must stop before there is an answer, and Failure when the question is refused.
        """
        with self._answered:
            self._asked += 1
            number = self._asked
            self._answers[number] = None
        self._say(kind, {"id": number, **what})
        with self._answered:
            self._answered.wait_for(lambda: self._answers[number] is not None or self.stop_wanted)
            answer = self._answers.pop(number)
        if answer is None or "halt" in answer:
            raise Halt(answer["halt"] if answer else "it was told to")
        if "error" in answer:
            raise Failure(**answer["error"])
        result: dict[str, Any] = answer["result"]
        return result

    def answer(self, answer: dict[str, Any]) -> None:
        """The supervisor's answer to a question. Nobody waits for one that comes after a stop."""
        with self._answered:
            if answer["id"] in self._answers:
                self._answers[answer["id"]] = answer
                self._answered.notify_all()

    def metrics(self, step: int, tokens: int, data: Mapping[str, float]) -> None:
        """Figures of a step."""
        self._say("metrics", {"step": step, "tokens": tokens, "data": finite(data)})

    def message(self, text: str, level: str = "info", step: int = 0) -> None:
        """A sentence for people."""
        self._say("message", {"text": text, "level": level, "step": step})

    def progress(self, step: int, total_steps: int, tokens: int) -> None:
        """How far it is. Tokens are those of all attempts."""
        self._say("progress", {"step": step, "total_steps": total_steps, "tokens": tokens})

    def checkpoint(self, step: int, folder: pathlib.Path, metrics: Mapping[str, float]) -> None:
        """A checkpoint is complete. The supervisor deletes the folder when the server has it."""
        self._say("checkpoint", {"step": step, "folder": str(folder), "metrics": finite(metrics)})

    def done(self, step: int, tokens: int) -> None:
        """The run is trained, and its last checkpoint was told."""
        self._say("done", {"step": step, "tokens": tokens})

    def stopped(self, step: int, tokens: int) -> None:
        """It stopped as it was asked to, and its last checkpoint was told."""
        self._say("stopped", {"step": step, "tokens": tokens})

    def failed(self, failure: Failure) -> None:
        """It cannot go on."""
        said = {"code": failure.code, "message": failure.message, "infrastructure": failure.infrastructure}
        self._say("failed", said)

    def _say(self, kind: str, what: dict[str, Any]) -> None:
        with self._lock:
            self._out.write(json.dumps({kind: what}, allow_nan=False) + "\n")
            self._out.flush()


class Engine(Protocol):
    """A module of `sovereign_trainer.engines`."""

    def about(self) -> About:
        """What it can do here. It may import what it needs."""

    def run(self, job: Job, context: Context) -> None:
        """Train, and say done or stopped. It raises Failure."""


def finite(data: Mapping[str, float]) -> dict[str, float]:
    """The figures that JSON has a number for."""
    return {name: value for name, value in data.items() if math.isfinite(value)}


def load(name: str) -> Engine:
    """The engine of this name."""
    if name not in ENGINES:
        raise SystemExit(f"there is no engine {name!r}: choose one of {', '.join(ENGINES)}")
    engine: Any = importlib.import_module(f"sovereign_trainer.engines.{name}")
    return engine  # type: ignore[no-any-return]


def serve(name: str) -> int:
    """Do one job, as the supervisor's child."""
    out = _protocol_stream()
    context = Context(out)
    line = sys.stdin.readline()
    if not line:
        return 1
    job = Job(**json.loads(line))
    threading.Thread(target=_listen, args=(context,), daemon=True).start()
    try:
        load(name).run(job, context)
    except Failure as failure:
        context.failed(failure)
        return 1
    except OSError as error:
        context.failed(disk(error))
        return 1
    except MemoryError:
        context.failed(
            Failure("out_of_memory", "the engine had no memory left: take a smaller batch_size or max_length")
        )
        return 1
    return 0


def disk(error: OSError) -> Failure:
    """The failure of an engine whose disk fails: the machine is to blame."""
    return Failure("disk_failed", str(error), infrastructure=True)


def _protocol_stream() -> TextIO:
    """Standard output for us alone: what libraries print goes to standard error."""
    mine = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return os.fdopen(mine, "w", encoding="utf-8")


def _listen(context: Context) -> None:
    for line in sys.stdin:
        if line.strip() == "checkpoint_and_stop":
            context.want_stop()
        elif line.startswith("{"):
            context.answer(json.loads(line)["answer"])
    os._exit(1)  # the supervisor is dead


def main() -> int:
    """`NAME` trains; `NAME --about` says what it could."""
    name, *rest = sys.argv[1:] or [""]
    if rest == ["--about"]:
        out = _protocol_stream()
        out.write(json.dumps(asdict(load(name).about())) + "\n")
        out.flush()
        return 0
    return serve(name)


if __name__ == "__main__":
    from sovereign_trainer.engine import main as imported  # the engines know the module by this name

    code = imported()
    sys.stderr.flush()
    os._exit(code)  # the thread that reads standard input would hold up the end of the interpreter
