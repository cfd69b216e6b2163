"""A model that calls a tool, in rollouts of GRPO with real TRL."""

from __future__ import annotations

import pathlib
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
import trl
from server import Server
from test_small import lines
from test_trl import Case

from sovereign_trainer.engines import tiny
from sovereign_trainer.engines.trl_tools import said

TOOL = {
    "id": "tool_1", "name": "search", "description": "d",
    "parameters": {"type": "object", "properties": {"q": {"type": "string"}}},
}  # fmt: skip
ASKED = [{"role": "user", "content": "find it"}]
CALL = {"role": "assistant", "content": "", "tool_calls": [
    {"type": "function", "function": {"name": "search", "arguments": {"q": "it"}}},
]}  # fmt: skip
FOUND = {"role": "tool", "name": "search", "content": "tool_1 was called"}
ANSWER = {"role": "assistant", "content": "there"}


class ToolCase(Case):
    def base(self) -> pathlib.Path:
        """A tiny model that has learned to call the tool, and to answer then."""
        shape = replace(tiny.SHAPES[tiny.MODEL], context=1536)
        patches = {"START": "<|im_start|>", "END": "<|im_end|>", "SHAPES": {tiny.MODEL: shape}}
        with mock.patch.multiple(tiny, **patches):
            words = tiny.tokenizer()
            model = tiny.model(words)
        words.chat_template = (pathlib.Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja").read_text()
        shown = {
            "tools": [{"type": "function", "function": {k: TOOL[k] for k in ("name", "description", "parameters")}}]
        }
        texts = []
        for before in (ASKED, [*ASKED, CALL, FOUND]):
            prompt = words.apply_chat_template(before, add_generation_prompt=True, tokenize=False, **shown)
            answer = (
                '<tool_call>\n{"name": "search", "arguments": {"q": "it"}}\n</tool_call>'
                if len(before) == 1
                else "there"
            )
            texts.append((prompt, answer + words.eos_token))
        learn(model, words, texts)
        folder = self.folder / "base"
        model.save_pretrained(folder)
        words.save_pretrained(folder)
        return folder

    def test_the_model_calls_a_tool_through_the_server_and_its_rollout_is_scored(self) -> None:
        folder = self.base()
        settings = {
            "max_steps": 2, "group_size": 2, "prompts_per_step": 1, "max_completion_tokens": 400, "max_turns": 3,
            "learning_rate": 1e-6, "temperature": 0.1,
        }  # fmt: skip
        spec = {"seed": 7, "checkpoint_every": 2, "lora": None, "hyperparameters": settings, "tools": [TOOL]}
        server = Server(spec, {"prompts.jsonl": lines([{"messages": ASKED}])}, "grpo", beat=0.2)
        self.addCleanup(server.close)
        server.base_model = "local/tool"
        scored: list[Any] = []
        server.judge = lambda completion: scored.append(completion) or 1.0  # type: ignore[func-returns-value]
        self.assertEqual(self.attempt(server, {"local/tool": str(folder)}).run(), "succeeded", server.done)
        self.assertIn(("tool_1", {"arguments": {"q": "it"}, "rollout_id": "ft_1/0", "step": 0}), server.called)
        rollout = next(one for one in scored if isinstance(one, list))
        self.assertEqual([message["role"] for message in rollout], ["assistant", "tool", "assistant"])
        self.assertEqual(rollout[0]["tool_calls"][0]["function"], {"name": "search", "arguments": '{"q": "it"}'})
        self.assertEqual(rollout[1]["tool_call_id"], rollout[0]["tool_calls"][0]["id"])
        self.assertEqual(rollout[2]["content"], "there")

    def test_a_template_without_tools_is_refused(self) -> None:
        server = self.serve("grpo", [{"messages": ASKED}], max_steps=1)
        server.spec["tools"] = [TOOL]
        self.assertEqual(self.attempt(server).run(), "failed")
        self.assertEqual(server.done[1]["error_code"], "unsupported_tools")

    def test_a_plain_answer_is_a_text(self) -> None:
        self.assertEqual(said([ANSWER]), "there")
        self.assertEqual(said([{"role": "assistant"}]), "")


def learn(model: Any, words: Any, texts: list[tuple[str, str]], steps: int = 400) -> None:
    """Memorise answers to prompts."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(steps):
        loss = torch.zeros(())
        for prompt, answer in texts:
            asked, said_ = (words(text, add_special_tokens=False)["input_ids"] for text in (prompt, answer))
            labels = torch.tensor([[-100] * len(asked) + said_])
            loss = loss + model(input_ids=torch.tensor([asked + said_]), labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if float(loss) < 0.02:
            break
    print(f"the base model has learned to call a tool: loss {float(loss):.4f}")
