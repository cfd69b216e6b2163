"""Checkpoints on their way to the server: the files first, and then the manifest that makes them one."""

from __future__ import annotations

import pathlib
import shutil
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from . import files
from .client import Lease
from .errors import Failure, Refused, TrainerError

MOST = 16
"""Checkpoints that wait while the server is away. The oldest ones are left out beyond that."""


@dataclass(frozen=True)
class Checkpoint:
    """A folder that the engine has completed."""

    step: int
    folder: pathlib.Path
    metrics: dict[str, float]


@dataclass(frozen=True)
class Told:
    """Where the saver reports to, from its thread."""

    saved: Callable[[Checkpoint, int], None]  # with its length in bytes
    skipped: Callable[[Checkpoint], None]
    broken: Callable[[TrainerError], None]
    drained: Callable[[], None]


class Saver:
    """Saves checkpoints in their order, from a thread of its own. Training goes on meanwhile."""

    def __init__(self, lease: Lease, told: Told, most: int = MOST) -> None:
        self._lease, self._told, self._most = lease, told, most
        self._waiting: deque[Checkpoint] = deque()
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)
        self._thread.start()

    def add(self, checkpoint: Checkpoint) -> None:
        """Save a checkpoint, when those before it are saved."""
        skipped = None
        with self._changed:
            self._waiting.append(checkpoint)
            if len(self._waiting) > self._most:
                skipped = self._waiting.popleft()
            self._changed.notify()
        if skipped:
            shutil.rmtree(skipped.folder, ignore_errors=True)
            self._told.skipped(skipped)

    def close(self) -> None:
        """No more follow. It says drained when all are saved."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def join(self) -> None:
        """Wait for its end."""
        self._thread.join()

    def _take(self) -> Checkpoint | None:
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            return self._waiting.popleft() if self._waiting else None

    def _run(self) -> None:
        try:
            while checkpoint := self._take():
                self._told.saved(checkpoint, self._save(checkpoint))
        except Refused as refused:
            self._told.broken(Failure("checkpoint_refused", str(refused), infrastructure=True))
        except TrainerError as error:
            self._told.broken(error)
        except OSError as error:
            self._told.broken(Failure("disk_failed", f"a checkpoint cannot be read: {error}", infrastructure=True))
        else:
            self._told.drained()

    def _save(self, checkpoint: Checkpoint) -> int:
        found = files.manifest(checkpoint.folder)
        files.send(self._lease, checkpoint.folder, found)
        self._lease.commit(checkpoint.step, [file.body() for file in found], checkpoint.metrics)
        shutil.rmtree(checkpoint.folder, ignore_errors=True)
        return sum(file.bytes for file in found)
