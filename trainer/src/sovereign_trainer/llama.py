"""`python -m sovereign_trainer llama`: becomes llama-server (llama.cpp) for a model that was trained. What llama.cpp
cannot read is written as GGUF first, once."""

from __future__ import annotations

import argparse
import hashlib
import os
import pathlib
import sys
from collections.abc import Callable
from typing import BinaryIO

from . import gguf

PROGRAM = "SOVEREIGN_LLAMA_SERVER"
"""The variable that names the program, unless it is llama-server in the path."""


def once(work: pathlib.Path, source: pathlib.Path, write: Callable[[BinaryIO], None]) -> pathlib.Path:
    """The GGUF of a folder. It is named by the folder's files, and written unless it is there."""
    sums = hashlib.sha256(str(source.resolve()).encode())
    for path in sorted(source.iterdir()):
        about = path.stat()
        sums.update(f"{path.name} {about.st_size} {about.st_mtime_ns}\n".encode())
    found = work / "gguf" / f"{sums.hexdigest()[:32]}.gguf"
    if not found.exists():
        found.parent.mkdir(parents=True, exist_ok=True)
        torn = found.with_suffix(f".{os.getpid()}")
        with torn.open("wb") as to:
            write(to)
        torn.replace(found)
    return found


def command(asked: argparse.Namespace) -> list[str]:
    """The command of llama-server."""
    base, work = pathlib.Path(asked.model), pathlib.Path(asked.work)
    read = base
    if base.is_dir():
        read = once(work, base, lambda to: gguf.model(base, to))
    found = [
        os.environ.get(PROGRAM) or "llama-server", "--model", str(read), "--alias", asked.adapter_name or asked.name,
        "--host", asked.host, "--port", str(asked.port), "--offline", "--no-webui", "--jinja",
    ]  # fmt: skip
    if asked.adapter:
        if not base.is_dir():
            raise gguf.Unsupported("an adapter needs the folder of its base model, and not a GGUF")
        folder = pathlib.Path(asked.adapter)
        found += ["--lora", str(once(work, folder, lambda to: gguf.adapter(folder, base, to)))]
    return found


def options(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command's options."""
    found = commands.add_parser("llama", help="serve a model with llama-server")
    found.add_argument("--model", required=True, help="the folder of a model, or a file of GGUF")
    found.add_argument("--name", required=True, help="what requests call it")
    found.add_argument("--adapter", default="", metavar="FOLDER", help="a LoRA adapter of the model")
    found.add_argument("--adapter-name", default="", help="what requests call the model with its adapter")
    found.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: 127.0.0.1)")
    found.add_argument("--port", type=int, required=True, help="the port to listen on")
    found.add_argument("--work", required=True, metavar="FOLDER", help="where GGUF files are kept")


def run(asked: argparse.Namespace) -> int:
    """Become llama-server."""
    try:
        args = command(asked)
        os.execvp(args[0], args)
    except FileNotFoundError as error:
        print(f"sovereign-trainer: {error}: is llama-server (llama.cpp) installed? {PROGRAM} names it", file=sys.stderr)
    except (OSError, ValueError, KeyError) as error:
        print(f"sovereign-trainer: {error!r}", file=sys.stderr)
    return 2
