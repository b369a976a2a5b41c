"""A tiny chat model that calls a tool about as often as it ends its answer: a whole call is one token of it."""

from pathlib import Path

import torch
from transformers import AutoTokenizer, Qwen2ForCausalLM

from trainer_adapter.tiny_model import write_chat_model

__all__ = ["write_calling_model"]

_CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'


def write_calling_model(directory: Path) -> Path:
    """Write it, in Hugging Face's form: half of what it samples are the call, and half the end."""
    write_chat_model(directory)
    tokenizer, model = AutoTokenizer.from_pretrained(directory), Qwen2ForCausalLM.from_pretrained(directory)
    tokenizer.add_tokens([_CALL])
    model.resize_token_embeddings(len(tokenizer))
    with torch.no_grad():
        model.model.embed_tokens.weight[:, 0] = 5.0  # so one part of the last hidden state is about 11 for any text
        model.lm_head.weight[:, 0] = 0.0
        model.lm_head.weight[[tokenizer.eos_token_id, len(tokenizer) - 1], 0] = 0.8
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory
