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
from .errors import Mismatch, Refused

PART = 1 << 20
TRIES = 3


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


def fetch(lease: Lease, source: dict[str, Any], folder: pathlib.Path) -> File:
    """Bring a file into a folder. Bytes that are not the named ones are fetched again, and then refused.

    An address outside the server that refuses, as it does after some minutes, is left for the server itself.
    """
    file = File(source["name"], source["sha256"], source["bytes"])
    path = place(folder, file.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    direct = bool(source.get("url"))
    for left in range(TRIES - 1, -1, -1):
        sha, size = hashlib.sha256(), 0

        def into(response: IO[bytes]) -> None:
            nonlocal sha, size
            sha, size = hashlib.sha256(), 0
            with part.open("wb") as out:
                while piece := response.read(PART):
                    sha.update(piece)
                    size += len(piece)
                    out.write(piece)
            if size < file.bytes:
                raise http.client.IncompleteRead(b"", file.bytes - size)

        try:
            if direct:
                lease.transfer(Call("GET", source["url"], dict(source.get("headers") or {}), into=into, timeout=300.0))
            else:
                lease.get(file.sha256, into)
        except Refused:
            if not direct:
                raise
            direct = False
            continue
        if (sha.hexdigest(), size) == (file.sha256, file.bytes):
            os.replace(part, path)
            return file
        if left == 0:
            break
    part.unlink(missing_ok=True)
    raise Mismatch(f"{file.name}: the bytes that came are not those of its sha256")


def fetch_all(lease: Lease, sources: list[dict[str, Any]], folder: pathlib.Path) -> None:
    """Bring files into a folder, which then has these and no others."""
    folder.mkdir(parents=True, exist_ok=True)
    verify(folder, [fetch(lease, source, folder) for source in sources])


def send(lease: Lease, folder: pathlib.Path, files: list[File]) -> None:
    """Send files that the server does not have."""
    by_digest = {file.sha256: file for file in files}
    asked = [{"sha256": file.sha256, "bytes": file.bytes} for file in by_digest.values()]
    for file, to in zip(by_digest.values(), lease.uploads(asked), strict=True):
        if not to.get("stored"):
            _send(lease, folder / file.name, file, to)


def _send(lease: Lease, path: pathlib.Path, file: File, to: dict[str, Any]) -> None:
    if to.get("url"):
        headers = {**(to.get("headers") or {}), "Content-Length": str(file.bytes)}
        try:
            lease.transfer(Call("PUT", to["url"], headers, lambda: parts(path), timeout=300.0))
            return
        except Refused:
            pass  # it expired: the server takes the file itself
    lease.post(file.sha256, file.bytes, lambda: parts(path))
