"""The rows of a training file: JSON lines, in one of three formats. The server has validated them; a row that is wrong
all the same fails the run with its line number.

    chat               {"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]}
    prompt_completion  {"prompt": "…", "completion": "…"}
    preference         {"prompt": "…", "chosen": "…", "rejected": "…"}, each a text or messages
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from typing import Any

from .errors import Failure

Row = dict[str, Any]


def rows(path: str | pathlib.Path) -> Iterator[tuple[str, Row]]:
    """The rows of a file, each with the words that name its line."""
    file = pathlib.Path(path)
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            where = f"{file.name} line {number}"
            try:
                row = json.loads(line)
            except ValueError as error:
                raise invalid(where, f"is no JSON: {error}") from None
            if not isinstance(row, dict):
                raise invalid(where, "is no object")
            yield where, row


def invalid(where: str, what: str) -> Failure:
    """The refusal of a row."""
    return Failure("invalid_data", f"{where}: {what}")


def messages(where: str, row: Row, name: str) -> list[Row]:
    """The messages of a field, whose contents are texts. A text is one message: the user's prompt, or the answer."""
    found = row.get(name)
    if isinstance(found, str):
        return [{"role": "user" if name == "prompt" else "assistant", "content": found}]
    if not isinstance(found, list) or not found:
        raise invalid(where, f"{name} is no text and no list of messages")
    for message in found:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise invalid(where, f"{name} has a message without a role")
    return [{**message, "content": text(where, message.get("content"))} for message in found]


def text(where: str, content: Any) -> str:
    """The text of a message: a text, parts of text, or none beside tool calls."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    if not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in parts):
        raise invalid(where, "a message has content that is no text")
    return "".join(part["text"] for part in parts)


def conversation(where: str, row: Row) -> list[Row]:
    """A row of the formats chat and prompt_completion as messages, whose last one is the assistant's."""
    if "messages" in row:
        found = messages(where, row, "messages")
        if not any(message["role"] == "assistant" for message in found):
            raise invalid(where, "no message is the assistant's")
        return found
    if "completion" not in row:
        raise invalid(where, "has neither messages nor prompt and completion")
    return messages(where, row, "prompt") + messages(where, row, "completion")


def preference(where: str, row: Row) -> tuple[list[Row], list[Row], list[Row]]:
    """The prompt, the chosen and the rejected answer of a row. OpenAI's names for them are understood too."""
    if "input" in row:
        row = {
            "prompt": (row["input"] or {}).get("messages"),
            "chosen": row.get("preferred_output"),
            "rejected": row.get("non_preferred_output"),
        }
    return messages(where, row, "prompt"), messages(where, row, "chosen"), messages(where, row, "rejected")
