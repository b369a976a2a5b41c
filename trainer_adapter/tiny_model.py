"""Tiny untrained models: weights for any vocabulary, and a general chat model of bytes, with tools and reasoning."""

# transformers and tokenizers are untyped
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from transformers.utils.logging import disable_progress_bar

from agent_layer.errors import EngineError

_END, _PAD = "<|im_end|>", "<|endoftext|>"
_MARKS: Final = ("<tool_call>", "</tool_call>", "<think>", "</think>")
"""Tokens that stay in the text, because parsers look for them."""

CHAT_TEMPLATE: Final = """\
{%- set thinking = enable_thinking | default(false) %}
{%- if tools %}<|im_start|>system
Tools:
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}To call one, write <tool_call>
{"name": NAME, "arguments": OBJECT}
</tool_call><|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{% set reasoning = message.reasoning if message.reasoning is string else message.reasoning_content %}
{%- if reasoning is string %}<think>
{{ reasoning }}</think>{% endif %}{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}{{ '\\n' if not loop.first }}<tool_call>
{"name": {{ call.function.name | tojson }}, "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{{ '<think>\\n' if thinking }}{% endif %}"""
"""Qwen's turns and Hermes' tool calls. A turn in the history reads as it was sampled, so prompts grow by their end.
It lets the model think where a request sets ``enable_thinking``."""


def make_untrained(seed: int, *, vocabulary: int, positions: int, end: int, pad: int) -> Qwen2ForCausalLM:
    """Return a Qwen2 with the random weights of a seed, in float32; 0.33 M parameters and 256 for each token.

    Args:
        seed: of the weights.
        vocabulary: number of tokens.
        positions: longest context in tokens.
        end: id of the token that ends an answer.
        pad: id of the token that fills rows.
    """
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=128,  # heads of 32: vLLM on CPU dies with smaller ones
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=positions,
        tie_word_embeddings=False,
        initializer_range=0.05,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=pad,
    )
    return Qwen2ForCausalLM(config).float()


def write_chat_model(directory: Path, seed: int = 0, positions: int = 8192) -> int:
    """Write a general model in Hugging Face's form; return its number of parameters.

    Its tokens are the 256 bytes and the marks of its chat template. A new directory appears once everything is in it.
    An empty one is kept, because it may be a mount or the current one; it gets ``config.json`` last.

    Args:
        directory: new or empty.
        seed: of the random weights.
        positions: longest context in tokens, here bytes.

    Raises: EngineError: the tokenizer does not read back as it was written.
    """
    tokenizer = _make_tokenizer(positions)
    end, pad = (tokenizer.get_vocab()[token] for token in (_END, _PAD))
    model = make_untrained(seed, vocabulary=len(tokenizer), positions=positions, end=end, pad=pad)
    model.generation_config.eos_token_id = [end, pad]
    directory = directory.resolve()
    directory.parent.mkdir(parents=True, exist_ok=True)
    disable_progress_bar()
    is_new = not directory.is_dir()
    with TemporaryDirectory(dir=directory.parent if is_new else directory, prefix=".model.") as scratch:
        written = Path(scratch) / "model"
        model.save_pretrained(written)
        tokenizer.save_pretrained(written)
        # each byte is a token for who reads it: transformers reads a qwen2 directory by rules of its own
        read, text = AutoTokenizer.from_pretrained(written), "a  Ä\n漢🙂"
        ids = read(f"{text}</think>", add_special_tokens=False)["input_ids"]
        if len(ids) != len(text.encode()) + 1 or read.decode(ids[:-1]) != text:
            raise EngineError(
                f"model {written}: expected a token for each byte of {text!r}, found {len(ids)} for"
                f" {len(text.encode()) + 1}; this version of transformers reads the tokenizer differently"
            )
        if is_new:
            written.rename(directory)
        else:
            for path in sorted(written.iterdir(), key=lambda path: path.name == "config.json"):
                path.rename(directory / path.name)
    return sum(weight.numel() for weight in model.parameters())


def _make_tokenizer(positions: int) -> PreTrainedTokenizerFast:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.add_special_tokens([_PAD, "<|im_start|>", _END])
    tokenizer.add_tokens(list(_MARKS))
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=_END, pad_token=_PAD, model_max_length=positions
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast
