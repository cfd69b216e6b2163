"""The promises of a worker: what it does when the server, the engine, the files or the worker itself fail."""

from __future__ import annotations

import io
import os
import pathlib
import random
import select
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
from typing import Any
from unittest import mock

from server import Server, sha
from test_small import CHAT, lines

from sovereign_trainer import child, client, files
from sovereign_trainer.client import Client, Lease
from sovereign_trainer.display import Display
from sovereign_trainer.errors import Refused, Stale, Unreachable
from sovereign_trainer.outbox import Outbox
from sovereign_trainer.supervisor import Attempt

SPEC = {
    "seed": 7,
    "format": "chat",
    "checkpoint_every": 10,
    "hyperparameters": {"epochs": 10_000_000, "max_steps": 40, "batch_size": 8, "learning_rate": 2e-4},
}
ENDLESS = {**SPEC, "hyperparameters": {**SPEC["hyperparameters"], "max_steps": 10_000_000}}


class WorkerCase(unittest.TestCase):
    def setUp(self) -> None:
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = pathlib.Path(made.name)
        patch = mock.patch.object(client, "delay", lambda tries, wanted: 0.01 + wanted / 100)
        patch.start()
        self.addCleanup(patch.stop)
        self.shown = io.StringIO()

    def serve(self, spec: Any = SPEC, rows: Any = CHAT, **options: Any) -> Server:
        content = rows if isinstance(rows, bytes) else lines(rows)
        server = Server(spec, {"train.jsonl": content}, **options)
        self.addCleanup(server.close)
        return server

    def lease(self, server: Server, **options: Any) -> Lease:
        given = Client(server.url, "wk_test", **options).lease({}, threading.Event())
        assert given
        return Lease(Client(server.url, "wk_test", **options), given)

    def attempt(self, server: Server, **options: Any) -> Attempt:
        lease = self.lease(server)
        folder = self.folder / f"attempt-{lease.attempt}"
        return Attempt(lease, "small", folder, Display(self.shown), **options)

    def begin(self, attempt: Attempt) -> threading.Thread:
        thread = threading.Thread(target=attempt.run, daemon=True)
        thread.start()
        return thread


class RunCase(WorkerCase):
    def test_a_run_is_trained_told_saved_and_ended(self) -> None:
        server = self.serve()
        self.assertEqual(self.attempt(server).run(), "succeeded")
        self.assertEqual(server.done[1]["step"], 40)
        self.assertGreater(server.done[1]["tokens"], 1000)
        self.assertEqual(sorted(server.checkpoints), [10, 20, 30, 40])
        names = [file["name"] for file in server.checkpoints[40]["files"]]
        self.assertEqual(names, ["config.json", "model.bin", "state/adam.bin", "state/trainer.json"])
        self.assertEqual(sorted(server.metrics()), list(range(1, 41)))
        self.assertEqual([number for _, number in sorted(server.events)], list(range(1, len(server.events) + 1)))
        self.assertEqual([beat["number"] for beat in server.beats], list(range(1, len(server.beats) + 1)))
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_files_elsewhere_are_reached_without_the_token(self) -> None:
        server = self.serve()
        server.elsewhere = True
        self.assertEqual(self.attempt(server).run(), "succeeded")
        self.assertFalse(server.token_leaked)

    def test_an_address_elsewhere_that_has_expired_is_left_for_the_server(self) -> None:
        server = self.serve()
        server.elsewhere = True
        server.fault = lambda _, what: 403 if what.startswith("elsewhere/") else None
        self.assertEqual(self.attempt(server).run(), "succeeded")
        self.assertEqual(sorted(server.checkpoints), [10, 20, 30, 40])

    def test_an_address_elsewhere_that_lies_loses_nothing(self) -> None:
        """It answers 200 to a file that it does not keep, and with other bytes to one that is fetched."""
        whole = self.serve()
        self.attempt(whole).run()
        for lie in (b"", b"<Error><Code>InternalError</Code></Error>", b"x" * 10_000_000):
            server = self.serve()
            server.elsewhere, server.lie = True, lie
            self.assertEqual(self.attempt(server).run(), "succeeded")
            self.assertEqual(server.model(), whole.model())

    def test_an_address_elsewhere_that_fails_is_left_for_the_server(self) -> None:
        for status in (0, 500, 503):
            server = self.serve()
            server.elsewhere = True
            server.fault = lambda _, what, status=status: status if what.startswith("elsewhere/") else None
            with mock.patch.object(client, "DIRECT_PATIENCE", 0.1):
                self.assertEqual(self.attempt(server).run(), "succeeded")
            self.assertEqual(sorted(server.checkpoints), [10, 20, 30, 40])

    def test_an_address_elsewhere_that_fails_at_random_changes_nothing(self) -> None:
        whole = self.serve()
        self.attempt(whole).run()
        rng = random.Random(5)
        server = self.serve()
        server.elsewhere = True
        server.fault = lambda _, what: rng.choice([None, 0, 500, 503]) if what.startswith("elsewhere/") else None
        self.assertEqual(self.attempt(server).run(), "succeeded")
        self.assertEqual(server.metrics(), whole.metrics())
        self.assertEqual(server.model(), whole.model())

    def test_bytes_that_always_break_off_are_given_up(self) -> None:
        server = self.serve()
        server.short = True
        self.assertEqual(self.attempt(server).run(), "failed")
        self.assertEqual(server.done[1]["error_code"], "download_failed")
        self.assertTrue(server.done[1]["infrastructure"])

    def test_a_full_disk_of_the_server_is_waited_for_and_then_the_machines_fault(self) -> None:
        server = self.serve()
        left = [5]

        def full(method: str, what: str) -> int | None:
            if method == "POST" and what.startswith("files/"):
                left[0] -= 1
                return 507 if left[0] >= 0 else None
            return None

        server.fault = full
        self.assertEqual(self.attempt(server).run(), "succeeded")
        self.assertEqual(sorted(server.checkpoints), [10, 20, 30, 40])
        server = self.serve()
        left[0], server.fault = 1_000_000, full
        with mock.patch.object(client, "FULL_PATIENCE", 0.1):
            self.assertEqual(self.attempt(server).run(), "failed")
        self.assertEqual(server.done[1]["error_code"], "checkpoint_refused")
        self.assertIn("507", server.done[1]["error_message"])
        self.assertTrue(server.done[1]["infrastructure"])
        self.assertEqual(server.checkpoints, {})

    def test_a_file_that_the_server_has_is_not_sent_again(self) -> None:
        server = self.serve()
        self.attempt(server).run()
        self.assertEqual(len(server.uploads), len(set(server.uploads)))

    def test_a_stopped_run_goes_on_elsewhere_as_if_it_had_not_been(self) -> None:
        whole = self.serve()
        self.attempt(whole).run()
        server = self.serve()
        first = self.attempt(server)
        server.order = lambda _: "checkpoint_and_stop" if first.child and server.attempt == 1 else "continue"
        self.assertEqual(first.run(), "stopped")
        self.assertLess(server.done[1]["step"], 40)
        self.assertEqual(self.attempt(server).run(), "succeeded")
        self.assertEqual(server.model(), whole.model())
        self.assertEqual(server.metrics()[40], whole.metrics()[40])


class ServerFaultCase(WorkerCase):
    def test_a_server_that_fails_at_random_changes_nothing(self) -> None:
        whole = self.serve()
        self.attempt(whole).run()
        rng = random.Random(3)
        server = self.serve()
        lease = self.lease(server)
        server.fault = lambda *_: rng.choice([None, None, 0, 429, 500, 503])
        attempt = Attempt(lease, "small", self.folder / "a", Display(self.shown))
        self.assertEqual(attempt.run(), "succeeded")
        self.assertEqual(server.metrics(), whole.metrics())
        self.assertEqual(server.model(), whole.model())

    def test_training_goes_on_while_the_server_is_away(self) -> None:
        server = self.serve()
        attempt = self.attempt(server)
        away = threading.Event()

        def fault(_: str, what: str) -> int | None:
            if what == "events":
                away.set()
            return 0 if away.is_set() and attempt.said is None else None  # until the engine is done

        server.fault = fault
        self.assertEqual(attempt.run(), "succeeded")
        self.assertEqual(sorted(server.metrics()), list(range(1, 41)))
        self.assertEqual(max(server.checkpoints), 40)

    def test_a_lost_lease_kills_the_engine_and_tells_nobody(self) -> None:
        server = self.serve(ENDLESS)
        attempt = self.attempt(server)
        thread = self.begin(attempt)
        server.wait(lambda: 10 in server.checkpoints)
        assert attempt.child
        pid = attempt.child.pid
        server.lose()
        thread.join(120)
        self.assertFalse(thread.is_alive())
        self.assertEqual(server.done, {})
        self.assertRaises(ProcessLookupError, os.kill, pid, 0)

    def test_stop_kills_the_engine(self) -> None:
        server = self.serve(ENDLESS)
        server.order = lambda _: "stop" if server.checkpoints else "continue"
        self.assertEqual(self.attempt(server).run(), "stopped")
        self.assertEqual(server.done[1]["outcome"], "stopped")

    def test_an_engine_that_does_not_stop_is_killed(self) -> None:
        server = self.serve(ENDLESS)
        server.order = lambda _: "checkpoint_and_stop" if server.checkpoints else "continue"
        attempt = self.attempt(server, grace=0.1)
        tell = child.Child.tell
        deaf = mock.patch.object(child.Child, "tell", lambda c, text: tell(c, text) if "{" in text else None)
        with deaf:
            self.assertEqual(attempt.run(), "stopped")
        self.assertIn("does not stop, and is killed", self.shown.getvalue())

    def test_a_file_with_other_bytes_is_never_used(self) -> None:
        server = self.serve()
        server.files[server.inputs[0]["sha256"]] = b"x" * server.inputs[0]["bytes"]
        self.assertEqual(self.attempt(server).run(), "failed")
        self.assertEqual((server.done[1]["error_code"], server.done[1]["infrastructure"]), ("download_failed", True))
        self.assertEqual(server.metrics(), {})

    def test_a_refused_checkpoint_ends_the_attempt_and_is_not_the_users_fault(self) -> None:
        server = self.serve()
        server.fault = lambda _, what: 400 if what == "checkpoints" else None
        self.assertEqual(self.attempt(server).run(), "failed")
        self.assertEqual((server.done[1]["error_code"], server.done[1]["infrastructure"]), ("checkpoint_refused", True))


class EngineFaultCase(WorkerCase):
    def test_wrong_rows_fail_the_run_with_their_line(self) -> None:
        server = self.serve(rows=b'{"prompt":"a","completion":"b"}\n{}\n')
        self.assertEqual(self.attempt(server).run(), "failed")
        done = server.done[1]
        self.assertEqual(done["error_code"], "invalid_data")
        self.assertIn("train.jsonl line 2", done["error_message"])
        self.assertNotIn("infrastructure", done)

    def test_an_engine_that_is_killed_is_the_machines_fault(self) -> None:
        server = self.serve(ENDLESS)
        attempt = self.attempt(server)
        thread = self.begin(attempt)
        server.wait(lambda: bool(server.checkpoints))
        assert attempt.child
        os.kill(attempt.child.pid, signal.SIGKILL)
        thread.join(120)
        self.assertEqual((server.done[1]["error_code"], server.done[1]["infrastructure"]), ("engine_killed", True))

    def test_an_engine_that_crashes_leaves_its_last_words(self) -> None:
        for words, code, infrastructure in (
            ("\x1b[31mValueError: no such layer\x1b[0m", "engine_failed", None),
            ("torch.OutOfMemoryError: CUDA out of memory", "out_of_memory", None),
            ("OSError: [Errno 28] No space left on device", "disk_failed", True),
        ):
            server = self.serve()
            program = f"import sys; sys.stdin.readline(); sys.stderr.write({words!r}); sys.exit(3)"
            with mock.patch.object(child, "command", lambda _, p=program: [sys.executable, "-c", p]):
                self.assertEqual(self.attempt(server).run(), "failed")
            done = server.done[1]
            self.assertEqual((done["error_code"], done.get("infrastructure")), (code, infrastructure))
            self.assertNotIn("\x1b", done["error_message"])

    def test_an_engine_dies_with_its_supervisor(self) -> None:
        server = self.serve(ENDLESS)
        token = self.folder / "token"
        token.write_text("wk_test\n")
        worker = start(server, token)
        server.wait(lambda: bool(server.checkpoints))
        (engine,) = children(worker.pid)
        gone = os.pidfd_open(engine)  # it can be read when the process has ended
        self.addCleanup(os.close, gone)
        worker.kill()
        worker.communicate()
        self.assertEqual(select.select([gone], [], [], 120)[0], [gone])

    def test_an_engine_that_says_nothing_dies_with_its_supervisor_too(self) -> None:
        program = (
            "import threading; from sovereign_trainer import engine;"
            "threading.Thread(target=engine._listen, args=(None,), daemon=True).start(); threading.Event().wait()"
        )
        ended = subprocess.run(
            [sys.executable, "-c", program], stdin=subprocess.DEVNULL, env=child.environment(), timeout=120, check=False
        )
        self.assertEqual(ended.returncode, 1)

    def test_a_signal_saves_and_stops(self) -> None:
        server = self.serve(ENDLESS)
        token = self.folder / "token"
        token.write_text("wk_test\n")
        worker = start(server, token)
        server.wait(lambda: bool(server.checkpoints))
        worker.terminate()
        out, _ = worker.communicate(timeout=120)
        self.assertEqual(worker.returncode, 0, out)
        self.assertEqual(server.done[1]["outcome"], "stopped")
        self.assertEqual(server.done[1]["step"], max(server.checkpoints))
        self.assertIn("saves and stops: the worker ends", out)

    def test_a_worker_of_one_attempt_asks_for_it_and_ends_when_it_will_not_come(self) -> None:
        server = self.serve()
        token = self.folder / "token"
        token.write_text("wk_test\n")
        for _ in range(2):  # the second one is too late
            worker = start(server, token, "--run", "ft_1", "--attempt", "1")
            out, _ = worker.communicate(timeout=120)
            self.assertEqual(worker.returncode, 0, out)
        self.assertIn("is not needed", out)
        self.assertEqual([server.attempt, server.done[1]["outcome"]], [1, "succeeded"])


class KillCase(WorkerCase):
    """kill -9 of the worker at random points: the same figures and the same model as a run that was left alone."""

    def test_a_killed_worker_costs_nothing_but_time(self) -> None:
        whole = self.serve()
        self.attempt(whole).run()
        token = self.folder / "token"
        token.write_text("wk_test\n")
        server = self.serve()
        rng = random.Random(11)
        for _ in range(3):
            seen = len(server.events) + rng.randrange(1, 15)
            worker = start(server, token)
            server.wait(lambda seen=seen: len(server.events) >= seen)
            worker.kill()
            worker.communicate()
            server.lose()
        if not server.done:
            worker = start(server, token)
            worker.communicate(timeout=120)
        self.assertEqual(max(server.checkpoints), 40)
        self.assertEqual(server.metrics()[40], whole.metrics()[40])
        self.assertEqual(server.model(), whole.model())


class PartsCase(WorkerCase):
    def test_retry_after_is_obeyed(self) -> None:
        self.assertEqual(client.retry_after("7"), 7)
        self.assertEqual(client.retry_after(None), 0)
        self.assertEqual(client.retry_after("nonsense"), 0)
        self.assertGreater(client.retry_after("Wed, 18 Nov 2099 05:00:00 GMT"), 1e6)

    def test_a_refusal_is_final_and_patience_ends(self) -> None:
        server = self.serve()
        lease = self.lease(server, patience=0.05)
        self.assertRaises(Refused, lease.get, "0" * 64, print)
        server.fault = lambda *_: 503
        self.assertRaises(Unreachable, lease.heartbeat, 1, 0, 0, 0)
        server.fault = lambda *_: None
        server.lose()
        self.assertRaises(Stale, lease.heartbeat, 1, 0, 0, 0)

    def test_events_that_wait_are_bounded(self) -> None:
        server = self.serve()
        lease = self.lease(server)
        gate = threading.Event()
        server.fault = lambda *_: None if gate.is_set() else 503
        outbox = Outbox(lease, print, most=10)
        for step in range(1000):
            outbox.metrics(step, {"loss": 1.0})
        gate.set()
        outbox.close()
        self.assertLessEqual(len(server.metrics()), 300)  # a batch that was on its way, and the last ten
        self.assertIn(999, server.metrics())

    def test_a_name_that_leaves_its_folder_is_refused(self) -> None:
        for name in ("../a", "/a", "a/../b", "", "a\\b", "./a"):
            with self.subTest(name), self.assertRaises(files.Mismatch):
                files.place(self.folder, name)
        self.assertEqual(files.place(self.folder, "state/a.bin"), self.folder / "state" / "a.bin")

    def test_a_folder_is_verified_by_its_manifest(self) -> None:
        (self.folder / "a").write_bytes(b"one")
        whole = [files.File("a", sha(b"one"), 3)]
        files.verify(self.folder, whole)
        for change in (lambda: (self.folder / "a").write_bytes(b"two"), lambda: (self.folder / "b").write_bytes(b"")):
            change()
            self.assertRaises(files.Mismatch, files.verify, self.folder, whole)

    def test_last_words_hide_secrets_and_control_characters(self) -> None:
        self.assertEqual(child.clean(["\x1b[1mkey sk_1\x00\r\n"], ["sk_1"]), "key [secret]")


def start(server: Server, token: pathlib.Path, *options: str) -> subprocess.Popen[str]:
    """A worker in a process of its own, for one run."""
    command = ["-m", "sovereign_trainer", "work", "--url", server.url, "--token-file", str(token), "--once", *options]
    return subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=child.environment()
    )


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                    found.append(int(entry.name))
            except OSError:
                continue
    return found
