"""What is scored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Message = Mapping[str, Any]


@dataclass(frozen=True)
class Item:
    """A completion to score. A prompt is a text or OpenAI's messages; a completion is a text or, in an agentic session,
    the messages of a trajectory. The label is kept with the item."""

    prompt: str | Sequence[Message]
    completion: str | Sequence[Message]
    label: str | None = None

    @property
    def id(self) -> str:
        """The id follows from the content alone. A run that is resumed sends the same ids, and pays nothing again."""
        text = json.dumps([self.prompt, self.completion, self.label], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def body(self, item_id: str) -> dict[str, Any]:
        """The item as the server reads it. item_id is its id, computed once."""
        prompt = {"prompt": self.prompt} if isinstance(self.prompt, str) else {"messages": list(self.prompt)}
        completion = self.completion if isinstance(self.completion, str) else list(self.completion)
        label = {} if self.label is None else {"label": self.label}
        return {"id": item_id, **prompt, "completion": completion, **label}


def text_of(completion: str | Sequence[Message]) -> str | Sequence[Message]:
    """The text of a completion that is one message of plain text, and else the completion itself."""
    if isinstance(completion, str) or len(completion) != 1:
        return completion
    message = completion[0]
    content = message.get("content")
    return content if isinstance(content, str) and set(message) <= {"role", "content"} else completion
