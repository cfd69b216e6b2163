"""An attempt: from the lease of a run to its end.

Threads send heartbeats, events and checkpoints, and read what the engine says. Each puts what it finds into one
mailbox, and one loop decides. So there is one place that knows how an attempt ends.
"""

from __future__ import annotations

import pathlib
import queue
import shutil
import signal
import threading
from collections.abc import Callable
from typing import Any

from . import files
from .child import Child
from .client import Lease
from .display import Display
from .engine import Job, disk
from .errors import Failure, Mismatch, Refused, Stopped, TrainerError
from .outbox import Outbox
from .relay import Relay
from .saver import Checkpoint, Saver, Told

GRACE = 900.0
"""How long an engine may take to save a checkpoint and stop, in seconds. Then it is killed."""

LAST_WORD = 60.0
"""How long a worker that was asked to leave tries to tell a server that is away how a run ended, in seconds."""

LOST = "lost"
LONGEST = 4000

MEMORY = ("out of memory", "OutOfMemoryError")
DISK = ("No space left on device", "Disk quota exceeded")


class Attempt:
    """One attempt at a run. `run` returns how it ended: succeeded, failed, stopped or lost."""

    def __init__(
        self, lease: Lease, engine: str, folder: pathlib.Path, display: Display, *,
        models: dict[str, str] | None = None, grace: float = GRACE,
    ) -> None:  # fmt: skip
        self.lease, self.engine, self.folder, self.display = lease, engine, folder, display
        self.models, self.grace = models or {}, grace
        self.mail: queue.SimpleQueue[tuple[Callable[..., None], tuple[Any, ...]]] = queue.SimpleQueue()
        self.result: dict[str, Any] | None = None
        self.child: Child | None = None
        self.stopping = ""  # why it saves and stops
        self.asked = 0  # how often it was asked to leave
        self.said: tuple[str, dict[str, Any]] | None = None  # the engine's last word
        self.code = 0
        begin = lease.resume_from["step"] if lease.resume_from else 0
        self.saved = begin if lease.resume_from else -1
        self.progress = (begin, lease.total_steps, 0)  # step, total steps, tokens
        self.ended = threading.Event()
        self.beats = 0
        self.beating = threading.Lock()

    def leave(self) -> None:
        """The worker ends: save and stop. The second time: stop at once, and do not wait for a server that is away.

        It may be called from a signal handler.
        """
        self.asked += 1
        if self.result is not None:
            timer = threading.Timer(LAST_WORD if self.asked == 1 else 0.0, self.lease.cancel.set)
            timer.daemon = True
            timer.start()
        self._post(self._on_leave)

    def run(self) -> str:
        """Train until the end, whatever that is."""
        self.folder.mkdir(parents=True, exist_ok=True)
        told = Told(
            lambda c, size: self._post(self._on_saved, c, size),
            lambda c: self._post(self._on_skipped, c),
            lambda error: self._post(self._on_broken, error),
            lambda: self._post(self._on_drained),
        )
        self.outbox = Outbox(self.lease, lambda error: self._post(self._on_broken, error))
        self.saver = Saver(self.lease, told)
        workers = [
            threading.Thread(target=target, daemon=True, name=target.__name__) for target in (self._beat, self._prepare)
        ]
        for worker in workers:
            worker.start()
        try:
            while self.result is None:
                handler, args = self.mail.get()
                handler(*args)
            return self._finish(self.result)
        finally:
            self.lease.cancel.set()
            self.ended.set()
            if self.child:
                self.child.close()
            self.saver.close()
            self.outbox.close()
            for worker in workers:
                worker.join()
            self.saver.join()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _post(self, handler: Callable[..., None], *args: Any) -> None:
        self.mail.put((handler, args))

    # What the threads do.

    def _beat(self) -> None:
        try:
            while not self.ended.is_set():
                self._beat_once()
                self.ended.wait(self.lease.beat_every)
        except TrainerError as error:
            self._post(self._on_broken, error)

    def _beat_once(self) -> None:
        with self.beating:
            self.beats += 1
            self._post(self._on_order, *self.lease.heartbeat(self.beats, *self.progress))

    def _prepare(self) -> None:
        try:
            files.fetch_all(self.lease, self.lease.inputs, self.folder / "inputs")
            resume = None
            if self.lease.resume_from:
                resume = self.folder / "resume"
                files.fetch_all(self.lease, self.lease.resume_from["files"], resume)
            self._post(self._on_ready, resume)
        except (Mismatch, Refused) as error:
            self._post(self._on_broken, Failure("download_failed", str(error), infrastructure=True))
        except TrainerError as error:
            self._post(self._on_broken, error)
        except OSError as error:
            self._post(self._on_broken, disk(error))

    # What becomes of it. These run in the loop alone.

    def _on_ready(self, resume: pathlib.Path | None) -> None:
        out = self.folder / "engine"
        out.mkdir()
        inputs = {source["name"]: str(self.folder / "inputs" / source["name"]) for source in self.lease.inputs}
        job = Job(
            self.lease.run, self.lease.method, self.lease.base_model, self.lease.spec, inputs, str(out),
            str(resume) if resume else None, self.models.get(self.lease.base_model), self.lease.secrets,
        )  # fmt: skip
        self.child = child = Child(
            self.engine, job, lambda said: self._post(self._on_said, said), lambda code: self._post(self._on_exit, code)
        )
        self.relay = Relay(self.lease, child.answer, self._beat_once, lambda error: self._post(self._on_broken, error))
        if resume:
            self.display.line(f"goes on from the checkpoint of step {self.saved}")

    def _on_said(self, said: dict[str, Any]) -> None:
        for kind, what in said.items():
            match kind:
                case "metrics":
                    self.outbox.metrics(what["step"], what["data"])
                    self.display.metrics(what["step"], what["tokens"], what["data"])
                case "message":
                    self.outbox.message(what["text"], what.get("level", "info"), what.get("step", 0))
                    self.display.line(what["text"])
                case "progress":
                    self.progress = (what["step"], what["total_steps"], what["tokens"])
                    self.display.progress(*self.progress)
                case "checkpoint":
                    self.saver.add(Checkpoint(what["step"], pathlib.Path(what["folder"]), what["metrics"]))
                case "score" | "tool":
                    self.relay.ask(kind, what)
                case "done" | "stopped" | "failed":
                    self.said = (kind, what)

    def _on_exit(self, code: int) -> None:
        self.code = code
        self.saver.close()

    def _on_saved(self, checkpoint: Checkpoint, size: int) -> None:
        self.saved = checkpoint.step
        self.display.line(f"saved the checkpoint of step {checkpoint.step} ({size:,} bytes)")

    def _on_skipped(self, checkpoint: Checkpoint) -> None:
        text = f"the checkpoint of step {checkpoint.step} was left out: newer ones waited for the server"
        self.outbox.message(text, "warn", checkpoint.step)
        self.display.line(text)

    def _on_drained(self) -> None:
        """The engine has ended, and its checkpoints are saved."""
        kind, what = self.said or ("", {})
        if kind == "failed":
            self._fail(Failure(what["code"], what["message"], infrastructure=what.get("infrastructure", False)))
        elif self.code == 0 and kind == "done" and self.saved == what["step"]:
            self._end("succeeded", what["tokens"])
        elif self.code == 0 and kind == "stopped":
            self._end("stopped", what["tokens"])
        else:
            self._fail(self._crash())

    def _on_order(self, command: str, reason: str) -> None:
        if command == "stop":
            self.display.line(f"stops at once: {reason}")
            self._end("stopped")
        elif command == "checkpoint_and_stop":
            self._stop_softly(reason)

    def _on_leave(self) -> None:
        if self.stopping:
            self._end("stopped")
        else:
            self._stop_softly("the worker ends")

    def _on_late(self) -> None:
        self.display.line("the engine does not stop, and is killed")
        self._end("stopped")

    def _on_broken(self, error: TrainerError) -> None:
        if isinstance(error, Failure):
            self._fail(error)
        elif not isinstance(error, Stopped):
            self.display.line(f"lost the run: {error}")
            self.result = {"outcome": LOST}

    def _stop_softly(self, reason: str) -> None:
        if self.stopping:
            return
        self.stopping = reason or "it was told to"
        self.display.line(f"saves and stops: {self.stopping}")
        if self.child is None:
            self._end("stopped")
            return
        self.child.tell("checkpoint_and_stop")
        timer = threading.Timer(self.grace, self._post, [self._on_late])
        timer.daemon = True
        timer.start()

    def _crash(self) -> Failure:
        """Why an engine ended that did not say so."""
        assert self.child
        words = self.child.last_words()
        if self.code == -signal.SIGKILL:
            return Failure("engine_killed", "the engine was killed: the machine may lack memory", infrastructure=True)
        if any(part in words for part in DISK):
            return Failure("disk_failed", words, infrastructure=True)
        if any(part in words for part in MEMORY):
            return Failure("out_of_memory", words)
        return Failure("engine_failed", words or f"the engine ended with code {self.code}, and said nothing")

    def _fail(self, failure: Failure) -> None:
        self.display.line(f"failed: {failure}")
        self._end("failed")
        assert self.result is not None
        self.result |= {"error_code": failure.code[:64], "error_message": failure.message[:LONGEST] or failure.code}
        if failure.infrastructure:
            self.result["infrastructure"] = True

    def _end(self, outcome: str, tokens: int | None = None) -> None:
        step = max(0, self.saved)
        self.result = {"outcome": outcome, "step": step, "tokens": self.progress[2] if tokens is None else tokens}

    def _finish(self, result: dict[str, Any]) -> str:
        """Tell the server how it ended. The engine is dead by then."""
        if self.child:
            self.child.close()
        if result["outcome"] == LOST:
            return LOST
        try:
            self.outbox.close()
            self.lease.done(result)
        except TrainerError as error:
            self.display.line(f"the server does not take the end: {error}")
            return LOST
        return str(result["outcome"])
