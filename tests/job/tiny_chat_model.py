"""A tiny untrained chat model with a byte-level tokenizer, whose template supports tools."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

__all__ = ["write_tiny_chat_model"]

PAD, START, END, TOOL_CALL, TOOL_CALL_END = "<|pad|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"
TEMPLATE = """\
{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def write_tiny_chat_model(directory: Path) -> Path:
    """Write model and tokenizer, in Hugging Face's form."""
    tokenizer = _tokenizer()
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=128,  # heads of 32: vLLM on CPU dies with smaller ones
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    Qwen2ForCausalLM(config).to(torch.float32).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


def _tokenizer() -> PreTrainedTokenizerFast:
    letters = Tokenizer(models.BPE())
    letters.pre_tokenizer, letters.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    letters.train_from_iterator(
        ['{"name": "add", "arguments": {"a": 1, "b": 2}} user assistant system tool'] * 8, trainer
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=letters, eos_token=END, pad_token=PAD)
    tokenizer.add_tokens([TOOL_CALL, TOOL_CALL_END])
    tokenizer.chat_template = TEMPLATE
    tokenizer.model_max_length = 2048
    return tokenizer
