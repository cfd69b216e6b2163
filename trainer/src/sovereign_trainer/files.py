"""Files by their sha256: what a run reads, and its checkpoints. Nothing is used that was not verified."""

from __future__ import annotations

import hashlib
import http.client
import os
import pathlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

from .client import Call, Lease
from .errors import Mismatch, Refused, Unreachable

PART = 1 << 20
TRIES = 3
CUTS = 10
"""How often the bytes of one file may break off."""


@dataclass(frozen=True)
class File:
    """A file of a manifest. The name is a relative path with slashes."""

    name: str
    sha256: str
    bytes: int

    def body(self) -> dict[str, Any]:
        return {"name": self.name, "sha256": self.sha256, "bytes": self.bytes}


def parts(path: pathlib.Path) -> Iterator[bytes]:
    """The bytes of a file."""
    with path.open("rb") as file:
        while part := file.read(PART):
            yield part


def digest(path: pathlib.Path) -> tuple[str, int]:
    """The sha256 and the length of a file."""
    sha, size = hashlib.sha256(), 0
    for part in parts(path):
        sha.update(part)
        size += len(part)
    return sha.hexdigest(), size


def manifest(folder: pathlib.Path) -> list[File]:
    """The files in a folder, sorted by name."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            found.append(File(path.relative_to(folder).as_posix(), *digest(path)))
    return sorted(found, key=lambda file: file.name)


def verify(folder: pathlib.Path, files: list[File]) -> None:
    """Raise Mismatch unless the folder has these files and no others."""
    if manifest(folder) != sorted(files, key=lambda file: file.name):
        raise Mismatch(f"{folder.name} has other files than its manifest")


def place(folder: pathlib.Path, name: str) -> pathlib.Path:
    """Where a file of this name stands. Names that leave the folder are refused."""
    pure = pathlib.PurePosixPath(name)
    if not name or pure.is_absolute() or ".." in pure.parts or "\\" in name or "\0" in name or str(pure) != name:
        raise Mismatch(f"{name!r} is no plain relative path")
    return folder / pure


class Incoming:
    """A file that is being fetched. It is compared while it comes, and stands under its name when it is whole."""

    def __init__(self, file: File, folder: pathlib.Path) -> None:
        self.file, self.path = file, place(folder, file.name)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.part = self.path.with_name(self.path.name + ".part")
        self.cuts = 0
        self.whole = False

    def read(self, response: IO[bytes]) -> None:
        """Read an answer. One that breaks off is asked for again, some times."""
        sha, size = hashlib.sha256(), 0
        with self.part.open("wb") as out:
            while piece := response.read(PART):
                sha.update(piece)
                size += len(piece)
                out.write(piece)
        self.whole = (sha.hexdigest(), size) == (self.file.sha256, self.file.bytes)
        length = response.headers.get("Content-Length") if isinstance(response, http.client.HTTPResponse) else None
        if size < (int(length) if length else self.file.bytes):
            self.cuts += 1
            if self.cuts >= CUTS:
                raise Mismatch(f"{self.file.name}: its bytes broke off {self.cuts} times")
            raise http.client.IncompleteRead(b"", self.file.bytes - size)


def fetch(lease: Lease, source: dict[str, Any], folder: pathlib.Path) -> File:
    """Bring a file into a folder. Bytes that are not the named ones are fetched again, and then refused.

    An address outside the server that refuses, as it does after some minutes, that does not answer or has other bytes,
    is left for the server itself.
    """
    incoming = Incoming(File(source["name"], source["sha256"], source["bytes"]), folder)
    direct = bool(source.get("url"))
    try:
        for _ in range(TRIES):
            try:
                if direct:
                    headers = dict(source.get("headers") or {})
                    lease.transfer(Call("GET", source["url"], headers, into=incoming.read, timeout=300.0))
                else:
                    lease.get(incoming.file.sha256, incoming.read)
            except (Refused, Unreachable, Mismatch):
                if not direct:
                    raise
                incoming.cuts = 0
            if incoming.whole:
                os.replace(incoming.part, incoming.path)
                return incoming.file
            direct = False
    finally:
        incoming.part.unlink(missing_ok=True)
    raise Mismatch(f"{incoming.file.name}: the bytes that came are not those of its sha256")


def fetch_all(lease: Lease, sources: list[dict[str, Any]], folder: pathlib.Path) -> None:
    """Bring files into a folder, which then has these and no others."""
    folder.mkdir(parents=True, exist_ok=True)
    verify(folder, [fetch(lease, source, folder) for source in sources])


def send(lease: Lease, folder: pathlib.Path, files: list[File]) -> None:
    """Send files that the server does not have.

    What was sent to an address outside the server is asked for again: an answer of success alone does not say that the
    bytes are there. What is not there then goes through the server.
    """
    waiting = list({file.sha256: file for file in files}.values())
    for turn in range(TRIES):
        offers = lease.uploads([{"sha256": file.sha256, "bytes": file.bytes} for file in waiting])
        missing = [(file, to) for file, to in zip(waiting, offers, strict=True) if not to.get("stored")]
        waiting = [file for file, to in missing if _send(lease, folder / file.name, file, to if turn == 0 else {})]
        if not waiting:
            return


def _send(lease: Lease, path: pathlib.Path, file: File, to: dict[str, Any]) -> bool:
    """Send a file. It returns whether that was past the server."""
    if to.get("url"):
        headers = {**(to.get("headers") or {}), "Content-Length": str(file.bytes)}
        try:
            lease.transfer(Call("PUT", to["url"], headers, lambda: parts(path), timeout=300.0))
            return True
        except (Refused, Unreachable):
            pass  # it expired, or cannot be reached from here: the server takes the file itself
    lease.post(file.sha256, file.bytes, lambda: parts(path))
    return False
