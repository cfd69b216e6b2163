"""Rollouts with environment tools: TRL calls them while it generates, and the server calls them for us."""

from __future__ import annotations

import json
from typing import Any

from ..engine import Context


class Tool(dict[str, Any]):
    """An environment tool. As a dictionary it is the schema that a chat template shows; TRL calls it by its name."""

    trainer: Any = None

    def __init__(self, context: Context, run: str, given: dict[str, Any]) -> None:
        shown = {"name": given["name"], "description": given["description"], "parameters": given["parameters"]}
        super().__init__(type="function", function=shown)
        self.__name__ = given["name"]
        self._context, self._run, self._id = context, run, given["id"]

    def __call__(self, **arguments: Any) -> str:
        step = self.trainer.state.global_step
        found = self._context.tool(self._id, arguments, f"{self._run}/{step}", step)
        return json.dumps({"error": found["error"]}) if found.get("error") else str(found["content"])


def said(completion: list[dict[str, Any]]) -> Any:
    """An answer as it is scored: a text, or the messages of a rollout with tools in OpenAI's form."""
    if len(completion) == 1 and not completion[0].get("tool_calls"):
        return completion[0].get("content") or ""
    made: list[dict[str, Any]] = []
    asked: list[str] = []  # calls without a result
    for message in completion:
        one = {"role": message["role"], "content": message.get("content") or ""}
        if message["role"] == "tool":
            one |= {"name": message["name"], "tool_call_id": asked.pop(0) if asked else ""}
        elif calls := message.get("tool_calls"):
            asked = [f"call_{len(made)}_{i}" for i in range(len(calls))]
            one["tool_calls"] = [called(*pair) for pair in zip(asked, calls, strict=True)]
        made.append(one)
    return made


def called(name: str, call: dict[str, Any]) -> dict[str, Any]:
    """A call of a tool, with its arguments as a text."""
    function = call.get("function") or {}
    arguments = json.dumps(function.get("arguments") or {}, sort_keys=True)
    return {"id": name, "type": "function", "function": {"name": function.get("name", ""), "arguments": arguments}}
