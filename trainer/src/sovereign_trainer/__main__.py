"""`python -m sovereign_trainer work --url URL --token-file FILE`, `serve` and `llama`"""

from __future__ import annotations

import argparse
import pathlib
import sys

from . import llama, serve
from .client import Client
from .display import Display
from .engine import ENGINES
from .errors import TrainerError
from .worker import Worker, work_folder

COMMANDS = {"serve": serve.run, "llama": llama.run}


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="sovereign-trainer", description="Trains runs of a Sovereign server.")
    commands = found.add_subparsers(dest="command", required=True)
    work = commands.add_parser("work", help="lease runs and train them, until a signal comes")
    work.add_argument("--url", required=True, help="the server, such as http://127.0.0.1:8080")
    work.add_argument(
        "--token-file", required=True, help="a file with the token that `admin worker create` has printed"
    )
    work.add_argument("--engine", choices=ENGINES, default="small", help="what trains (default: small)")
    work.add_argument("--model", action="append", default=[], metavar="ID=FOLDER", help="a base model on this disk")
    work.add_argument("--gpu-type", default="", help="the name of the price for this machine's GPUs")
    work.add_argument("--work", metavar="FOLDER", help="where attempts keep their files (default: a temporary folder)")
    work.add_argument("--once", action="store_true", help="end after one run; the exit code is 1 if it did not succeed")
    work.add_argument("--run", default="", metavar="ID", help="train this run alone; with --attempt")
    work.add_argument("--attempt", type=int, default=0, metavar="N", help="the attempt that the worker was started for")
    serve.options(commands)
    llama.options(commands)
    return found


def main() -> int:
    """Run a command."""
    options = parser().parse_args()
    if options.command in COMMANDS:
        return COMMANDS[options.command](options)
    display = Display()
    try:
        token = pathlib.Path(options.token_file).read_text(encoding="utf-8").strip()
        models = dict(text.split("=", 1) for text in options.model)
        with work_folder(options.work) as folder:
            client = Client(options.url, token)
            worker = Worker(
                client, options.engine, folder, display=display, models=models, gpu_type=options.gpu_type,
                only=(options.run, options.attempt),
            )  # fmt: skip
            worker.listen()
            outcome = worker.run(options.once)
    except (TrainerError, OSError, ValueError) as error:
        print(f"sovereign-trainer: {error}", file=sys.stderr)
        return 2
    return 0 if not options.once or worker.leaving.is_set() or outcome == "succeeded" else 1


if __name__ == "__main__":
    sys.exit(main())
