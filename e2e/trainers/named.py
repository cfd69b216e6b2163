"""Becomes `transformers serve` for the folder of a model, under the name that requests have.

    python named.py WORK FOLDER NAME [options of transformers serve]

It knows a model by its path alone. So the name is a link to the folder, below WORK, and it is started there.
"""

from __future__ import annotations

import os
import pathlib
import sys

from transformers.cli.transformers import main


def link(work: pathlib.Path, folder: pathlib.Path, name: str) -> None:
    """Make the link, or point it at another folder. Replicas of one engine may do so at once."""
    at = work / name
    at.parent.mkdir(parents=True, exist_ok=True)
    new = at.with_name(f"{at.name}.{os.getpid()}")
    new.symlink_to(folder.resolve())
    new.replace(at)


if __name__ == "__main__":
    where, model, called, *options = sys.argv[1:]
    link(pathlib.Path(where), pathlib.Path(model), called)
    os.chdir(where)
    sys.argv = ["transformers", "serve", called, *options]
    main()
