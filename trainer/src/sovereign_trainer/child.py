"""The engine's process. It is the leader of a session, and dies with everything that it has started."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from .engine import About, Job, Model
from .errors import Failure

LAST_LINES = 20
ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[@-Z\\-_])")
HIDDEN = re.compile(r"[^\t\x20-\x7e\xa0-\uffff]")


def environment() -> dict[str, str]:
    """The environment of an engine: it finds this package wherever it runs, and this worker's token nowhere."""
    source = str(pathlib.Path(__file__).resolve().parent.parent)
    path = [source, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    own = {name: value for name, value in os.environ.items() if not name.startswith("SOVEREIGN_WORKER_")}
    return {**own, "PYTHONPATH": os.pathsep.join(os.path.abspath(part) for part in path), "PYTHONUNBUFFERED": "1"}


def command(engine: str) -> list[str]:
    return [sys.executable, "-m", "sovereign_trainer.engine", engine]


def about(engine: str) -> About:
    """Ask an engine what it can do here."""
    asked = subprocess.run(
        [*command(engine), "--about"],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
        stdin=subprocess.DEVNULL,
    )
    if asked.returncode != 0:
        raise Failure("engine_failed", f"the engine {engine} does not start here:\n{clean(asked.stderr.splitlines())}")
    found = json.loads(asked.stdout)
    return About(**{**found, "models": [Model(**model) for model in found["models"]]})


def clean(lines: Iterable[str], secrets: Iterable[str] = ()) -> str:
    """The last lines of an output, for people: without escape sequences and without secrets."""
    kept = [HIDDEN.sub("", ESCAPE.sub("", line)).rstrip()[:500] for line in list(lines)[-LAST_LINES:]]
    text = "\n".join(line for line in kept if line)[-3000:]
    for secret in secrets:
        if secret:
            text = text.replace(secret, "[secret]")
    return text


class Child:
    """A running engine. `line` gets each of its JSON lines, and `ended` its exit code after the last one."""

    def __init__(
        self, engine: str, job: Job, line: Callable[[dict[str, Any]], None], ended: Callable[[int], None]
    ) -> None:
        self._line, self._ended = line, ended
        self._secrets = list(job.secrets.values())
        self._errors: deque[str] = deque(maxlen=LAST_LINES)
        self._process = subprocess.Popen(
            command(engine), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=job.folder,
            start_new_session=True, env=environment(), text=True, encoding="utf-8", errors="replace", bufsize=1,
        )  # fmt: skip
        self._telling = threading.Lock()
        self._reaped = threading.Lock()
        self._gone = False
        self._reader = threading.Thread(target=self._read, name="engine", daemon=True)
        self._listener = threading.Thread(target=self._listen, name="engine errors", daemon=True)
        self._listener.start()
        self._reader.start()
        self.tell(json.dumps(asdict(job)))

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self, text: str) -> None:
        """Write a line to the engine. One that has ended does not read it. Threads may tell at once."""
        assert self._process.stdin
        with self._telling, contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(text + "\n")
            self._process.stdin.flush()

    def answer(self, answer: dict[str, Any]) -> None:
        """Answer a question of the engine."""
        self.tell(json.dumps({"answer": answer}))

    def kill(self) -> None:
        """Kill the engine, and what it has started."""
        with self._reaped:
            if not self._gone:
                self._kill_group()

    def close(self) -> None:
        """Kill it, and wait until nothing of it is left."""
        self.kill()
        self._reader.join()

    def last_words(self) -> str:
        """The last lines of its standard error."""
        return clean(self._errors, self._secrets)

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _read(self) -> None:
        assert self._process.stdout
        for text in self._process.stdout:
            try:
                said = json.loads(text)
            except ValueError:
                continue
            if isinstance(said, dict):
                self._line(said)
        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        with self._reaped:  # its number is its own until it is reaped
            self._kill_group()
            code = self._process.wait()
            self._gone = True
        self._listener.join()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream:
                with contextlib.suppress(OSError):
                    stream.close()
        self._ended(code)

    def _listen(self) -> None:
        assert self._process.stderr
        for text in self._process.stderr:
            self._errors.append(text)
