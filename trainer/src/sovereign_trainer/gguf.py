"""Writes models as GGUF, the file that llama.cpp reads: those of Llama's architecture, with weights in safetensors and
a tokenizer over bytes, and LoRA adapters of them. In plain Python: tensors are copied and never computed with.
"""

from __future__ import annotations

import json
import pathlib
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

VERSION, ALIGNMENT = 3, 32
UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
NORMAL, CONTROL = 1, 3
"""The types of tokens."""

FORMATS = {"F32": (0, 4), "F16": (1, 2), "BF16": (30, 2)}
"""The number of a format in GGUF, and its bytes."""

LAYERS = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip
OTHERS = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


class Unsupported(ValueError):
    """The model cannot be written."""


@dataclass
class Tensor:
    """A tensor: its shape with the rows first, and its bytes."""

    name: str
    shape: list[int]
    format: str
    data: bytes


def tensors(path: pathlib.Path) -> Iterator[Tensor]:
    """The tensors of a file of safetensors."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        head = json.loads(file.read(length))
        start = 8 + length
        for name, one in head.items():
            if name == "__metadata__":
                continue
            if one["dtype"] not in FORMATS:
                raise Unsupported(f"{name} is of {one['dtype']}: only {', '.join(FORMATS)} can be written")
            begin, end = one["data_offsets"]
            file.seek(start + begin)
            yield Tensor(name, one["shape"], one["dtype"], file.read(end - begin))


def renamed(name: str) -> str:
    """The name of a layer in GGUF."""
    if found := re.fullmatch(r"model\.layers\.(\d+)\.(.+)", name):
        if found[2] in LAYERS:
            return f"blk.{found[1]}.{LAYERS[found[2]]}"
    elif name in OTHERS:
        return OTHERS[name]
    raise Unsupported(f"{name} is no layer of Llama's architecture")


def interleave(one: Tensor, heads: int) -> Tensor:
    """llama.cpp turns neighbouring rows of a head together, and transformers those half a head apart."""
    rows = one.shape[0]
    width, half = len(one.data) // rows, rows // heads // 2
    order = (head * 2 * half + part * half + at for head in range(heads) for at in range(half) for part in range(2))
    return Tensor(one.name, one.shape, one.format, b"".join(one.data[r * width : (r + 1) * width] for r in order))


def widen(one: Tensor) -> Tensor:
    """A tensor of 32 bits: llama.cpp has norms in no other format."""
    if one.format == "F32":
        return one
    count = len(one.data) // 2
    if one.format == "BF16":
        data = b"".join(b"\0\0" + one.data[2 * i : 2 * i + 2] for i in range(count))
    else:
        data = struct.pack(f"<{count}f", *struct.unpack(f"<{count}e", one.data))
    return Tensor(one.name, one.shape, "F32", data)


def text(value: str) -> bytes:
    """A text with its length."""
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def value(kind: int, of: Any) -> bytes:
    """A value of a kind."""
    if kind == STRING:
        return text(of)
    return struct.pack({UINT32: "<I", INT32: "<i", FLOAT32: "<f", BOOL: "<?"}[kind], of)


class Writer:
    """A file: what is known of the model, and then its tensors."""

    def __init__(self) -> None:
        self.fields: list[bytes] = []
        self.tensors: list[Tensor] = []

    def field(self, key: str, kind: int, of: Any) -> None:
        """Add a value."""
        self.fields.append(text(key) + struct.pack("<I", kind) + value(kind, of))

    def array(self, key: str, kind: int, of: list[Any]) -> None:
        """Add a list of values."""
        head = struct.pack("<IIQ", ARRAY, kind, len(of))
        self.fields.append(text(key) + head + b"".join(value(kind, one) for one in of))

    def write(self, to: BinaryIO) -> None:
        """Write everything."""
        to.write(b"GGUF" + struct.pack("<IQQ", VERSION, len(self.tensors), len(self.fields)) + b"".join(self.fields))
        offset = 0
        for one in self.tensors:
            shape = one.shape[::-1]  # the columns first
            number = FORMATS[one.format][0]
            to.write(text(one.name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, number, offset))
            offset += -(-len(one.data) // ALIGNMENT) * ALIGNMENT
        for one in self.tensors:
            to.write(b"\0" * (-to.tell() % ALIGNMENT))
            to.write(one.data)


def read_json(path: pathlib.Path) -> dict[str, Any]:
    """A file's object."""
    found = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise Unsupported(f"{path.name} is no object")
    return found


def model(folder: pathlib.Path, to: BinaryIO) -> None:
    """Write the model of a folder."""
    config = read_json(folder / "config.json")
    if config.get("model_type") != "llama":
        raise Unsupported(f"a model of the type {config.get('model_type')} cannot be written: llama alone")
    out = Writer()
    shape(out, config)
    vocabulary(out, folder, config)
    for path in sorted(folder.glob("*.safetensors")):
        for one in tensors(path):
            name = one.name.removesuffix(".weight")
            if name == "lm_head" and config.get("tie_word_embeddings"):
                continue
            out.tensors.append(converted(one, renamed(name) + ".weight", config))
    out.write(to)


def converted(one: Tensor, name: str, config: dict[str, Any]) -> Tensor:
    """A tensor as llama.cpp has it."""
    one = Tensor(name, one.shape, one.format, one.data)
    if ".attn_q." in name:
        return interleave(one, config["num_attention_heads"])
    if ".attn_k." in name:
        return interleave(one, config["num_key_value_heads"])
    return widen(one) if len(one.shape) == 1 else one


def shape(out: Writer, config: dict[str, Any]) -> None:
    """What the model is like."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if rope.get("rope_type", "default") != "default":
        raise Unsupported(f"positions of the type {rope['rope_type']} cannot be written")
    heads = config["num_attention_heads"]
    out.field("general.architecture", STRING, "llama")
    out.field("general.name", STRING, str(config.get("_name_or_path") or "model"))
    for key, name in {
        "context_length": "max_position_embeddings", "embedding_length": "hidden_size",
        "block_count": "num_hidden_layers",
        "feed_forward_length": "intermediate_size", "attention.head_count": "num_attention_heads",
        "attention.head_count_kv": "num_key_value_heads", "vocab_size": "vocab_size",
    }.items():  # fmt: skip
        out.field(f"llama.{key}", UINT32, config[name])
    out.field("llama.rope.dimension_count", UINT32, config.get("head_dim") or config["hidden_size"] // heads)
    out.field("llama.attention.layer_norm_rms_epsilon", FLOAT32, config["rms_norm_eps"])
    theta = config.get("rope_theta") or rope.get("rope_theta") or 10000.0
    out.field("llama.rope.freq_base", FLOAT32, theta)


def vocabulary(out: Writer, folder: pathlib.Path, config: dict[str, Any]) -> None:
    """The tokens: BPE over bytes."""
    kept = read_json(folder / "tokenizer.json")
    if kept["model"]["type"] != "BPE":
        raise Unsupported(f"a tokenizer of the type {kept['model']['type']} cannot be written: BPE alone")
    known = dict(kept["model"]["vocab"])
    special = {one["content"]: one["id"] for one in kept["added_tokens"]}
    known |= special
    words = [word for word, _ in sorted(known.items(), key=lambda pair: pair[1])]
    merges = [one if isinstance(one, str) else " ".join(one) for one in kept["model"].get("merges") or []]
    out.field("tokenizer.ggml.model", STRING, "gpt2")
    out.field("tokenizer.ggml.pre", STRING, "llama-bpe" if merges else "default")
    out.array("tokenizer.ggml.tokens", STRING, words)
    out.array("tokenizer.ggml.token_type", INT32, [CONTROL if word in special else NORMAL for word in words])
    # llama.cpp wants one at least. The byte 255 is in no text.
    out.array("tokenizer.ggml.merges", STRING, merges or ["\u00ff \u00ff"])
    for name, key in {
        "eos_token_id": "eos_token_id",
        "pad_token_id": "padding_token_id",
        "bos_token_id": "bos_token_id",
    }.items():
        number = config.get(name)
        number = number[0] if isinstance(number, list) else number
        if number is not None:
            out.field(f"tokenizer.ggml.{key}", UINT32, number)
    out.field("tokenizer.ggml.add_bos_token", BOOL, config.get("bos_token_id") is not None)
    if template := chat_template(folder):
        out.field("tokenizer.chat_template", STRING, template)


def chat_template(folder: pathlib.Path) -> str:
    """The template of chats, without the marks that only a trainer reads."""
    alone = folder / "chat_template.jinja"
    if alone.exists():
        found = alone.read_text(encoding="utf-8")
    else:
        found = str(read_json(folder / "tokenizer_config.json").get("chat_template") or "")
    return re.sub(r"\{%-?\s*(end)?generation\s*-?%\}", "", found)


def adapter(folder: pathlib.Path, base: pathlib.Path, to: BinaryIO) -> None:
    """Write the LoRA adapter of a folder, of the base model in another."""
    kept, config = read_json(folder / "adapter_config.json"), read_json(base / "config.json")
    if kept.get("use_dora") or kept.get("modules_to_save") or kept.get("rank_pattern") or kept.get("use_rslora"):
        raise Unsupported("an adapter with more than plain LoRA cannot be written")
    out = Writer()
    out.field("general.architecture", STRING, "llama")
    out.field("general.type", STRING, "adapter")
    out.field("adapter.type", STRING, "lora")
    out.field("adapter.lora.alpha", FLOAT32, float(kept["lora_alpha"]))
    for one in tensors(folder / "adapter_model.safetensors"):
        found = re.fullmatch(r"base_model\.model\.(.+)\.lora_([AB])\.weight", one.name)
        if not found:
            raise Unsupported(f"{one.name} is no part of a LoRA adapter")
        name = renamed(found[1])
        part = Tensor(f"{name}.weight.lora_{found[2].lower()}", one.shape, one.format, one.data)
        if found[2] == "B" and name.endswith(("attn_q", "attn_k")):
            part = interleave(part, config["num_attention_heads" if name.endswith("q") else "num_key_value_heads"])
        out.tensors.append(part)
    out.write(to)
