"""The server of small models speaks OpenAI's API, and takes further models while it runs."""

from __future__ import annotations

import http.client
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
from typing import Any

from sovereign_trainer import serve
from sovereign_trainer.engines.bigram import END, SIZE, Bigram, write, zeros


def spelling(text: str, ends: bool = True) -> Bigram:
    """A model that writes one text, whose letters are different ones, and then ends or begins again."""
    table = zeros()
    for before, byte in zip(" " + text, [*text.encode(), END if ends else ord(text[0])], strict=False):
        table[ord(before)][byte] = 100.0
    table[ord(text[-1])][END if ends else ord(text[0])] = 100.0
    return Bigram(table)


def folder_of(model: Bigram, at: str) -> str:
    where = pathlib.Path(at)
    (where / "config.json").write_text(json.dumps({"model_type": "bigram", "vocab_size": SIZE}))
    write(where / "model.bin", model.table)
    return at


class ServeCase(unittest.TestCase):
    def setUp(self) -> None:
        self.server = serve.Server(("127.0.0.1", 0), serve.Models("base", spelling("abcdef")))
        runs = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        runs.start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(runs.join)
        self.addCleanup(self.server.shutdown)
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = made.name

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        line = http.client.HTTPConnection("127.0.0.1", self.server.server_port, timeout=60)
        self.addCleanup(line.close)
        line.request(method, path, None if body is None else json.dumps(body))
        answer = line.getresponse()
        return answer.status, answer.read()

    def chat(self, **more: Any) -> tuple[int, Any]:
        asked = {"model": "base", "messages": [{"role": "user", "content": "hello"}], **more}
        status, text = self.ask("POST", "/v1/chat/completions", asked)
        return status, json.loads(text)

    def events(self, **more: Any) -> list[Any]:
        asked = {"model": "base", "messages": [{"role": "user", "content": "hello"}], "stream": True, **more}
        status, text = self.ask("POST", "/v1/chat/completions", asked)
        self.assertEqual(status, 200)
        lines = text.decode().split("\n\n")
        self.assertEqual(lines[-2:], ["data: [DONE]", ""])
        return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]

    def said(self, **more: Any) -> tuple[str, str, int]:
        """What an answer says, why it ended and how many tokens it has: whole and streamed, the same."""
        status, whole = self.chat(**more)
        self.assertEqual(status, 200, whole)
        choice = whole["choices"][0]
        events = self.events(stream_options={"include_usage": True}, **more)
        self.assertEqual(
            "".join(e["choices"][0]["delta"].get("content", "") for e in events[:-1]), choice["message"]["content"]
        )
        self.assertEqual(events[-2]["choices"][0]["finish_reason"], choice["finish_reason"])
        self.assertEqual((events[-1]["choices"], events[-1]["usage"]), ([], whole["usage"]))
        return choice["message"]["content"], choice["finish_reason"], whole["usage"]["completion_tokens"]

    def test_answers_end_by_themselves_at_the_limit_or_at_a_stop(self) -> None:
        self.assertEqual(self.said(), ("abcdef", "stop", 6))
        self.assertEqual(self.said(max_tokens=3), ("abc", "length", 3))
        self.assertEqual(self.said(max_completion_tokens=2, max_tokens=5), ("ab", "length", 2))
        self.assertEqual(self.said(stop="d"), ("abc", "stop", 4))
        self.assertEqual(self.said(stop=["ef", "cde"]), ("ab", "stop", 5))
        self.assertEqual(self.said(stop=["bcx"]), ("abcdef", "stop", 6))  # held back, and sent

    def test_a_stream_without_include_usage_has_none(self) -> None:
        self.assertFalse(any("usage" in event for event in self.events()))

    def test_a_seed_gives_the_same_answer_and_no_heat_the_likeliest(self) -> None:
        self.server.models = serve.Models("base", Bigram.base())
        first, second, other = (self.chat(seed=seed, max_tokens=64)[1]["choices"][0]["message"] for seed in (1, 1, 2))
        self.assertEqual(first, second)
        self.assertNotEqual(first, other)
        cold = [self.chat(temperature=0, max_tokens=64)[1]["choices"][0]["message"] for _ in range(2)]
        self.assertEqual(cold[0], cold[1])

    def test_text_of_several_bytes_is_whole(self) -> None:
        self.server.models = serve.Models("base", Bigram.base())
        self.said(seed=3, max_tokens=200)  # random bytes: the stream and the whole answer agree

    def test_models_come_and_go(self) -> None:
        where = folder_of(spelling("xyz"), self.folder)
        load = {"lora_name": "ft/mine", "lora_path": where}
        self.assertEqual(self.chat(model="ft/mine")[0], 404)
        self.assertEqual(self.ask("POST", "/v1/load_lora_adapter", load)[0], 200)
        self.assertEqual(self.said(model="ft/mine")[0], "xyz")
        status, text = self.ask("POST", "/v1/load_lora_adapter", load)
        self.assertEqual((status, b"already been loaded" in text), (400, True))
        _, text = self.ask("GET", "/v1/models")
        self.assertEqual([m["id"] for m in json.loads(text)["data"]], ["base", "ft/mine"])
        self.assertEqual(self.ask("POST", "/v1/unload_lora_adapter", {"lora_name": "ft/mine"})[0], 200)
        self.assertEqual(self.ask("POST", "/v1/unload_lora_adapter", {"lora_name": "ft/mine"})[0], 404)
        self.assertEqual(self.ask("POST", "/v1/unload_lora_adapter", {"lora_name": "base"})[0], 404)
        self.assertEqual(self.chat(model="ft/mine")[0], 404)

    def test_a_folder_without_a_model_is_refused(self) -> None:
        for where, status in ((self.folder, 400), (self.folder + "/none", 404), ("", 400)):
            got, _ = self.ask("POST", "/v1/load_lora_adapter", {"lora_name": "x", "lora_path": where})
            self.assertEqual(got, status, where)

    def test_bad_requests_are_refused_with_a_reason(self) -> None:
        for more in (
            {"messages": []}, {"messages": [{"role": "user", "content": 5}]}, {"n": 2}, {"max_tokens": -1},
            {"temperature": 3}, {"stop": [1]}, {"seed": "x"},
        ):  # fmt: skip
            status, answer = self.chat(**more)
            self.assertEqual((status, bool(answer["error"]["message"])), (400, True), more)
        self.assertEqual(self.ask("POST", "/v1/chat/completions", [])[0], 400)
        self.assertEqual(self.ask("GET", "/v2")[0], 404)
        self.assertEqual(self.ask("GET", "/health"), (200, b""))

    def test_the_body_of_a_get_does_not_begin_the_next_request(self) -> None:
        line = http.client.HTTPConnection("127.0.0.1", self.server.server_port, timeout=60)
        self.addCleanup(line.close)
        for method, path in (("GET", "/v1/models"), ("GET", "/health"), ("GET", "/v1/models")):
            line.request(method, path, "null")
            answer = line.getresponse()
            answer.read()
            self.assertEqual(answer.status, 200)

    def test_many_at_once(self) -> None:
        got: list[str] = []
        each = [threading.Thread(target=lambda: got.append(self.said()[0])) for _ in range(16)]
        for one in each:
            one.start()
        for one in each:
            one.join()
        self.assertEqual(got, ["abcdef"] * 16)


class CommandCase(unittest.TestCase):
    def command(self, *more: str) -> subprocess.Popen[str]:
        args = [sys.executable, "-m", "sovereign_trainer", "serve", "--name", "m", "--port", "0", *more]
        started = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(started.communicate)
        self.addCleanup(started.kill)
        return started

    def test_it_serves_until_a_signal_comes(self) -> None:
        runs = self.command("--model", "tiny/bigram")
        assert runs.stdout
        self.assertIn("serves m on 127.0.0.1:", runs.stdout.readline())
        runs.send_signal(signal.SIGTERM)
        self.assertEqual(runs.wait(60), 0)

    def test_without_a_model_it_says_why_and_ends(self) -> None:
        runs = self.command("--model", "/nowhere")
        _, said = runs.communicate(timeout=60)
        self.assertEqual((runs.returncode, "no folder /nowhere" in said), (2, True))


if __name__ == "__main__":
    unittest.main()
