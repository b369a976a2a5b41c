"""A tiny untrained Qwen2 that answers level 0 of code repair with one token: ``1a`` to ``3c``.

Its weights are random, so it knows nothing about code. One direction of them is not: it keeps tokens that are no answer
unlikely, so that learning begins at the level of chance, one in nine, and not at one in the whole vocabulary.
"""

# transformers and tokenizers are untyped
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

__all__ = ["ANSWERS", "write_model"]

ANSWERS: Final = [f"{line}{edit}" for line in "123" for edit in "abc"]
PAD, END = "<pad>", "<|end|>"
_VOCABULARY: Final = 1200
_MAX_PROMPT_LENGTH: Final = 1024
_AVERSION: Final = 60.0
"""Difference between the logits of all other tokens and those of answers: the entropy bonus opens only answers."""
_ANCHOR: Final = 8.0
"""The constant dimension, which speaks against what is no answer; the others are about 0.15. Updates write into it too,
and where they turned it around, a task had lost all its answers for good."""
_OTHERS, _CONSTANT = 4.0, 0.5
"""Factors of the norms for all other dimensions and for the constant one: layers see the others as without the anchor.
"""
_FAINT: Final = 0.005
"""What the head sees of the constant dimension, with weights that are large in turn: answers so learn nothing from it,
and updates have no reason to move it."""
_SHARPNESS: Final = 3.0
"""Factor of queries and keys. Prompts differ in few of their words: where attention spreads evenly over all words, all
prompts look alike to the untrained model, and one answer spreads to tasks with another."""
_ATTENTION: Final = 2.0
"""Factor of values and outputs: what attention finds weighs more than the last token, which all prompts share."""


def write_model(directory: Path, prompts: Sequence[str], seed: int) -> None:
    """Write weights, configuration and tokenizer in Hugging Face's form, with a vocabulary of pieces of prompts."""
    tokenizer = _tokenizer(prompts)
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(_configuration(len(tokenizer))).float()
    ids = tokenizer.get_vocab()
    _attend_to_words(model)
    _prefer(model, [ids[answer] for answer in ANSWERS], torch.tensor(tokenizer(prompts[0])["input_ids"]))
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def _configuration(vocabulary: int) -> Qwen2Config:
    return Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=_MAX_PROMPT_LENGTH,
        tie_word_embeddings=False,
        initializer_range=0.15,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
    )


def _tokenizer(prompts: Sequence[str]) -> PreTrainedTokenizerFast:
    pieces = Tokenizer(models.BPE())
    pieces.pre_tokenizer, pieces.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY, special_tokens=[PAD, END], initial_alphabet=alphabet, show_progress=False
    )
    pieces.train_from_iterator(prompts, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=pieces, pad_token=PAD, eos_token=END, model_max_length=_MAX_PROMPT_LENGTH
    )
    tokenizer.add_tokens([AddedToken(answer, single_word=True, normalized=False) for answer in ANSWERS])
    tokenizer.chat_template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    return tokenizer


@torch.no_grad()
def _attend_to_words(model: Qwen2ForCausalLM) -> None:
    for name, weight in model.named_parameters():
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            weight.mul_(_SHARPNESS)
        if name.endswith(("v_proj.weight", "o_proj.weight")):
            weight.mul_(_ATTENTION)


@torch.no_grad()
def _prefer(model: Qwen2ForCausalLM, answers: Sequence[int], prompt: torch.Tensor) -> None:
    """Make the model choose evenly among answers: the first dimension is constant, and speaks against all else."""
    model.model.embed_tokens.weight[:, 0] = _ANCHOR
    for name, weight in model.named_parameters():
        if name.endswith("norm.weight"):
            weight.fill_(_OTHERS)
            weight[0] = _CONSTANT
        if name.endswith(("o_proj.weight", "down_proj.weight")):  # what layers add to the residual stream
            weight[0] = 0.0
    model.model.norm.weight[0] = _FAINT
    constant = model.model(prompt[None]).last_hidden_state[0, -1, 0]
    head = model.lm_head.weight
    head *= 0.03  # so that the first policy is even
    head[:, 0] = -_AVERSION / constant
    head[answers, 0] = 0.0
