"""A worker: it asks for work, and does it, until it is told to end."""

from __future__ import annotations

import contextlib
import fcntl
import pathlib
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from . import __version__, child
from .client import Client, Lease
from .display import Display
from .engine import About
from .errors import Stale, Stopped, TrainerError
from .supervisor import Attempt


class _Leave(Exception):
    """Ends the wait for work."""


class Worker:
    """A worker with one engine."""

    def __init__(
        self, client: Client, engine: str, work: pathlib.Path, *,
        display: Display | None = None, models: dict[str, str] | None = None, gpu_type: str = "",
        only: tuple[str, int] = ("", 0),
    ) -> None:  # fmt: skip
        self.client, self.engine, self.work = client, engine, work
        self.display = display or Display()
        self.models, self.gpu_type = models or {}, gpu_type
        self.only = only  # the run and the attempt that it was started for; all, when the run is empty
        self.leaving = threading.Event()
        self.attempt: Attempt | None = None
        self.polling = False
        client.on_trouble = self.display.line

    def run(self, once: bool = False) -> str:
        """Work until a signal comes, or for one run. It returns how the last one ended."""
        info = self.info(child.about(self.engine))
        outcome = ""
        self.display.line(f"asks {self.client.url} for work, with the engine {self.engine} on {info['gpu_type']}")
        while not self.leaving.is_set() and not (once and outcome):
            try:
                given = self._ask(info)
            except _Leave:
                break
            except Stale as error:
                self.display.line(f"is not needed: {error}")
                self.leaving.set()
                break
            if given is not None:
                outcome = self._train(Lease(self.client, given))
        return outcome

    def info(self, about: About) -> dict[str, Any]:
        """What the server is told of this worker."""
        known = [asdict(model) for model in about.models]
        known += [{"id": name, "parameters": 0, "context_window": 0, "random": False} for name in self.models]
        run, attempt = self.only
        return {
            "release": __version__, "engine": self.engine, "methods": about.methods, "models": known,
            "gpu_type": self.gpu_type or about.gpu_type, "gpu_count": about.gpu_count,
            **({"run": run, "attempt": attempt} if run else {}),
        }  # fmt: skip

    def leave(self, *_: Any) -> None:
        """Save, stop and end. It is a signal handler of the main thread."""
        self.leaving.set()
        if self.attempt:
            self.attempt.leave()
        elif self.polling:
            raise _Leave

    def listen(self) -> None:
        """Leave on SIGTERM and SIGINT."""
        signal.signal(signal.SIGTERM, self.leave)
        signal.signal(signal.SIGINT, self.leave)

    def _ask(self, info: dict[str, Any]) -> dict[str, Any] | None:
        try:
            self.polling = True
            if self.leaving.is_set():
                return None
            return self.client.lease(info, self.leaving)
        except Stopped:
            return None
        finally:
            self.polling = False

    def _train(self, lease: Lease) -> str:
        self.display.begin(lease.run)
        self.display.line(f"attempt {lease.attempt}: {lease.method} of {lease.base_model}")
        folder = self.work / f"{lease.run}.{lease.attempt}"
        self.attempt = Attempt(lease, self.engine, folder, self.display, models=self.models)
        if self.leaving.is_set():
            self.attempt.leave()
        try:
            outcome = self.attempt.run()
        finally:
            self.attempt = None
        self.display.end()
        self.display.line(f"attempt {lease.attempt} {outcome}")
        return outcome


@contextlib.contextmanager
def work_folder(named: str | None) -> Iterator[pathlib.Path]:
    """A folder for attempts. A named one is this worker's alone, and what a killed worker left in it is deleted."""
    if named is None:
        with tempfile.TemporaryDirectory(prefix="sovereign-trainer-") as made:
            yield pathlib.Path(made)
        return
    folder = pathlib.Path(named).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise TrainerError(f"another worker works in {folder}") from None
        attempts = folder / "attempts"
        shutil.rmtree(attempts, ignore_errors=True)
        attempts.mkdir()
        yield attempts
