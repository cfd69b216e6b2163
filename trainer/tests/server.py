"""The server's side of the protocol, in memory: one run, its leases, events, files and checkpoints."""

from __future__ import annotations

import hashlib
import json
import threading
import urllib.parse
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Fault = Callable[[str, str], int | None]
"""What a test does to a request (method, what): an HTTP status, 0 to close the connection, None to answer it."""

REFUSED = {"error": {"code": "stale_lease", "message": "this worker has no lease"}}


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Quiet(ThreadingHTTPServer):
    """Says nothing of clients that were killed."""

    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        pass


class Server:
    """Leases one run. `beat` is the seconds between heartbeats; `orders` answers each heartbeat's number."""

    def __init__(self, spec: dict[str, Any], inputs: dict[str, bytes], method: str = "sft", beat: float = 0.05) -> None:
        self.method, self.spec, self.beat_every = method, spec, beat
        self.base_model = "tiny/bigram"
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.files = {sha(content): content for content in inputs.values()}
        self.inputs = [self._source(name, content) for name, content in inputs.items()]
        self.attempt, self.leased = 0, False
        self.events: dict[tuple[int, int], Any] = {}
        self.beats: list[Any] = []
        self.checkpoints: dict[int, Any] = {}
        self.done: dict[int, Any] = {}
        self.uploads: list[str] = []
        self.fault: Fault = lambda *_: None
        self.order: Callable[[int], str] = lambda _: "continue"
        self.judge: Callable[[str], float | None] = lambda _: None
        self.scored: dict[tuple[str, str], float | None] = {}  # by step and id
        self.held = ""  # why there are no rewards
        self.pending = 0  # answers to score that say that judges are still at it
        self.called: list[Any] = []
        self.elsewhere = False  # files are sent to and fetched from another address
        self.lie: bytes | None = None  # what that address answers, whatever is asked of it
        self.short = False  # files that are fetched break off
        self.token_leaked = False
        self._http = Quiet(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def wait(self, ready: Callable[[], bool]) -> None:
        """Wait until something was asked that makes a condition true."""
        with self.changed:
            if not self.changed.wait_for(ready, 120):
                raise AssertionError("the worker does not do it")

    def lose(self) -> None:
        """The lease is lost: another worker may take the run."""
        with self.changed:
            self.leased = False
            self.fence = ""

    def metrics(self, name: str = "loss") -> dict[int, float]:
        """The figures by step."""
        with self.lock:
            told = [event for event in self.events.values() if event["type"] == "metrics"]
            return {event["step"]: event["data"][name] for event in told if name in event["data"]}

    def model(self) -> dict[str, str]:
        """The digests of the last checkpoint's files, without those of the trainer's state."""
        last = self.checkpoints[max(self.checkpoints)]
        return {file["name"]: file["sha256"] for file in last["files"] if not file["name"].startswith("state/")}

    def _source(self, name: str, content: bytes) -> dict[str, Any]:
        return {"name": name, "sha256": sha(content), "bytes": len(content), "url": ""}

    def _lease(self) -> dict[str, Any] | None:
        if self.leased or any(done["outcome"] in ("succeeded", "failed") for done in self.done.values()):
            return None
        self.attempt += 1
        self.leased, self.fence = True, f"fence-{self.attempt}"
        resume = None
        if self.checkpoints:
            step = max(self.checkpoints)
            resume = {"step": step, "files": [{**file, "url": ""} for file in self.checkpoints[step]["files"]]}
        sources = [{**source, "url": self._elsewhere(source["sha256"])} for source in self.inputs]
        return {
            "run": "ft_1", "attempt": self.attempt, "fence": self.fence, "method": self.method, "total_steps": 0,
            "base_model": self.base_model, "spec": self.spec, "inputs": sources, "resume_from": resume,
            "heartbeat_seconds": self.beat_every,
        }  # fmt: skip

    def _elsewhere(self, digest: str) -> str:
        return f"{self.url}/elsewhere/{digest}" if self.elsewhere else ""

    def _answer(self, method: str, what: str, query: dict[str, str], sent: bytes) -> tuple[int, Any]:
        if what == "lease":
            late = json.loads(sent).get("attempt", self.attempt + 1) != self.attempt + 1
            return (409, REFUSED) if late else (200, {"lease": self._lease()})
        if (query.get("attempt"), query.get("fence")) != (str(self.attempt), self.fence):
            return 409, REFUSED
        kind, _, digest = what.partition("/")
        if kind == "files" and method == "GET":
            return (200, self.files[digest]) if digest in self.files else (404, {"error": {"message": "no file"}})
        if kind == "files":
            return self._store(digest, sent)
        if kind == "tools":
            self.called.append((digest, json.loads(sent)))
            return 200, {"content": f"{digest} was called"}
        return getattr(self, "_" + kind)(json.loads(sent))  # type: ignore[no-any-return]

    def _store(self, digest: str, sent: bytes) -> tuple[int, Any]:
        if sha(sent) != digest:
            return 400, {"error": {"code": "invalid_parameter", "message": "other bytes"}}
        self.files[digest] = sent
        self.uploads.append(digest)
        return 204, b""

    def _heartbeat(self, body: Any) -> tuple[int, Any]:
        self.beats.append(body)
        return 200, {"command": self.order(body["number"]), "reason": "a test says so"}

    def _events(self, body: Any) -> tuple[int, Any]:
        new = {(self.attempt, event["number"]): event for event in body["events"]}
        kept = len(new.keys() - self.events.keys())
        self.events = {**new, **self.events}
        return 200, {"kept": kept}

    def _uploads(self, body: Any) -> tuple[int, Any]:
        return 200, {
            "files": [
                {**file, "stored": file["sha256"] in self.files, "url": self._elsewhere(file["sha256"])}
                for file in body["files"]
            ]
        }

    def _checkpoints(self, body: Any) -> tuple[int, Any]:
        if any(file["sha256"] not in self.files for file in body["files"]):
            return 400, {"error": {"code": "invalid_parameter", "message": "a file is not stored"}}
        self.checkpoints[body["step"]] = body
        return 200, {"id": f"ckpt_{body['step']}", "sha256": ""}

    def _score(self, body: Any) -> tuple[int, Any]:
        if self.held:
            return 412, {"error": {"code": self.held, "message": "a test holds it"}}
        self.pending -= 1
        flags, data = ["pending"] if self.pending >= 0 else [], []
        for item in body["items"]:
            found = None if flags else self.judge(item["completion"])
            data.append({"id": item["id"], "reward": found, "flags": flags})
            if not flags:
                self.scored[body["step"], item["id"]] = found
        return 200, {"rewards": [one["reward"] for one in data], "data": data, "held": False, "status": "ACTIVE"}

    def _done(self, body: Any) -> tuple[int, Any]:
        if body["outcome"] == "succeeded" and body["step"] not in self.checkpoints:
            return 409, {"error": {"code": "conflict", "message": "there is no checkpoint of that step"}}
        self.done[self.attempt] = body
        self.leased = False
        return 200, {}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        house = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self) -> None:
                sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                url = urllib.parse.urlsplit(self.path)
                what = url.path.removeprefix("/workers/v1/").removeprefix("runs/ft_1/").lstrip("/")
                query = dict(urllib.parse.parse_qsl(url.query))
                with house.changed:
                    status, body = self.answer(what, query, sent)
                    house.changed.notify_all()
                if status == 0:
                    self.close_connection = True
                    return
                text = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                if status != 204:
                    self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                if house.short and what.startswith("files/"):
                    text, self.close_connection = text[: len(text) // 2], True
                self.wfile.write(text)

            def answer(self, what: str, query: dict[str, str], sent: bytes) -> tuple[int, Any]:
                fault = house.fault(self.command, what)
                if fault is not None:
                    return fault, {"error": {"code": "unavailable", "message": "a test says so"}}
                if what.startswith("elsewhere/"):
                    house.token_leaked |= "Authorization" in self.headers
                    if house.lie is not None:
                        return 200, house.lie
                    digest = what.removeprefix("elsewhere/")
                    return (200, house.files[digest]) if self.command == "GET" else house._store(digest, sent)
                if self.headers.get("Authorization") != "Bearer wk_test":
                    return 401, {"error": {"code": "invalid_api_key", "message": "no token"}}
                return house._answer(self.command, what, query, sent)

            do_GET = do_POST = do_PUT = handle_one

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        return Handler
