"""The worker's side of the protocol, over HTTP.

A call is tried again while the server is away or busy, for hours if need be: a killed server does not end a run. A
lease that is lost raises Stale.
"""

from __future__ import annotations

import email.utils
import errno
import http.client
import json
import random
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any

from .errors import Refused, Stale, Stopped, Unreachable

AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
"""These answers are of a server that is busy or away."""

PATIENCE = 6 * 3600.0
"""How long a call is tried again, in seconds. A server that restarts lets every lease live."""

TIMEOUT = 60.0
POLL_TIMEOUT = 45.0
"""The server answers a request for work within 30 s."""

SCORE_TIMEOUT = 130.0
"""The server answers a request for rewards within 110 s."""

LONGEST_PAUSE = 20.0

DISK = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ENOENT, errno.EACCES, errno.EMFILE}
)


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    body: bytes

    def json(self) -> dict[str, Any]:
        """The body as an object."""
        found = json.loads(self.body) if self.body else {}
        return found if isinstance(found, dict) else {}


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect could carry the token to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


@dataclass(frozen=True)
class Call:
    """A request that can be sent again. `body` is called for each try."""

    method: str
    url: str
    headers: dict[str, str]
    body: Callable[[], bytes | Iterator[bytes]] | None = None
    into: Callable[[IO[bytes]], None] | None = None  # reads a successful answer, in place of keeping it
    timeout: float = TIMEOUT

    def send(self) -> tuple[Answer, float]:
        """Send it once. It returns the answer, and how long the server asks to wait before the next try."""
        data: Any = self.body() if self.body else None
        request = urllib.request.Request(self.url, data, self.headers, method=self.method)
        try:
            with _OPENER.open(request, timeout=self.timeout) as response:
                if self.into is None:
                    return Answer(response.status, response.read()), 0.0
                self.into(response)
                return Answer(response.status, b""), 0.0
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.read()), retry_after(error.headers.get("Retry-After"))


class Client:
    """A server, and this worker's token. Threads may share it."""

    def __init__(self, url: str, token: str, *, patience: float = PATIENCE) -> None:
        self.url = url.rstrip("/") + "/workers/v1"
        self.patience = patience
        self.on_trouble: Callable[[str], None] = lambda _: None
        self._headers = {"Authorization": f"Bearer {token}"}

    def lease(self, info: dict[str, Any], cancel: threading.Event) -> dict[str, Any] | None:
        """Ask for work. None: there is none now."""
        text = json.dumps(info).encode()
        headers = {**self._headers, "Content-Type": "application/json"}
        call = Call("POST", self.url + "/lease", headers, lambda: text, timeout=POLL_TIMEOUT)
        found: dict[str, Any] | None = self.repeat(call, cancel).json().get("lease")
        return found

    def ours(self, method: str, path: str, query: dict[str, str], **options: Any) -> Call:
        """A call of the server's own, with the token."""
        headers = {**self._headers, **options.pop("headers", {})}
        return Call(method, f"{self.url}{path}?{urllib.parse.urlencode(query)}", headers, **options)

    def repeat(self, call: Call, cancel: threading.Event) -> Answer:
        """Send a call until there is an answer that stands. It raises Stale or Refused where that is a refusal."""
        deadline = time.monotonic() + self.patience
        tries = 0
        while True:
            if cancel.is_set():
                raise Stopped(call.url)
            try:
                answer, wanted = call.send()
                trouble = f"{answer.status} {answer.body[:200].decode(errors='replace')}"
            except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
                if local := _local(error):
                    raise local from None
                answer, wanted, trouble = Answer(0, b""), 0.0, f"{type(error).__name__}: {error}"
            if answer.status and answer.status not in AGAIN:
                return _checked(answer)
            pause = delay(tries, wanted)
            tries += 1
            if tries == 3:
                self.on_trouble(f"the server does not answer, and is tried again: {trouble}")
            if time.monotonic() + pause >= deadline:
                raise Unreachable(f"{call.method} {call.url.partition('?')[0]}: {trouble}")
            cancel.wait(pause)


def _local(error: BaseException) -> OSError | None:
    """The error of this machine's disk that is behind an error, and None for one of the network."""
    found = error.reason if isinstance(error, urllib.error.URLError) else error
    return found if isinstance(found, OSError) and found.errno in DISK else None


def _checked(answer: Answer) -> Answer:
    if answer.status < 300:
        return answer
    try:
        found = answer.json().get("error")
    except ValueError:
        found = None
    error = found if isinstance(found, dict) else {"message": str(found or answer.body[:200].decode(errors="replace"))}
    code, message = str(error.get("code") or ""), str(error.get("message") or "")
    if answer.status == 409 and code == "stale_lease":
        raise Stale(message)
    raise Refused(answer.status, code, message)


def retry_after(text: str | None) -> float:
    """The seconds that a Retry-After header asks to wait for: a number or a date."""
    if not text:
        return 0.0
    if text.strip().isdigit():
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except ValueError:
        return 0.0


def delay(tries: int, wanted: float) -> float:
    """How long to wait after so many failures: what the server asks for, and a random time that doubles, so that many
    workers do not come back at once."""
    return wanted + random.uniform(0.5, 1.0) * min(0.2 * 2.0 ** min(tries, 10), LONGEST_PAUSE)


class Lease:
    """A lease, and the calls that are made for it. `cancel` ends all of them."""

    def __init__(self, client: Client, given: dict[str, Any]) -> None:
        self.client = client
        self.cancel = threading.Event()
        self.run: str = given["run"]
        self.attempt: int = given["attempt"]
        self.method: str = given["method"]
        self.base_model: str = given["base_model"]
        self.total_steps: int = given.get("total_steps") or 0
        self.spec: dict[str, Any] = given["spec"]
        self.secrets: dict[str, str] = given.get("secrets") or {}
        self.inputs: list[dict[str, Any]] = given.get("inputs") or []
        self.resume_from: dict[str, Any] | None = given.get("resume_from")
        self.beat_every: float = given.get("heartbeat_seconds") or 5.0
        self._query = {"attempt": str(self.attempt), "fence": str(given["fence"])}

    def heartbeat(self, number: int, step: int, total_steps: int, tokens: int) -> tuple[str, str]:
        """Say that the run goes on. It returns the command and its reason."""
        body = {"number": number, "step": step, "total_steps": total_steps, "tokens": tokens}
        answer = self._post("heartbeat", body, timeout=15.0)
        return answer["command"], answer.get("reason") or ""

    def events(self, events: list[dict[str, Any]]) -> None:
        """Tell what happened."""
        self._post("events", {"events": events})

    def uploads(self, files: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Ask where files are sent to."""
        found: list[dict[str, Any]] = self._post("uploads", {"files": files})["files"]
        return found

    def commit(self, step: int, files: list[dict[str, Any]], metrics: dict[str, float]) -> str:
        """Commit a checkpoint whose files are all sent."""
        return str(self._post("checkpoints", {"step": step, "files": files, "metrics": metrics})["id"])

    def done(self, body: dict[str, Any]) -> None:
        """End the attempt."""
        self._post("done", body)

    def score(self, body: dict[str, Any]) -> dict[str, Any]:
        """Score completions by the reward session of the run."""
        return self._post("score", body, timeout=SCORE_TIMEOUT)

    def tool(self, tool: str, body: dict[str, Any]) -> dict[str, Any]:
        """Call a tool of the run."""
        return self._post(f"tools/{urllib.parse.quote(tool, safe='')}", body)

    def get(self, sha256: str, into: Callable[[IO[bytes]], None]) -> None:
        """Fetch a file through the server."""
        self.client.repeat(self._file("GET", sha256, into=into), self.cancel)

    def post(self, sha256: str, size: int, body: Callable[[], Iterator[bytes]]) -> None:
        """Send a file through the server."""
        headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
        self.client.repeat(self._file("POST", sha256, headers=headers, body=body), self.cancel)

    def transfer(self, call: Call) -> None:
        """Make a call to where the server has sent us, without our token."""
        self.client.repeat(call, self.cancel)

    def _file(self, method: str, sha256: str, **options: Any) -> Call:
        return self.client.ours(method, f"/runs/{self.run}/files/{sha256}", self._query, timeout=300.0, **options)

    def _post(self, what: str, body: dict[str, Any], timeout: float = TIMEOUT) -> dict[str, Any]:
        text = json.dumps(body, allow_nan=False).encode()
        headers = {"Content-Type": "application/json"}
        path = f"/runs/{self.run}/{what}"
        call = self.client.ours("POST", path, self._query, headers=headers, body=lambda: text, timeout=timeout)
        return self.client.repeat(call, self.cancel).json()
