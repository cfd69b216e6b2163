"""A local HTTP server that answers as a test says, and keeps what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = tuple[int, Any] | tuple[int, Any, dict[str, str]] | None
"""Status, body, headers. None: the connection is closed without an answer."""


class Server:
    """Answers each request with what `reply` returns for it."""

    def __init__(self, reply: Callable[[str, str, Any], Reply]) -> None:
        asked = self.asked = []  # (method, path, body)
        lock = threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self) -> None:
                sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                body = json.loads(sent) if sent else None
                with lock:
                    asked.append((self.command, self.path, body))
                    answer = reply(self.command, self.path, body)
                if answer is None:
                    self.close_connection = True
                    return
                text = answer[1] if isinstance(answer[1], bytes) else json.dumps(answer[1]).encode()
                self.send_response(answer[0])
                for name, value in (answer[2] if len(answer) > 2 else {}).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_DELETE = handle_one

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def scored(self) -> list[Any]:
        """The bodies of the score calls."""
        return [body for _, path, body in self.asked if path.endswith("/score")]

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


def graded(body: Any, reward: Callable[[Any], float | None], **more: Any) -> dict[str, Any]:
    """The server's answer to a score call."""
    data = [
        {"id": item["id"], "reward": (r := reward(item)), "verdict": "pass" if r else "fail", "grades": [], "flags": []}
        for item in body["items"]
    ]
    rewards = [one["reward"] for one in data]
    return {"rewards": rewards, "data": data, "held": False, "status": "ACTIVE", "spent_usd": 0.25, **more}


def refused(code: str | None, message: str) -> dict[str, Any]:
    """The error envelope."""
    return {"error": {"message": message, "type": "invalid_request_error", "code": code}}
