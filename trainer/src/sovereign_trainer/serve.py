"""`python -m sovereign_trainer serve`: serves the models of the engine `small` by OpenAI's API. It is for tests and for
trying things out, and needs nothing but Python.

Further models come and go while it runs, as vLLM's adapters do: POST /v1/load_lora_adapter and /v1/unload_lora_adapter.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import signal
import socketserver
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from .engines import answer, small
from .engines.bigram import Bigram, read

MOST = 32 << 20  # bytes of a request


class Refusal(Exception):
    """What a caller is told of a request that cannot be answered."""

    def __init__(self, status: int, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.param = status, param


def load(where: str) -> Bigram:
    """The model of a folder, or the base model by its id."""
    if where == small.MODEL:
        return Bigram.base()
    folder = pathlib.Path(where)
    if not folder.is_dir():
        raise Refusal(404, f"there is no folder {where}")
    try:
        kept = json.loads((folder / "config.json").read_text())
        if kept.get("model_type") != "bigram":
            raise ValueError(f"it is a {kept.get('model_type')}")
        (table,) = read(folder / "model.bin", 1)
    except (OSError, ValueError, AttributeError) as error:
        raise Refusal(400, f"{where} is no model of the engine small: {error}") from None
    return Bigram(table)


class Models:
    """The models by their names. The first one is the engine's own, and stays."""

    def __init__(self, name: str, model: Bigram) -> None:
        self.base = name
        self._lock = threading.Lock()
        self._all = {name: (model, int(time.time()))}

    def find(self, name: Any) -> Bigram:
        """The model of a name."""
        with self._lock:
            found = self._all.get(name) if isinstance(name, str) else None
        if found is None:
            raise Refusal(404, f"The model `{name}` does not exist.", "model")
        return found[0]

    def listed(self) -> list[dict[str, Any]]:
        """The models as OpenAI lists them."""
        with self._lock:
            kept = list(self._all.items())
        about = {"object": "model", "owned_by": "sovereign"}
        return [
            {"id": name, "created": at, "parent": None if name == self.base else self.base, **about}
            for name, (_, at) in kept
        ]

    def add(self, name: Any, where: Any) -> None:
        """Load a further model."""
        if not isinstance(name, str) or not isinstance(where, str) or not name or not where:
            raise Refusal(400, "Both 'lora_name' and 'lora_path' must be provided.")
        model = load(where)
        with self._lock:
            if name in self._all:
                raise Refusal(400, f"The lora adapter '{name}' has already been loaded.")
            self._all[name] = (model, int(time.time()))

    def drop(self, name: Any) -> None:
        """Unload a model. Answers that it is writing go on."""
        with self._lock:
            if name == self.base or name not in self._all:
                raise Refusal(404, f"The lora adapter '{name}' cannot be found.")
            del self._all[name]


class Server(ThreadingHTTPServer):
    """The server. `pace` is the time that a token takes, to try out what a slow model does."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], models: Models, pace: float = 0.0) -> None:
        self.models, self.pace = models, pace
        super().__init__(address, Handler)

    def server_bind(self) -> None:
        """Bind without asking the name service who we are."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that left is no error."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """A connection."""

    server: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 600

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""

    def do_GET(self) -> None:
        """Health and models."""
        self.rfile.read(int(self.headers.get("Content-Length") or 0))  # else it would begin the next request
        if self.path == "/health":
            self.send(200, b"", "text/plain")
        elif self.path == "/v1/models":
            self.send_json(200, {"object": "list", "data": self.server.models.listed()})
        else:
            self.refuse(Refusal(404, "Not Found"))

    def do_POST(self) -> None:
        """Answers, and models that come and go."""
        try:
            asked = self.body()
            models = self.server.models
            if self.path == "/v1/chat/completions":
                self.complete(asked)
            elif self.path == "/v1/load_lora_adapter":
                models.add(asked.get("lora_name"), asked.get("lora_path"))
                self.send(
                    200, f"Success: LoRA adapter '{asked['lora_name']}' added successfully.".encode(), "text/plain"
                )
            elif self.path == "/v1/unload_lora_adapter":
                models.drop(asked.get("lora_name"))
                self.send(200, f"Success: LoRA adapter '{asked['lora_name']}' removed.".encode(), "text/plain")
            else:
                raise Refusal(404, "Not Found")
        except Refusal as refusal:
            self.refuse(refusal)

    def body(self) -> dict[str, Any]:
        """The request's object."""
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > MOST:
            self.close_connection = True
            raise Refusal(413 if length.isdigit() else 411, f"a request has a Content-Length of at most {MOST}")
        try:
            found = json.loads(self.rfile.read(int(length)))
        except ValueError as error:
            raise Refusal(400, f"the request is no JSON: {error}") from None
        if not isinstance(found, dict):
            raise Refusal(400, "the request is no object")
        return found

    def complete(self, asked: dict[str, Any]) -> None:
        """Answer a chat."""
        model = self.server.models.find(asked.get("model"))
        try:
            wanted = answer.Wanted.of(asked)
        except ValueError as error:
            raise Refusal(400, str(error)) from None
        writer = answer.Writer(model, wanted, self.server.pace)
        head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": asked["model"]}
        if asked.get("stream"):
            options = asked.get("stream_options") or {}
            self.stream(events(head, writer, bool(options.get("include_usage"))))
            return
        text = "".join(writer)
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": writer.reason}
        self.send_json(200, {**head, "object": "chat.completion", "choices": [choice], "usage": writer.usage()})

    def stream(self, lines: Iterator[str]) -> None:
        """Send server-sent events as they come."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for line in lines:
            data = f"data: {line}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.write(b"0\r\n\r\n")

    def refuse(self, refusal: Refusal) -> None:
        """Say why not."""
        kind = {404: "NotFoundError"}.get(refusal.status, "BadRequestError")
        error = {"message": str(refusal), "type": kind, "param": refusal.param, "code": refusal.status}
        self.send_json(refusal.status, {"error": error})

    def send_json(self, status: int, what: Any) -> None:
        """Send an object."""
        self.send(status, json.dumps(what).encode(), "application/json")

    def send(self, status: int, data: bytes, kind: str) -> None:
        """Send an answer."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def events(head: dict[str, Any], writer: answer.Writer, usage: bool) -> Iterator[str]:
    """An answer as OpenAI streams it."""

    def chunk(choices: list[dict[str, Any]], **more: Any) -> str:
        return json.dumps({**head, "object": "chat.completion.chunk", "choices": choices, **more})

    def choice(delta: dict[str, Any], reason: str | None = None) -> list[dict[str, Any]]:
        return [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]

    yield chunk(choice({"role": "assistant", "content": ""}))
    for text in writer:
        yield chunk(choice({"content": text}))
    yield chunk(choice({}, writer.reason))
    if usage:
        yield chunk([], usage=writer.usage())
    yield "[DONE]"


def options(commands: Any) -> None:
    """Add the command's options."""
    found: argparse.ArgumentParser = commands.add_parser("serve", help="serve a model of the engine small")
    found.add_argument("--model", required=True, help=f"the folder of a model, or {small.MODEL}")
    found.add_argument("--name", required=True, help="what requests call it")
    found.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: 127.0.0.1)")
    found.add_argument("--port", type=int, required=True, help="the port to listen on")
    found.add_argument("--pace", type=float, default=0.0, metavar="SECONDS", help="time that a token takes, to try out")


def run(asked: argparse.Namespace) -> int:
    """Serve until a signal comes."""
    try:
        server = Server((asked.host, asked.port), Models(asked.name, load(asked.model)), asked.pace)
    except (Refusal, OSError) as error:
        print(f"sovereign-trainer: {error}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    print(f"serves {asked.name} on {asked.host}:{server.server_port}", flush=True)
    server.serve_forever(poll_interval=0.1)
    return 0
