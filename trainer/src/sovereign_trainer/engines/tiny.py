"""Random transformers over bytes, the same for everyone: `tiny/llama` for trying out on any machine, and a larger one
for measuring a GPU. They know nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed

SEED = 20_261_118


@dataclass(frozen=True)
class Shape:
    """A model's size."""

    parameters: int
    context: int
    hidden: int
    between: int
    layers: int
    heads: int
    shared: int  # heads of keys and values


MODEL, LARGE = "tiny/llama", "random/llama-142m"
SHAPES = {
    MODEL: Shape(1_210_240, 512, 160, 448, 4, 4, 2),
    LARGE: Shape(141_584_384, 1024, 1024, 2816, 11, 16, 16),
}

PAD, START, END = "<|pad|>", "<|start|>", "<|end|>"

TEMPLATE = """{%- for message in messages -%}
<|start|>{{ message.role }}
{% if message.role == 'assistant' %}{% generation %}{{ message.content }}<|end|>{% endgeneration %}\
{% else %}{{ message.content }}<|end|>{% endif %}
{% endfor -%}
{%- if add_generation_prompt -%}<|start|>assistant
{% endif -%}"""


def tokenizer(name: str = MODEL) -> Any:
    """A token is a byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = {word: number for number, word in enumerate([PAD, START, END, *alphabet])}
    each = Tokenizer(models.BPE(vocab=words, merges=[]))
    each.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    each.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(
        tokenizer_object=each, pad_token=PAD, eos_token=END, additional_special_tokens=[START], padding_side="left",
        model_max_length=SHAPES[name].context,
    )  # fmt: skip
    made.chat_template = TEMPLATE
    return made


def model(words: Any, name: str = MODEL) -> Any:
    """The base model."""
    set_seed(SEED)
    shape = SHAPES[name]
    config = LlamaConfig(
        vocab_size=len(words), hidden_size=shape.hidden, intermediate_size=shape.between,
        num_hidden_layers=shape.layers, num_attention_heads=shape.heads, num_key_value_heads=shape.shared,
        max_position_embeddings=shape.context, tie_word_embeddings=True, bos_token_id=None,
        eos_token_id=words.eos_token_id, pad_token_id=words.pad_token_id,
    )  # fmt: skip
    made = LlamaForCausalLM(config)
    made.config._name_or_path = name
    return made
