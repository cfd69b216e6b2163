"""Models are written as GGUF as llama.cpp reads them. `scripts/engines` holds it against a real llama-server."""

from __future__ import annotations

import argparse
import io
import json
import pathlib
import struct
import tempfile
import unittest
from typing import Any

from sovereign_trainer import gguf, llama

CONFIG = {
    "model_type": "llama", "max_position_embeddings": 64, "hidden_size": 8, "num_hidden_layers": 1, "vocab_size": 4,
    "intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-6,
    "eos_token_id": 1,
    "tie_word_embeddings": True, "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0},
}  # fmt: skip
LAYER = "model.layers.0."
SHAPES = {
    "model.embed_tokens.weight": [4, 8], "model.norm.weight": [8], LAYER + "input_layernorm.weight": [8],
    LAYER + "self_attn.q_proj.weight": [8, 8], LAYER + "self_attn.k_proj.weight": [4, 8],
}  # fmt: skip


def safetensors(path: pathlib.Path, shapes: dict[str, list[int]], kind: str = "F32") -> None:
    """Tensors whose elements are the numbers of their rows."""
    head: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, shape in shapes.items():
        width = shape[1] if len(shape) > 1 else 1
        rows = [float(row) for row in range(shape[0]) for _ in range(width)]
        wide = struct.pack(f"<{len(rows)}f", *rows)
        own = wide if kind == "F32" else b"".join(wide[i + 2 : i + 4] for i in range(0, len(wide), 4))
        head[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(own)]}
        data += own
    text = json.dumps(head).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class Reader:
    """Reads what was written."""

    def __init__(self, data: bytes) -> None:
        self.file = io.BytesIO(data)
        magic, version, tensors, fields = self.take("<4sIQQ")
        assert (magic, version) == (b"GGUF", 3)
        self.fields: dict[str, Any] = {}
        for _ in range(fields):
            key = self.text()
            self.fields[key] = self.value(self.take("<I")[0])
        self.shapes: dict[str, tuple[list[int], int, int]] = {}
        for _ in range(tensors):
            name = self.text()
            (count,) = self.take("<I")
            shape = list(self.take(f"<{count}Q"))
            self.shapes[name] = (shape, *self.take("<IQ"))  # type: ignore[assignment]
        self.start = -(-self.file.tell() // 32) * 32
        self.data = data

    def take(self, form: str) -> tuple[Any, ...]:
        return struct.unpack(form, self.file.read(struct.calcsize(form)))

    def text(self) -> str:
        return self.file.read(self.take("<Q")[0]).decode()

    def value(self, kind: int) -> Any:
        if kind == gguf.ARRAY:
            inner, count = self.take("<IQ")
            return [self.value(inner) for _ in range(count)]
        if kind == gguf.STRING:
            return self.text()
        return self.take({gguf.UINT32: "<I", gguf.INT32: "<i", gguf.FLOAT32: "<f", gguf.BOOL: "<?"}[kind])[0]

    def floats(self, name: str) -> list[float]:
        shape, kind, offset = self.shapes[name]
        assert (kind, offset % 32) == (0, 0), name
        count = 1
        for one in shape:
            count *= one
        return list(struct.unpack_from(f"<{count}f", self.data, self.start + offset))


class GGUFCase(unittest.TestCase):
    def setUp(self) -> None:
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = pathlib.Path(made.name) / "model"
        self.folder.mkdir()
        self.put("config.json", CONFIG)
        self.put("tokenizer.json", {
            "model": {"type": "BPE", "vocab": {"<p>": 0, "<e>": 1, "a": 2, "b": 3}, "merges": []},
            "added_tokens": [{"id": 0, "content": "<p>"}, {"id": 1, "content": "<e>"}],
        })  # fmt: skip
        (self.folder / "chat_template.jinja").write_text("{% generation %}x{%- endgeneration -%}\n")
        safetensors(self.folder / "model.safetensors", SHAPES)

    def put(self, name: str, what: Any) -> None:
        (self.folder / name).write_text(json.dumps(what))

    def written(self) -> Reader:
        out = io.BytesIO()
        gguf.model(self.folder, out)
        return Reader(out.getvalue())

    def test_the_file_has_the_model_and_its_tokens(self) -> None:
        found = self.written()
        for key, want in {
            "general.architecture": "llama", "llama.context_length": 64, "llama.rope.dimension_count": 4,
            "llama.rope.freq_base": 5000.0, "tokenizer.ggml.tokens": ["<p>", "<e>", "a", "b"],
            "tokenizer.ggml.token_type": [3, 3, 1, 1], "tokenizer.ggml.eos_token_id": 1,
            "tokenizer.ggml.add_bos_token": False, "tokenizer.chat_template": "x\n",
        }.items():  # fmt: skip
            self.assertEqual(found.fields[key], want, key)
        self.assertEqual(found.shapes["token_embd.weight"][0], [8, 4])
        self.assertEqual(found.floats("token_embd.weight")[::8], [0, 1, 2, 3])

    def test_rows_of_queries_and_keys_are_interleaved_by_head(self) -> None:
        found = self.written()
        self.assertEqual(found.floats("blk.0.attn_q.weight")[::8], [0, 2, 1, 3, 4, 6, 5, 7])
        self.assertEqual(found.floats("blk.0.attn_k.weight")[::8], [0, 2, 1, 3])

    def test_norms_of_half_precision_are_widened_and_others_copied(self) -> None:
        safetensors(self.folder / "model.safetensors", SHAPES, "BF16")
        found = self.written()
        self.assertEqual(found.floats("output_norm.weight"), [0, 1, 2, 3, 4, 5, 6, 7])
        self.assertEqual(found.shapes["token_embd.weight"][1], gguf.FORMATS["BF16"][0])

    def test_what_it_cannot_write_is_refused(self) -> None:
        for change in (
            {"model_type": "qwen2"}, {"rope_parameters": {"rope_type": "yarn"}},
        ):  # fmt: skip
            self.put("config.json", {**CONFIG, **change})
            self.assertRaises(gguf.Unsupported, self.written)
        self.put("config.json", CONFIG)
        safetensors(self.folder / "model.safetensors", {"model.layers.0.self_attn.q_proj.bias": [8]})
        self.assertRaises(gguf.Unsupported, self.written)

    def test_an_adapter_is_written_beside_its_base(self) -> None:
        adapter = self.folder.parent / "adapter"
        adapter.mkdir()
        (adapter / "adapter_config.json").write_text(json.dumps({"lora_alpha": 16}))
        name = "base_model.model.model.layers.0.self_attn.q_proj.lora_"
        safetensors(adapter / "adapter_model.safetensors", {name + "A.weight": [2, 8], name + "B.weight": [8, 2]})
        out = io.BytesIO()
        gguf.adapter(adapter, self.folder, out)
        found = Reader(out.getvalue())
        self.assertEqual((found.fields["adapter.type"], found.fields["adapter.lora.alpha"]), ("lora", 16))
        self.assertEqual(found.shapes["blk.0.attn_q.weight.lora_a"][0], [8, 2])
        self.assertEqual(found.floats("blk.0.attn_q.weight.lora_b")[::2], [0, 2, 1, 3, 4, 6, 5, 7])

    def test_a_model_is_written_once(self) -> None:
        asked = argparse.Namespace(
            model=str(self.folder),
            name="m",
            adapter="",
            adapter_name="",
            host="127.0.0.1",
            port=1,
            work=str(self.folder.parent),
        )
        first = llama.command(asked)
        written = pathlib.Path(first[first.index("--model") + 1])
        before = written.stat().st_mtime_ns
        self.assertEqual(llama.command(asked), first)
        self.assertEqual(written.stat().st_mtime_ns, before)
        self.put("config.json", {**CONFIG, "eos_token_id": 0})
        self.assertNotEqual(llama.command(asked), first)


if __name__ == "__main__":
    unittest.main()
