"""`tiny/llama`: a random transformer over bytes, the same for everyone. It is for trying out, and knows nothing."""

from __future__ import annotations

from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed

MODEL = "tiny/llama"
CONTEXT = 512
PARAMETERS = 1_210_240
SEED = 20_261_118

PAD, START, END = "<|pad|>", "<|start|>", "<|end|>"

TEMPLATE = """{%- for message in messages -%}
<|start|>{{ message.role }}
{% if message.role == 'assistant' %}{% generation %}{{ message.content }}<|end|>{% endgeneration %}\
{% else %}{{ message.content }}<|end|>{% endif %}
{% endfor -%}
{%- if add_generation_prompt -%}<|start|>assistant
{% endif -%}"""


def tokenizer() -> Any:
    """A token is a byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = {word: number for number, word in enumerate([PAD, START, END, *alphabet])}
    each = Tokenizer(models.BPE(vocab=words, merges=[]))
    each.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    each.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(
        tokenizer_object=each, pad_token=PAD, eos_token=END, additional_special_tokens=[START], padding_side="left",
        model_max_length=CONTEXT,
    )  # fmt: skip
    made.chat_template = TEMPLATE
    return made


def model(words: Any) -> Any:
    """The base model."""
    set_seed(SEED)
    config = LlamaConfig(
        vocab_size=len(words), hidden_size=160, intermediate_size=448, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=CONTEXT, tie_word_embeddings=True, bos_token_id=None,
        eos_token_id=words.eos_token_id, pad_token_id=words.pad_token_id,
    )  # fmt: skip
    made = LlamaForCausalLM(config)
    made.config._name_or_path = MODEL
    return made
